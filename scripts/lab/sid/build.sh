#!/bin/sh
# build.sh makes a root file system of Debian sid, for tests with the newest rdma-core and its programs:
#
#   build/lab/sid        the root: rdma-core, rdmacm-utils, perftest, infiniband-diags, xdp-tools, and Valkey with RDMA,
#                        which Debian does not build: in /usr/src/valkey-module as a module, in /usr/src/valkey-yes built in
#   build/lab/READY-sid  the version of rdma-core; written last
#
# It needs root and 1.2 GB. Once a week it makes the root again, in four minutes; otherwise it takes a second.
# LAB_DIR, LAB_MIRROR and LAB_INSTALL: see scripts/lab/build.sh.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../.." && pwd)
. "$here/../lib.sh"

sid=$lab/sid
sid_packages=ibverbs-utils,rdmacm-utils,perftest,infiniband-diags,xdp-tools
sid_packages=$sid_packages,libibverbs-dev,librdmacm-dev,gcc,libc6-dev,make,python3-netifaces

make_sid() {
	[ -z "$(find "$lab/stamp/sid" -mtime +7 2>/dev/null)" ] || rm "$lab/stamp/sid"
	fresh sid "$here/build.sh" && return 0
	rm -rf --one-file-system "$lab/READY-sid" "$sid"
	say "debootstrap sid (minbase)"
	quiet debootstrap debootstrap --variant=minbase --include="$sid_packages" sid "$sid" "$(mirror)"
	say "build Valkey"
	echo "deb-src $(mirror) sid main" >"$sid/etc/apt/sources.list.d/source.list"
	quiet Valkey chroot "$sid" sh -ec '
		cd /usr/src
		apt-get update -o Acquire::Check-Valid-Until=false
		apt-get source --download-only valkey
		for rdma in module yes; do # a module, and part of the server, for which run.py asks
			mkdir valkey-$rdma
			tar -xf valkey_*.orig.tar.* -C valkey-$rdma --strip-components=1
			make -C valkey-$rdma/src -j2 BUILD_RDMA=$rdma MALLOC=libc OPTIMIZATION=-O1 valkey-server
			make -C valkey-$rdma/tests/rdma
		done
		make -C valkey-module/src BUILD_RDMA=module MALLOC=libc OPTIMIZATION=-O1 valkey-rdma.so'
	stamp sid
}

begin
host_tools
make_sid
chroot "$sid" dpkg-query -W -f '${Version}\n' libibverbs1 >"$lab/READY-sid"
say "ready: rdma-core $(cat "$lab/READY-sid") of Debian sid"
