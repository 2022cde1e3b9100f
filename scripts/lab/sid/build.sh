#!/bin/sh
# build.sh makes a root of Debian sid beside the lab's, for the newest rdma-core and its programs:
#
#   build/lab/sid        the root: rdma-core, rdmacm-utils, perftest, infiniband-diags
#   build/lab/READY-sid  written last; the version of rdma-core
#
# Needs root and 500 MB. Takes a minute once a week, then a second.
# LAB_DIR, LAB_MIRROR and LAB_INSTALL: see scripts/lab/build.sh.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../.." && pwd)
. "$here/../lib.sh"

sid=$lab/sid
sid_packages=ibverbs-utils,rdmacm-utils,perftest,infiniband-diags,libibverbs-dev,librdmacm-dev

make_sid() {
	[ -z "$(find "$lab/stamp/sid" -mtime +7 2>/dev/null)" ] || rm "$lab/stamp/sid"
	fresh sid "$here/build.sh" && return 0
	rm -rf --one-file-system "$lab/READY-sid" "$sid"
	say "debootstrap sid (minbase)"
	quiet debootstrap debootstrap --variant=minbase --include="$sid_packages" sid "$sid" "$(mirror)"
	stamp sid
}

begin
host_tools
make_sid
chroot "$sid" dpkg-query -W -f '${Version}\n' libibverbs1 >"$lab/READY-sid"
say "ready: rdma-core $(cat "$lab/READY-sid") of Debian sid"
