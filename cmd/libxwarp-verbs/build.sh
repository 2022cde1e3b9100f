#!/bin/sh
# build.sh builds the library for unmodified RDMA programs: build.sh FILE [COMPILER FLAGS ...]
# It puts libxwarp-dlopen.so next to FILE, for programs that dlopen libibverbs: see lib/dlopen.c.
set -eu
out=$1
export LC_ALL=C # stable order of the files
shift
cd "$(dirname "$0")/lib"
cc=${CC:-gcc}
if ! echo '#include <rdma/rdma_cma.h>' | "$cc" -E - >/dev/null 2>&1; then
	echo "build.sh: there is no $cc, or no rdma/rdma_cma.h and infiniband/verbs.h: apt install gcc libibverbs-dev librdmacm-dev" >&2
	exit 1
fi
case $out in /*) ;; *) out=$OLDPWD/$out ;; esac
versions=$(mktemp)
trap 'rm -f "$versions"' EXIT
# Symbols have the same versions as in the libraries of rdma-core, since programs call dlvsym.
for library in libibverbs.so librdmacm.so; do
	nm -D --defined-only "$("$cc" -print-file-name=$library)" |
		sed -n 's/.* \([a-z0-9_]*\)@@\(\(IBVERBS\|RDMACM\)_[0-9.]*\)$/\2 \1/p'
done | sort | awk '
	$1 != version { if (version) print "};"; version = $1; print version " { global:" }
	{ print "\t" $2 ";" }
	END { if (version) print "};" }' >"$versions"
"$cc" -std=c11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -ffile-prefix-map="$PWD"=. \
	-Wl,-soname,libxwarp-verbs.so -Wl,--version-script="$versions" "$@" *.c -o "$out" -pthread -ldl
"$cc" -shared -nostdlib -Wl,-soname,libxwarp-dlopen.so -Wl,--no-as-needed "$out" -libverbs -lrdmacm \
	-o "$(dirname "$out")/libxwarp-dlopen.so"
