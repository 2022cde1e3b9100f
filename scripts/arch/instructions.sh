#!/bin/sh
# instructions.sh PACKAGE BENCHMARK... counts how many arm64 instructions one iteration of a benchmark executes in the
# functions of this module's checksums and in the functions that these call. It runs the benchmark with qemu-user and
# takes the difference between 200 and 100 iterations. It does not measure time.
#
#   scripts/arch/instructions.sh ./tcp/checksum BenchmarkPass/copy/1448 BenchmarkPass/copy/8948
set -eu
cd "$(dirname "$0")/../.."
scripts/setup.sh arch
package=$1
shift
program=$(mktemp)
trap 'rm -f "$program"' EXIT
GOARCH=arm64 go test -c -o "$program" "$package"
functions=$(go tool nm -size "$program" | awk '
	$3 ~ /[Tt]/ && $4 ~ /^(xwarp\/tcp\/(checksum|wire)\.|hash\/crc32\.|runtime\.memmove)/ { printf "%s0x%s+%s", sep, $1, $2; sep = "," }')
single=-one-insn-per-tb
qemu-aarch64 -help | grep -q -e "$single" || single=-singlestep # before QEMU 8.1

# count BENCHMARK ITERATIONS prints the number of executed instructions: the log of qemu has one line for each.
count() {
	pattern=^$(printf '%s' "$1" | sed 's|/|$/^|g')\$
	GOMAXPROCS=1 GOGC=off qemu-aarch64 "$single" -d exec,nochain -dfilter "$functions" -D /dev/stdout \
		"$program" -test.run '^$' -test.bench "$pattern" -test.benchtime "$2x" | grep -c '^Trace'
}

for benchmark; do
	few=$(count "$benchmark" 100)
	many=$(count "$benchmark" 200)
	printf '%s %d\n' "$benchmark" $(((many - few) / 100))
done
