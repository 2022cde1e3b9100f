#!/bin/sh
# fuzz.sh runs every fuzzer of the repository in turn, each for the given time: scripts/fuzz.sh 30s [PACKAGE...]
# What a fuzzer finds, go test writes below that package's testdata/fuzz and repeats from then on.
set -eu

time=${1:?how long, such as 10m}
shift
cd "$(dirname "$0")/.."
for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "${@:-./...}"); do
	for fuzzer in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		printf '== %s %s\n' "$package" "$fuzzer"
		go test -run '^$' -fuzz "^$fuzzer\$" -fuzztime "$time" "$package"
	done
done
