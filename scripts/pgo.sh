#!/bin/sh
# pgo.sh PROGRAM FILE... profiles both ends of the important workloads and writes the merged CPU profile to every FILE.
# go build optimises a main package by the file default.pgo in its directory. Run pgo.sh again after large changes of
# the data path.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "${1:?the program to profile}" "$work/xwarp" # its path becomes part of the profiles
shift

n=0
while read -r flags; do
	n=$((n + 1))
	# shellcheck disable=SC2086 # flags must be split into words
	"$work/xwarp" bench local --duration 3s --cpuprofile "$work/$n" $flags </dev/null >&2
done <<END
--size 1048576 --depth 8
--size 1048576 --depth 8 --no-markers
--size 1048576 --depth 8 --no-markers --tx packet-gso
--size 1048576 --depth 8 --no-markers --tx auto --offloads
--size 1048576 --depth 8 --no-markers --mtu 9000
--size 1048576 --depth 8 --verb read
--size 1048576 --depth 8 --verb send
--size 64 --depth 4096 --cq-mod 64
--size 64 --mode lat
--size 64 --mode lat --verb send
--size 65536 --depth 2 --qps 64
END
go tool pprof -proto -output "$work/merged" "$work"/*.pprof >/dev/null
for file; do
	cp "$work/merged" "$file"
done
