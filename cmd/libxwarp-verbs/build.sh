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
# An object without code asks for an executable stack unless told otherwise.
hard=-Wl,-z,noexecstack,-z,relro,-z,now,-z,text
case $out in /*) ;; *) out=$OLDPWD/$out ;; esac
"$cc" -std=c11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared $hard -ffile-prefix-map="$PWD"=. \
	-Wl,-soname,libxwarp-verbs.so -Wl,--version-script=exports.map "$@" *.c -o "$out" -pthread -ldl
"$cc" -shared -nostdlib $hard -Wl,-soname,libxwarp-dlopen.so -Wl,--no-as-needed "$out" -libverbs -lrdmacm \
	-o "$(dirname "$out")/libxwarp-dlopen.so"
