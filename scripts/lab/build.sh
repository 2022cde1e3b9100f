#!/bin/sh
# build.sh makes what the lab's virtual machines boot from, out of Debian's packages only:
#
#   build/lab/root     a minimal Debian with rdma-core, rdmacm-utils, perftest and the kernel's modules
#   build/lab/vmlinuz  that kernel
#   build/lab/initrd   the guest agent (scripts/lab/agent) and the modules needed to mount the root
#   build/lab/READY    written last; names the kernel
#
# Each step leaves a stamp behind and is skipped when that stamp is newer than what it came from; remove
# build/lab to start again. Needs root (debootstrap, chroot). Takes some minutes once, then about a second.
#
# LAB_DIR     where to build                      (default: build/lab in the repository)
# LAB_MIRROR  Debian mirror to use                (default: the first Debian mirror of this host's apt sources)
# LAB_INSTALL 0 = never install missing host tools (default: install them with apt-get)
set -eu

suite=bookworm
source_pkg=linux-source-6.1 # the kernel series of $suite
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
lab=${LAB_DIR:-$repo/build/lab}
root=$lab/root
packages=iproute2,iputils-ping,ethtool,kmod,procps,rdma-core,rdmacm-utils,ibverbs-utils,ibverbs-providers,perftest
build_packages="make linux-headers-amd64"

say() { printf 'lab: %s\n' "$*"; }
die() { printf 'lab: error: %s\n' "$*" >&2; exit 1; }
log=$lab/build.log

# quiet NAME COMMAND...: run it with its output in the log, and show the log's end when it fails.
quiet() {
	what=$1; shift
	if ! "$@" >>"$log" 2>&1; then
		tail -n 20 "$log" >&2
		die "$what failed; the whole log is $log"
	fi
}

# fresh STAMP FILE...: true when the stamp exists and no FILE is newer.
fresh() {
	stamp=$lab/stamp/$1; shift
	[ -e "$stamp" ] || return 1
	for f; do
		[ ! "$f" -nt "$stamp" ] || return 1
	done
}
stamp() { : >"$lab/stamp/$1"; }

in_root() {
	chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive \
		${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"
}

# apt_repos: "URI SUITE-CODENAME" for each Debian repository of $suite that the host's apt knows.
apt_repos() {
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)|$(RELEASE)' 'Created-By: Packages' 2>/dev/null |
		awk -F'|' '$1 == "Debian" {print $3, $4}' | sort -u
}

host_tools() {
	missing=
	for pair in qemu-system-x86_64:qemu-system-x86 debootstrap:debootstrap cpio:cpio xz:xz-utils tcpdump:tcpdump tshark:tshark ethtool:ethtool ip:iproute2 ping:iputils-ping; do
		command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
	done
	command -v go >/dev/null || die "no go in PATH: the guest agent is a Go program"
	[ -n "$missing" ] || return 0
	[ "${LAB_INSTALL:-1}" != 0 ] || die "these packages are missing:$missing (LAB_INSTALL=0 forbids installing them)"
	command -v apt-get >/dev/null || die "these tools are missing and there is no apt-get to get them:$missing"
	say "installing on this host:$missing"
	quiet "apt-get update" apt-get update
	quiet "apt-get install" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}

mirror() {
	if [ -n "${LAB_MIRROR:-}" ]; then
		echo "$LAB_MIRROR"
		return
	fi
	command -v apt-get >/dev/null || die "no apt here to take a mirror from; set LAB_MIRROR"
	found=$(apt_repos | awk '$2 !~ /security|updates|backports/ {print $1; exit}')
	[ -n "$found" ] || { apt-get update >>"$log" 2>&1 || true; found=$(apt_repos | awk '$2 !~ /security|updates|backports/ {print $1; exit}'); }
	[ -n "$found" ] || die "this host's apt knows no Debian mirror; set LAB_MIRROR to one (the URI that has dists/$suite below it)"
	echo "$found"
}

