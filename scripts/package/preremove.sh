#!/bin/sh
# An upgrade keeps the daemon running; a removal stops it.
set -eu
case "${1:-}" in
remove | purge | 0) [ ! -d /run/systemd/system ] || systemctl disable --now xwarpd ;;
esac
