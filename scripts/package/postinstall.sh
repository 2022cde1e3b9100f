#!/bin/sh
# postinstall.sh creates the user of the daemon. It starts nothing, because an interface must be configured first.
set -eu
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers /usr/lib/sysusers.d/xwarpd.conf
elif ! getent passwd xwarp >/dev/null; then
	useradd --system --home-dir /var/lib/xwarp --shell /usr/sbin/nologin xwarp
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if systemctl is-active --quiet xwarpd; then
	if ! why=$(/usr/bin/xwarp config check 2>&1 >/dev/null); then
		echo "xwarp: this version would not start with the present configuration: $why" >&2
	fi
	echo "xwarp: xwarpd still runs the previous version. To run this one, which ends connections: systemctl restart xwarpd" >&2
fi
