#!/bin/sh
# fuzz.sh runs every fuzzer of the repository in turn, each for the given time, and says how much of the code it
# reached: scripts/fuzz.sh 30s [PACKAGE...]
# What a fuzzer finds, go test writes below that package's testdata/fuzz and repeats from then on.
set -eu

time=${1:?how long, such as 10m}
shift
cd "$(dirname "$0")/.."
module=$(go list -m)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# covers prints the packages whose statements count for a fuzzer: those that its input goes through.
covers() {
	case $2 in
	FuzzFrames) echo "$module/tcp/...,$module/mpa/...,$module/ddp/...,$module/engine/stack,$module/engine/iwarp" ;;
	FuzzSession) echo "$module/engine/daemon,$module/engine/daemon/control" ;;
	*) echo "$1" ;;
	esac
}

# coverage runs a fuzzer once more over its seeds and all inputs that it has found to be new, which go test
# keeps in its cache.
coverage() {
	dir=$(go list -f '{{.Dir}}' "$1")
	run=$tmp/$2
	mkdir -p "$run"
	ln -s "$dir"/* "$run"
	rm -f "$run/testdata"
	[ ! -d "$dir/testdata" ] || cp -r "$dir/testdata" "$run"
	mkdir -p "$run/testdata/fuzz/$2"
	cache=$(go env GOCACHE)/fuzz/$1/$2
	[ ! -d "$cache" ] || find "$cache" -type f -exec cp -t "$run/testdata/fuzz/$2" {} +
	go test -c -cover -coverpkg "$(covers "$1" "$2")" -o "$run/test" "$1" 2>"$run/warnings"
	(cd "$run" && ./test -test.run "^$2\$" | grep '^coverage:')
}

for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "${@:-./...}"); do
	for fuzzer in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		printf '== %s %s\n' "$package" "$fuzzer"
		# An input that reaches something new is not made shorter for long: that is time without new ones.
		go test -run '^$' -fuzz "^$fuzzer\$" -fuzztime "$time" -fuzzminimizetime 100x "$package"
		coverage "$package" "$fuzzer"
	done
done
