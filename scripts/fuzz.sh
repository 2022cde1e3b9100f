#!/bin/sh
# fuzz.sh runs every fuzzer of the repository in turn:
#	scripts/fuzz.sh 30s [PACKAGE...]
# Each fuzzer runs for the given time with `go test -fuzz`, to find inputs with new coverage. Then package
# engine/testkit/havoc changes all inputs that were found, for the same time and many times faster. fuzz.sh prints the
# coverage of each fuzzer, and at the end the number of executions. An input that fails is written below the package's
# testdata/fuzz, so that go test runs it from then on.
set -eu

time=${1:?how long, such as 30s or 10m}
shift
case $time in
*m) seconds=$((${time%m} * 60)) ;;
*s) seconds=${time%s} ;;
*) echo "fuzz.sh: $time: give the time in seconds or minutes, such as 30s or 10m" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
module=$(go list -m)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# covers PACKAGE FUZZER prints the packages whose coverage is measured: those that process the fuzzer's input.
covers() {
	case $2 in
	FuzzFrames) echo "$module/tcp/...,$module/mpa/...,$module/ddp/...,$module/engine/stack,$module/engine/iwarp" ;;
	FuzzSession) echo "$module/engine/daemon,$module/engine/daemon/control" ;;
	*) echo "$1" ;;
	esac
}

# corpus PACKAGE FUZZER makes the directory $run, with links to the files of the package's directory $dir, the fuzzer's
# seeds, and the inputs that it has found, which go test keeps in its cache.
corpus() {
	dir=$(go list -f '{{.Dir}}' "$1")
	run=$tmp/$2
	mkdir -p "$run"
	ln -s "$dir"/* "$run"
	rm -f "$run/testdata"
	[ ! -d "$dir/testdata" ] || cp -r "$dir/testdata" "$run"
	mkdir -p "$run/testdata/fuzz/$2"
	cache=$(go env GOCACHE)/fuzz/$1/$2
	[ ! -d "$cache" ] || find "$cache" -type f -exec cp -t "$run/testdata/fuzz/$2" {} +
}

# coverage PACKAGE FUZZER runs a fuzzer once with each input in $run. It prints the coverage and sets $inputs to their
# number.
coverage() {
	go test -c -cover -coverpkg "$(covers "$1" "$2")" -o "$run/test" "$1" 2>"$run/warnings"
	(cd "$run" && ./test -test.v -test.run "^$2\$") >"$run/out"
	inputs=$(grep -c "^ *--- PASS: $2/" "$run/out")
	grep '^coverage:' "$run/out"
}

# havoc PACKAGE FUZZER runs a fuzzer with random changes of the inputs in $run, and prints the number of executions. On
# a failure it copies the input to the package's testdata and exits.
havoc() {
	go test -c -o "$run/test" "$1"
	touch "$run/begin"
	if ! (cd "$run" && ./test -test.run "^$2\$" -havoc "$((seconds * 1000 / inputs + 1))ms") >"$run/out" 2>&1; then
		cat "$run/out" >&2
		mkdir -p "$dir/testdata/fuzz/$2"
		find "$run/testdata/fuzz/$2" -type f -newer "$run/begin" -exec cp -v -t "$dir/testdata/fuzz/$2" {} + >&2
		exit 1
	fi
	grep '^havoc:' "$run/out"
}

for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "${@:-./...}"); do
	for fuzzer in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		printf '== %s %s\n' "$package" "$fuzzer"
		# Minimize new inputs only briefly, because minimizing finds no new inputs.
		go test -run '^$' -fuzz "^$fuzzer\$" -fuzztime "$time" -fuzzminimizetime 100x "$package" >"$tmp/log" ||
			{ cat "$tmp/log"; exit 1; }
		grep 'execs:' "$tmp/log" | tail -n 1 >>"$tmp/all"
		tail -n 1 "$tmp/all"
		corpus "$package" "$fuzzer"
		coverage "$package" "$fuzzer"
		havoc "$package" "$fuzzer" >>"$tmp/all"
		tail -n 1 "$tmp/all"
		rm -rf "$run"
	done
done
sed -n 's/.*execs: \([0-9]*\).*/\1/p; s/^havoc: [^ ]* \([0-9]*\) executions.*/\1/p' "$tmp/all" |
	awk '{n += $1} END {printf "%d executions without a finding\n", n}'
