#!/bin/sh
# A purge takes the directory of exports and the daemon's user away, unless data of exports is left, which is the operator's to delete.
set -eu
[ "${1:-}" = purge ] || exit 0
[ ! -d /var/lib/xwarp ] || rmdir --ignore-fail-on-non-empty /var/lib/xwarp
if [ -d /var/lib/xwarp ]; then
	echo "xwarp: /var/lib/xwarp is not empty, and stays, with its owner, the user xwarp: rm -r /var/lib/xwarp; userdel xwarp" >&2
	exit 0
fi
if getent passwd xwarp >/dev/null; then userdel xwarp; fi
if getent group xwarp >/dev/null; then groupdel xwarp; fi
