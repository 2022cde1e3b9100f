#!/bin/sh
# fuzz.sh runs every fuzzer of the repository in turn. Each runs for the given time with -fuzz of go test, which searches
# for inputs with new coverage, then for the same time from all inputs found, many times faster (package
# engine/testkit/havoc). It prints the coverage of each fuzzer, and at the end the number of executions:
#	scripts/fuzz.sh 30s [PACKAGE...]
# Findings are written below the package's testdata/fuzz; go test repeats them from then on.
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

# covers prints the packages that count for a fuzzer's coverage: those that process its input.
covers() {
	case $2 in
	FuzzFrames) echo "$module/tcp/...,$module/mpa/...,$module/ddp/...,$module/engine/stack,$module/engine/iwarp" ;;
	FuzzSession) echo "$module/engine/daemon,$module/engine/daemon/control" ;;
	*) echo "$1" ;;
	esac
}

# corpus makes $run a copy of the package's directory, with the fuzzer's seeds and the inputs that it has found, which
# go test keeps in its cache.
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

# coverage runs a fuzzer once more over $run's inputs.
coverage() {
	go test -c -cover -coverpkg "$(covers "$1" "$2")" -o "$run/test" "$1" 2>"$run/warnings"
	(cd "$run" && ./test -test.v -test.run "^$2\$") >"$run/out"
	inputs=$(grep -c "^ *--- PASS: $2/" "$run/out")
	grep '^coverage:' "$run/out"
}

# havoc changes $run's inputs.
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
		# Minimize new inputs only briefly: that time finds no new ones.
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
