#!/bin/sh
# build.sh makes what the machines of the drivers' trial boot from, out of Debian's packages only, beside the lab's:
#
#   build/lab/root            the lab's Debian, with the modules of the newest kernel too
#   build/lab/vmlinuz-newest  the newest kernel of the suites below
#   build/lab/initrd-newest   as the lab's, for that kernel
#   build/lab/qemu-newest     an emulator that has igb, where the host's own is older
#   build/lab/READY-newest    written last: the kernel's and the emulator's version
#
# Needs root and 1 GB. Takes two minutes once, then a second; remove build/lab/stamp/newest to look for a newer kernel.
# LAB_DIR, LAB_MIRROR and LAB_INSTALL: see scripts/lab/build.sh.
set -eu

suites="trixie-backports forky sid" # that may have the newest kernel
kernel_floor=6.14                   # igb's zero-copy; virtio_net's is of 6.11
qemu_floor=10
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../.." && pwd)
. "$here/../lib.sh"

# at_least VERSION FLOOR
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# apt TOOL ARG...: of the root, in its directory /debs, with the suites above and nothing else.
apt() { in_root sh -c 'cd /debs && APT_CONFIG=/etc/apt/newest.conf exec "$@"' sh "$@"; }

# unpack DIRECTORY: what was downloaded; links to directories stay what they are.
unpack() {
	for deb in "$root"/debs/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$1" --keep-directory-symlink || die "cannot unpack $deb"
	done
	rm -f "$root"/debs/*.deb
}

make_lists() {
	uri=$(mirror)
	for s in $suites "$suite-backports"; do echo "deb $uri $s main"; done >"$root/etc/apt/newest.list"
	cat >"$root/etc/apt/newest.conf" <<-'CONF'
		Dir::Etc::sourcelist "/etc/apt/newest.list";
		Dir::Etc::sourceparts "-";
		Dir::State::lists "/var/lib/apt/newest";
		Dir::State::status "/dev/null";
		Acquire::Languages "none";
		Acquire::Check-Valid-Until "false"; // mirrors lag behind
		APT::Sandbox::User "root";
	CONF
	mkdir -p "$root/var/lib/apt/newest/partial" "$root/debs"
	rm -f "$root"/debs/*.deb
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	quiet "apt-get update" apt apt-get update
}

# make_newest_kernel unpacks the kernel; it is not installed: no boot loader, no initramfs generator.
make_newest_kernel() {
	version=$(apt apt-cache madison linux-image-amd64 | awk -F'|' '{gsub(/ /, "", $2); print $2}' | sort -V | tail -n 1)
	[ -n "$version" ] || die "no linux-image-amd64 in $suites"
	at_least "$version" "$kernel_floor" || die "the newest kernel of $suites is $version, and $kernel_floor is needed"
	image=$(apt apt-cache show "linux-image-amd64=$version" | sed -n 's/^Depends: .*linux-image-\([^ ]*\) .*/\1/p')
	# Since 7.3 the image's package only asks for those of base, kernel and modules.
	packages=$(apt apt-cache show "linux-image-$image" | tr ', ' '\n\n' | grep -xE 'linux-(base|binary|modules)-.*' || true)
	say "kernel $image ($version)"
	quiet "downloading the kernel" apt apt-get download ${packages:-linux-image-$image}
	unpack "$root"
	for file in "$root/boot/vmlinuz-$image" "$root/usr/lib/modules/$image/vmlinuz"; do
		[ ! -e "$file" ] || cp "$file" "$lab/vmlinuz-newest"
	done
	[ -e "$lab/vmlinuz-newest" ] || die "no vmlinuz in the packages of $image"
	quiet depmod in_root depmod "$image"
	echo "$image" >"$lab/kernel-version-newest"
}

# make_qemu takes an emulator from the backports, unpacked and not installed, unless the host has one that is new enough.
make_qemu() {
	rm -rf "$lab/qemu-newest"
	host=$(qemu-system-x86_64 --version | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p')
	if at_least "$host" "$qemu_floor"; then
		return
	fi
	say "the host's qemu is $host: taking that of $suite-backports"
	mkdir -p "$lab/qemu-newest"
	version=$(apt apt-cache madison qemu-system-x86 | awk -F'|' '$3 ~ /'"$suite-backports"'/ {gsub(/ /, "", $2); print $2}' | sort -V | tail -n 1)
	quiet "downloading qemu" apt apt-get download "qemu-system-x86=$version"
	unpack "$lab/qemu-newest"
	"$lab/qemu-newest/usr/bin/qemu-system-x86_64" --version >>"$log" 2>&1 ||
		die "qemu $version does not run on this host, whose own is older than $qemu_floor: see $lab/qemu-newest"
}

make_newest() {
	fresh newest "$lab/stamp/root" "$here/build.sh" && return 0
	rm -f "$lab/READY-newest" "$lab/vmlinuz-newest"
	make_lists
	make_newest_kernel
	make_qemu
	stamp newest
}

begin
host_tools
make_root
make_newest
kernel=$(cat "$lab/kernel-version-newest")
pack_initrd initrd-newest "$kernel" "$lab/stamp/newest"
qemu=qemu-system-x86_64
[ ! -d "$lab/qemu-newest" ] || qemu=$lab/qemu-newest/usr/bin/$qemu
echo "kernel $kernel, $("$qemu" --version | sed -n 1p)" >"$lab/READY-newest"
say "ready: $(cat "$lab/READY-newest")"
