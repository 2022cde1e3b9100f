#!/bin/sh
# build.sh makes the files from which the machines of make drivers boot, from Debian packages only, in addition to those
# of scripts/lab/build.sh:
#
#   build/lab/root            the lab's Debian, to which the modules of the newest kernel are added
#   build/lab/vmlinuz-newest  the newest kernel of the suites below
#   build/lab/initrd-newest   like the lab's initrd, for that kernel
#   build/lab/qemu-newest     an emulator that has igb, only if the host's emulator is too old
#   build/lab/READY-newest    the versions of the kernel and the emulator; written last
#
# It needs root and 1 GB. The first run takes two minutes, later ones a second. Remove build/lab/stamp/newest to look
# for a newer kernel. LAB_DIR, LAB_MIRROR and LAB_INSTALL: see scripts/lab/build.sh.
set -eu

suites="trixie-backports forky sid" # the suites that may have the newest kernel
kernel_floor=6.14                   # first kernel with zero-copy in igb; virtio_net has it since 6.11
qemu_floor=10
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../.." && pwd)
. "$here/../lib.sh"

make_newest_kernel() {
	version=$(newest_version newest linux-image-amd64)
	[ -n "$version" ] || die "no linux-image-amd64 in $suites"
	at_least "$version" "$kernel_floor" || die "the newest kernel of $suites is $version, and $kernel_floor is needed"
	unpack_kernel newest "$version" amd64 "$root" -newest
}

# make_qemu unpacks an emulator from the backports, without installing it, unless the host's is new enough.
make_qemu() {
	rm -rf "$lab/qemu-newest"
	host=$(qemu-system-x86_64 --version | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p')
	if at_least "$host" "$qemu_floor"; then
		return
	fi
	say "the host's qemu is $host: taking that of $suite-backports"
	unpack_qemu newest "$suite-backports" qemu-system-x86 qemu-system-x86_64 "$lab/qemu-newest"
}

make_newest() {
	fresh newest "$lab/stamp/root" "$here/build.sh" && return 0
	rm -f "$lab/READY-newest" "$lab/vmlinuz-newest"
	make_lists newest amd64 $suites "$suite-backports"
	make_newest_kernel
	make_qemu
	stamp newest
}

begin
host_tools
make_root
make_newest
kernel=$(cat "$lab/kernel-version-newest")
pack_initrd initrd-newest "$kernel" "$root" amd64 "$lab/stamp/newest"
qemu=qemu-system-x86_64
[ ! -d "$lab/qemu-newest" ] || qemu=$lab/qemu-newest/usr/bin/$qemu
echo "kernel $kernel, $("$qemu" --version | sed -n 1p)" >"$lab/READY-newest"
say "ready: $(cat "$lab/READY-newest")"
