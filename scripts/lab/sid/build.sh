#!/bin/sh
# build.sh makes a root file system of Debian sid, for tests with the newest rdma-core and its programs:
#
#   build/lab/sid        the root: rdma-core, rdmacm-utils, perftest, infiniband-diags, and in /usr/src/valkey Valkey
#                        with its RDMA module and the module's test, which Debian does not build
#   build/lab/READY-sid  the version of rdma-core; written last
#
# It needs root and 900 MB. Once a week it makes the root again, in two minutes; otherwise it takes a second.
# LAB_DIR, LAB_MIRROR and LAB_INSTALL: see scripts/lab/build.sh.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../.." && pwd)
. "$here/../lib.sh"

sid=$lab/sid
sid_packages=ibverbs-utils,rdmacm-utils,perftest,infiniband-diags,libibverbs-dev,librdmacm-dev,gcc,libc6-dev,make

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
		mkdir valkey
		tar -xf valkey_*.orig.tar.* -C valkey --strip-components=1
		make -C valkey/src -j2 BUILD_RDMA=module MALLOC=libc OPTIMIZATION=-O1 valkey-server valkey-rdma.so
		make -C valkey/tests/rdma'
	stamp sid
}

begin
host_tools
make_sid
chroot "$sid" dpkg-query -W -f '${Version}\n' libibverbs1 >"$lab/READY-sid"
say "ready: rdma-core $(cat "$lab/READY-sid") of Debian sid"
