#!/bin/sh
# build.sh makes the deb and the rpm in build/: static binaries that are the same byte for byte wherever they are built
# from the same commit, the library of xwarp run, for which there must be gcc and rdma-core's headers, manual pages and
# completions from the commands themselves, the list of modules in the binaries, and their licences, which it checks.
#
#   [GOARCH=arm64] [FORMATS="deb rpm"] [MAINTAINER="NAME <ADDRESS>"] scripts/package/build.sh [VERSION [DIRECTORY]]
set -eu
cd "$(dirname "$0")/../.."
VERSION=${1:-0.0.$(git rev-list --count HEAD)}
ARCH=$(go env GOARCH)
unset GOARCH # what is run here is for this machine
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
# Whoever builds a package answers for it.
MAINTAINER=${MAINTAINER:-$(git log -1 --format='%an <%ae>')}
export VERSION ARCH MAINTAINER SOURCE_DATE_EPOCH CGO_ENABLED=0
# The newest nfpm whose modules are all on the module proxy.
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.41.1
target=${2:-build}
OUT=$target/package
export OUT
rm -rf "$OUT"
mkdir -p "$OUT"
stamp="-X xwarp/engine/version.stamped=$VERSION -X xwarp/engine/version.stampedRevision=$(git rev-parse HEAD)"
# binaries PROCESSOR DIRECTORY
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
(cd "$target" && sha256sum xwarp[_-]"$VERSION"[_-]*)
