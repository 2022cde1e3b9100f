#!/bin/sh
# reach.sh lists the functions of the engine's core that are run neither by the simulator's random scenarios, nor by its
# fuzzer's recorded conversations, nor by random loads on kernel sockets. It fails if one of these functions is not in
# engine/testkit/sim/testdata/unreached.txt, which gives the reasons, or if they are more than 5 % of all functions.
set -eu
cd "$(dirname "$0")/.."
module=$(go list -m)
profile=$(mktemp)
trap 'rm -f "$profile" "$profile".*' EXIT
core="$module/tcp/...,$module/mpa/...,$module/ddp/...,$module/engine/stack"
go test ./engine/testkit/sim -count=1 -timeout 2h -seeds 1000 \
	-run '^(TestSoak|TestWideSoak|TestBlocks|TestReplay|FuzzFrames)$' -coverpkg "$core" -coverprofile "$profile"
go test ./engine/xdp -count=1 -run '^TestKernelStress$' -coverpkg "$core" -coverprofile "$profile.kernel"
grep -v '^mode:' "$profile.kernel" >>"$profile"
go tool cover -func "$profile" | awk -v module="$module/" '
	FILENAME == ARGV[1] { if ($0 !~ /^#/ && NF) known[$1 " " $2] = 1; next }
	$1 == "total:" { next }
	{
		split($1, at, ":"); sub(module, "", at[1])
		package = at[1]; sub(/\/[^\/]*$/, "", package)
		all++
		if ($NF != "0.0%") next
		missing++
		if (!((package " " $2) in known)) { new++; print at[1] ": " $2 " is not reached, and nothing says why" }
	}
	END {
		printf "%d of %d functions are reached (%.1f %%)\n", all - missing, all, 100 * (all - missing) / all
		exit new > 0 || 100 * missing > 5 * all
	}' engine/testkit/sim/testdata/unreached.txt -
