#!/bin/sh
# postremove.sh, on a purge, removes the directory of exports and the daemon's user. It keeps both if exported data is
# left, which the operator must delete.
set -eu
[ "${1:-}" = purge ] || exit 0
rm -rf /run/xwarp /run/xwarpd /run/xwarp-tenants # systemd keeps them after a stop (RuntimeDirectoryPreserve)
[ ! -d /var/lib/xwarp ] || rmdir --ignore-fail-on-non-empty /var/lib/xwarp
if [ -d /var/lib/xwarp ]; then
	echo "xwarp: keeping /var/lib/xwarp, which is not empty, and its owner, the user xwarp. To remove them: rm -r /var/lib/xwarp; userdel xwarp" >&2
	exit 0
fi
if getent passwd xwarp >/dev/null; then userdel xwarp; fi
if getent group xwarp >/dev/null; then groupdel xwarp; fi
