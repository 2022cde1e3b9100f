#!/bin/sh
# build.sh makes the library that unmodified RDMA programs are run with: build.sh FILE [FLAGS OF THE COMPILER ...]
set -eu
out=$1
export LC_ALL=C # the order of the files
shift
cd "$(dirname "$0")/lib"
cc=${CC:-gcc}
if ! echo '#include <rdma/rdma_cma.h>' | "$cc" -E - >/dev/null 2>&1; then
	echo "build.sh: there is no $cc, or no rdma/rdma_cma.h and infiniband/verbs.h: apt install gcc libibverbs-dev librdmacm-dev" >&2
	exit 1
fi
case $out in /*) ;; *) out=$OLDPWD/$out ;; esac
exec "$cc" -std=c11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -ffile-prefix-map="$PWD"=. \
	-Wl,-soname,libxwarp-verbs.so "$@" *.c -o "$out" -pthread
