#!/bin/sh
# build.sh makes the files from which the machines of make kernels boot, from Debian packages only, in addition to those
# of scripts/lab/build.sh:
#
#   build/lab/root           the lab's Debian, to which the modules of the amd64 kernels are added
#   build/lab/root-arm64     a Debian for arm64, unpacked without running its programs, with the modules of arm64 kernels
#   build/lab/vmlinuz-NAME   a kernel for each line of the list below
#   build/lab/initrd-NAME    like the lab's initrd, for that kernel
#   build/lab/qemu-arm64     an emulator of arm64 that can boot all these kernels
#   build/lab/READY-NAME     the kernel's version and architecture; written last
#
# It needs root and 3 GB. The first run takes five minutes, later ones seconds. Remove build/lab/stamp/kernel-NAME to
# look for a newer kernel. LAB_DIR, LAB_MIRROR and LAB_INSTALL: see scripts/lab/build.sh.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../.." && pwd)
. "$here/../lib.sh"

# Each line has a name, an architecture and suites, and stands for the newest kernel of these suites. The oldest kernel
# that xwarp supports, 6.6, is in no suite: Debian went from 6.1 to 6.12.
kernels='debian12 amd64 bookworm
debian13 amd64 trixie
newest-amd64 amd64 trixie-backports forky sid
debian13-arm64 arm64 trixie
newest-arm64 arm64 trixie-backports forky sid'

root_of() { case $1 in amd64) echo "$root" ;; *) echo "$root-$1" ;; esac; }

# make_foreign_root ARCHITECTURE unpacks a Debian for another processor. No program of it runs on this host.
make_foreign_root() {
	fresh "root-$1" "$repo/scripts/lab/lib.sh" "$here/build.sh" && return 0
	foreign=$(root_of "$1")
	say "debootstrap $suite for $1"
	rm -rf "$foreign"
	quiet debootstrap debootstrap --foreign --arch="$1" --variant=minbase --include="$foreign_packages" "$suite" "$foreign" "$(mirror)"
	for deb in "$foreign"/var/cache/apt/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$foreign" --keep-directory-symlink || die "cannot unpack $deb"
	done
	rm -rf "$foreign"/var/cache/apt/archives/*.deb "$foreign/debootstrap"
	for dir in proc sys dev; do # debootstrap may make links of these; the machine needs directories to mount on
		[ ! -L "$foreign/$dir" ] || rm "$foreign/$dir"
		mkdir -p "$foreign/$dir"
	done
	printf 'root:x:0:0:root:/root:/bin/sh\n' >"$foreign/etc/passwd"
	printf 'root:x:0:\n' >"$foreign/etc/group"
	rm -f "$lab"/stamp/kernel-*-"$1"
	stamp "root-$1"
}

make_kernel() {
	label=$1 arch=$2; shift 2
	fresh "kernel-$label" "$lab/stamp/root" "$here/build.sh" || {
		rm -f "$lab/READY-$label" "$lab/vmlinuz-$label"
		make_lists "$label" "$arch" "$@"
		version=$(newest_version "$label" "linux-image-$arch")
		[ -n "$version" ] || die "no linux-image-$arch in $*"
		unpack_kernel "$label" "$version" "$arch" "$(root_of "$arch")" "-$label"
		stamp "kernel-$label"
	}
	pack_initrd "initrd-$label" "$(cat "$lab/kernel-version-$label")" "$(root_of "$arch")" "$arch" "$lab/stamp/kernel-$label"
	echo "$(cat "$lab/kernel-version-$label") $arch" >"$lab/READY-$label"
	say "ready: $label, $(cat "$lab/READY-$label")"
}

make_qemu() {
	fresh qemu-arm64 "$here/build.sh" && return 0
	make_lists qemu-arm64 amd64 "$suite-backports"
	unpack_qemu qemu-arm64 "$suite-backports" qemu-system-arm qemu-system-aarch64 "$lab/qemu-arm64"
	stamp qemu-arm64
}

begin
host_tools
make_root
make_foreign_root arm64
make_qemu
echo "$kernels" | while read -r line; do make_kernel $line </dev/null; done
