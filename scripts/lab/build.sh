#!/bin/sh
# build.sh makes the files from which the lab's virtual machines boot, from Debian packages only:
#
#   build/lab/root     a minimal Debian with rdma-core, rdmacm-utils, perftest, fio and the kernel's modules
#   build/lab/vmlinuz  the kernel of these modules
#   build/lab/initrd   the guest agent (scripts/lab/agent) and the modules needed to mount the root
#   build/lab/READY    the kernel's version; written last
#
# Each step leaves a stamp file and is skipped while that is newer than the step's inputs. Remove build/lab to start
# again. build.sh needs root (debootstrap, chroot). The first run takes some minutes, later ones about a second.
#
# LAB_DIR     where to build                      (default: build/lab in the repository)
# LAB_MIRROR  Debian mirror to use                (default: the first Debian mirror of this host's apt sources)
# LAB_INSTALL 0 = never install missing host tools (default: install them with apt-get)
set -eu

source_pkg=linux-source-6.1 # the kernel series of $suite
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
build_packages="make linux-headers-amd64"
. "$here/lib.sh"

make_kernel() {
	fresh kernel "$lab/stamp/root" && return 0
	say "kernel image, headers and compiler"
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	quiet "apt-get update in the root" in_root apt-get update
	quiet "installing headers in the root" in_root apt-get install -y --no-install-recommends $build_packages
	version=$(in_root sh -c 'ls /usr/src' | sed -n 's/^linux-headers-\(.*-amd64\)$/\1/p' | sort -V | tail -n 1)
	[ -n "$version" ] || die "no linux-headers-*-amd64 under $root/usr/src"
	# The kernel's package is unpacked and not installed, so that it needs no boot loader and no initramfs generator.
	rm -rf "$root/debs"; mkdir -p "$root/debs"; chmod 777 "$root/debs"
	quiet "downloading the kernel" in_root sh -c "cd /debs && apt-get download linux-image-$version"
	# dpkg-deb -x would replace the symbolic link /lib -> usr/lib by a directory.
	quiet "unpacking the kernel" sh -c "dpkg-deb --fsys-tarfile $root/debs/linux-image-*.deb | tar -x -C $root --keep-directory-symlink"
	kversion=$(in_root dpkg-query -W -f '${Version}' "linux-headers-$version")
	quiet "downloading $source_pkg $kversion" in_root sh -c "cd /debs && apt-get download $source_pkg=$kversion"
	rm -rf "$lab/siw"; mkdir -p "$lab/siw"
	say "unpacking siw from $source_pkg $kversion"
	dpkg-deb --fsys-tarfile "$root"/debs/$source_pkg*.deb | tar -xO "./usr/src/$source_pkg.tar.xz" |
		tar -xJ -C "$lab/siw" --strip-components=5 "$source_pkg/drivers/infiniband/sw/siw" ||
		die "no drivers/infiniband/sw/siw in $source_pkg"
	rm -rf "$root/debs"
	cp "$root/boot/vmlinuz-$version" "$lab/vmlinuz"
	echo "$version" >"$lab/kernel-version"
	stamp kernel
}

# make_siw compiles the driver siw with two changes:
# - Its compile-time settings become module parameters with the same defaults, so that siw can request CRC or use
#   revision 1.
# - The new parameter lab_kick (default off) makes a responder check for bytes that arrived while it was sending its
#   Reply. The unmodified driver overlooks these bytes until more arrive, on a slow machine in one of eight connections.
make_siw() {
	fresh siw "$lab/stamp/kernel" "$here/build.sh" && return 0
	version=$(cat "$lab/kernel-version")
	say "compiling siw.ko for $version"
	rm -rf "$root/usr/src/siw"
	cp -a "$lab/siw" "$root/usr/src/siw"
	src=$root/usr/src/siw
	for p in mpa_crc_required mpa_crc_strict peer_to_peer; do
		grep -q "^const bool $p" "$src/siw_main.c" || die "siw_main.c of this kernel has no constant $p; adapt make_siw"
		sed -i "s/^const bool $p\b/bool $p/" "$src/siw_main.c"
		sed -i "s/^extern const bool $p\b/extern bool $p/" "$src/siw.h"
		echo "module_param($p, bool, 0644);" >>"$src/siw_main.c"
	done
	grep -q '^u_char mpa_version' "$src/siw_main.c" || die "siw_main.c of this kernel has no mpa_version; adapt make_siw"
	echo "module_param(mpa_version, byte, 0644);" >>"$src/siw_main.c"
	cat >>"$src/siw_main.c" <<'C'
bool lab_kick;
module_param(lab_kick, bool, 0644);
C
	cat >"$src/lab_kick.h" <<'C'
extern bool lab_kick;
static void lab_look_again(struct siw_cep *cep)
{
	struct sock *sk = cep->sock ? cep->sock->sk : NULL;

	if (!lab_kick || !sk)
		return;
	lock_sock(sk);
	local_bh_disable();
	sk->sk_data_ready(sk);
	local_bh_enable();
	release_sock(sk);
}
C
	sed -i -e '/^int siw_accept(/,/^}/ s/^\tsiw_cep_set_free(cep);$/\tlab_look_again(cep);\n&/' \
		-e 's/^int siw_accept(/#include "lab_kick.h"\n&/' "$src/siw_cm.c"
	[ "$(grep -c lab_look_again "$src/siw_cm.c")" = 1 ] || die "siw_accept of this kernel looks different; adapt make_siw"
	quiet "compiling siw" in_root make -C "/lib/modules/$version/build" M=/usr/src/siw CONFIG_RDMA_SIW=m modules
	mkdir -p "$root/lib/modules/$version/extra"
	cp "$src/siw.ko" "$root/lib/modules/$version/extra/siw.ko"
	quiet depmod in_root depmod "$version"
	stamp siw
}

make_initrd() {
	pack_initrd initrd "$(cat "$lab/kernel-version")" "$root" amd64 "$lab/stamp/siw"
}

begin
host_tools
make_root
make_kernel
make_siw
make_initrd
cp "$lab/kernel-version" "$lab/READY"
say "ready: kernel $(cat "$lab/kernel-version") in $lab"
