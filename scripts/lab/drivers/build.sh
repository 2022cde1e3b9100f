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

make_newest_kernel() {
	version=$(newest_version newest linux-image-amd64)
	[ -n "$version" ] || die "no linux-image-amd64 in $suites"
	at_least "$version" "$kernel_floor" || die "the newest kernel of $suites is $version, and $kernel_floor is needed"
	unpack_kernel newest "$version" amd64 "$root" -newest
}

# make_qemu takes an emulator from the backports, unpacked and not installed, unless the host has one that is new enough.
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
