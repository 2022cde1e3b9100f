#!/bin/sh
# build.sh builds the deb and rpm packages and a tarball in build/. They contain static, reproducible binaries; the
# library of xwarp run, whose build needs gcc and the headers of rdma-core; manual pages and completions, generated from
# the commands; and the list of modules in the binaries with their licences, which build.sh checks.
#
#   [GOARCH=arm64] [FORMATS="deb rpm"] [MAINTAINER="NAME <ADDRESS>"] scripts/package/build.sh [VERSION [DIRECTORY]]
set -eu
cd "$(dirname "$0")/../.."
VERSION=${1:-0.0.$(git rev-list --count HEAD)}
ARCH=$(go env GOARCH)
unset GOARCH # helper programs are built for this machine, on which they run
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
# A distributor of the packages sets MAINTAINER, with an address.
MAINTAINER=${MAINTAINER:-xwarp project <xwarp@localhost>}
export VERSION ARCH MAINTAINER SOURCE_DATE_EPOCH CGO_ENABLED=0
# This is the newest nfpm whose modules are all on the Go module proxy.
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.41.1
target=${2:-build}
OUT=$target/package
export OUT
rm -rf "$OUT"
mkdir -p "$OUT"
stamp="-X xwarp/engine/version.stamped=$VERSION -X xwarp/engine/version.stampedRevision=$(git rev-parse HEAD)"
# binaries PROCESSOR DIRECTORY builds xwarp and xwarpd for a processor into a directory.
binaries() {
	mkdir -p "$2"
	GOARCH=$1 go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= $stamp" -o "$2/" ./cmd/xwarp ./cmd/xwarpd
}
binaries "$ARCH" "$OUT"
here=$OUT
if [ "$ARCH" != "$(go env GOHOSTARCH)" ]; then
	here=$OUT/here
	binaries "$(go env GOHOSTARCH)" "$here"
fi
"$here/xwarp" config default >"$OUT/xwarp.toml"
go run ./scripts/package/manual "$here/xwarp" "$here/xwarpd" "$OUT"
scripts/package/manifests.sh "$VERSION" "$OUT"
mkdir "$OUT/lib"
if [ "$ARCH" = "$(go env GOHOSTARCH)" ] || [ -n "${CC:-}" ]; then
	cmd/libxwarp-verbs/build.sh "$OUT/lib/libxwarp-verbs.so" -s
else
	echo "build.sh: CC names no compiler for $ARCH: these packages have no library for xwarp run" >&2
fi
go run ./scripts/package/notices "$OUT" "$OUT/xwarp" "$OUT/xwarpd"
for f in ${FORMATS:-deb rpm}; do
	go run "$nfpm" package --config scripts/package/nfpm.yaml --packager $f --target "$target/"
done
# The tarball has the files that xwarp run needs, for hosts and CI jobs without a package manager or root. They may be
# in any directory.
rm -rf "$OUT/tar" && mkdir -p "$OUT/tar/xwarp/bin" "$OUT/tar/xwarp/lib"
cp "$OUT/xwarp" "$OUT/xwarpd" "$OUT/tar/xwarp/bin/"
cp -r "$OUT/lib" "$OUT/tar/xwarp/lib/xwarp"
cp LICENSE "$OUT/copyright" "$OUT/tar/xwarp/"
tar -C "$OUT/tar" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=a+rX,u+w,go-w \
	-cf - xwarp | gzip -9n >"$target/xwarp-$VERSION-linux-$ARCH.tar.gz"
(cd "$target" && sha256sum xwarp[_-]"$VERSION"[_-]*)
