#!/bin/sh
# generated.sh checks that `make generate` reproduces the committed eBPF objects. It works on a copy of the sources.
#
# Other versions of clang produce other bytes. So it checks nothing unless clang has the version that built the
# committed objects.
set -eu

clang_major=14

say() { printf 'generated: %s\n' "$*"; }

cd "$(dirname "$0")/.."
if ! command -v clang >/dev/null || ! command -v llvm-strip >/dev/null; then
	say "not checked: there is no clang here"
	exit 0
fi
here=$(clang -dumpversion | cut -d. -f1)
if [ "$here" != "$clang_major" ]; then
	say "not checked: the objects were made by clang $clang_major, here is clang $here"
	exit 0
fi
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT INT TERM
cp -R go.mod go.sum bpf "$copy"
cd "$copy"
git init -q .
git add -A
go generate ./bpf/...
if ! git -c core.pager=cat diff --stat --exit-code; then
	say "error: the committed files are not what the sources give: run make generate and commit"
	exit 1
fi
say "the eBPF objects are current"
