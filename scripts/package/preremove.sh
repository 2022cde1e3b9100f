#!/bin/sh
# preremove.sh stops and disables the daemon on a removal. On an upgrade it keeps the daemon running.
set -eu
case "${1:-}" in
remove | purge | 0) [ ! -d /run/systemd/system ] || systemctl disable --now xwarpd ;;
esac