make_root() {
	fresh root && return 0
	uri=$(mirror)
	say "debootstrap $suite (minbase)"
	rm -rf "$root"
	quiet debootstrap debootstrap --variant=minbase --include="$packages" "$suite" "$root" "$uri"
	# The host's own suites (updates, security) keep the kernel current; never more than Debian's.
	{
		echo "deb $uri $suite main"
		apt_repos | awk -v s="$suite" '$2 == s "-updates" || $2 == s "-security" {print "deb", $1, $2, "main"}'
	} >"$root/etc/apt/sources.list"
	# A kernel step that was cut short must not find its own leavings.
	rm -f "$lab/stamp/kernel"
	stamp root
}

make_kernel() {
	fresh kernel "$lab/stamp/root" && return 0
	say "kernel image, headers and compiler"
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	quiet "apt-get update in the root" in_root apt-get update
	quiet "installing headers in the root" in_root apt-get install -y --no-install-recommends $build_packages
	version=$(in_root sh -c 'ls /usr/src' | sed -n 's/^linux-headers-\(.*-amd64\)$/\1/p' | sort -V | tail -n 1)
	[ -n "$version" ] || die "no linux-headers-*-amd64 under $root/usr/src"
	# The image is unpacked, not installed: no boot loader, no initramfs generator.
	rm -rf "$root/debs"; mkdir -p "$root/debs"; chmod 777 "$root/debs"
	quiet "downloading the kernel" in_root sh -c "cd /debs && apt-get download linux-image-$version"
	# dpkg-deb -x would replace the link /lib -> usr/lib by the package's directory.
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

# make_siw compiles the driver as it is, except that
# - its compile-time choices become module parameters with the same defaults: otherwise a siw that asks for CRC, or one
#   that speaks revision 1 first, could not be had;
# - the parameter lab_kick (default off) makes a responder look for octets that came while it was still sending its Reply.
#   The driver overlooks them until more arrive, and on a machine as slow as this one that is one connection in eight.
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

# make_initrd packs the agent as /init, and the modules it loads in the order of /modules.
make_initrd() {
	fresh initrd "$lab/stamp/siw" "$here"/agent/*.go "$here"/proto/*.go "$here/build.sh" && return 0
	version=$(cat "$lab/kernel-version")
	say "initrd with the guest agent"
	rm -rf "$lab/initrd.d"; mkdir -p "$lab/initrd.d/lib"
	(cd "$repo" && CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -ldflags '-s -w' -o "$lab/initrd.d/init" ./scripts/lab/agent) ||
		die "the guest agent does not compile"
	: >"$lab/initrd.d/modules"
	for m in virtio_pci 9pnet_virtio 9p overlay virtio_console; do
		in_root modprobe -S "$version" --show-depends "$m" 2>>"$log" | awk '$1 == "insmod" {print $2}' >"$lab/deps"
		while read -r path; do
			name=$(basename "$path")
			[ -e "$lab/initrd.d/lib/$name" ] && continue
			cp "$root/$path" "$lab/initrd.d/lib/$name" || die "module $path is missing in the root"
			echo "/lib/$name" >>"$lab/initrd.d/modules"
		done <"$lab/deps"
	done
	(cd "$lab/initrd.d" && find . | cpio --quiet -o -H newc | gzip -1 >"$lab/initrd.new") || die "cpio failed"
	mv "$lab/initrd.new" "$lab/initrd"
	rm -rf "$lab/initrd.d" "$lab/deps"
	stamp initrd
}

[ "$(uname -m)" = x86_64 ] || die "the lab is built for x86_64 only, this is $(uname -m)"
[ "$(id -u)" = 0 ] || die "must be root (debootstrap, chroot, network namespaces)"
mkdir -p "$lab/stamp"
# Neither git nor the go tool shall look in here.
echo '*' >"$lab/.gitignore"
echo 'module lab-cache' >"$lab/go.mod"
exec 9>"$lab/lock"
flock -w 900 9 || die "another build holds $lab/lock"
host_tools
make_root
make_kernel
make_siw
make_initrd
cp "$lab/kernel-version" "$lab/READY"
say "ready: kernel $(cat "$lab/kernel-version") in $lab"
