#!/bin/sh
# image.sh builds an OCI image in build/, with static binaries and the licences of their modules, and runs the binaries
# from the image once. The image is reproducible. image.sh needs no registry and no container daemon, but root or sudo
# to mount layers. It also writes the Kubernetes manifests, with the image's name, into the same directory. To use the
# image: podman load -i build/xwarp-VERSION.oci.tar
#
#   scripts/package/image.sh [VERSION [DIRECTORY]]
set -eu
cd "$(dirname "$0")/../.."
command -v buildah >/dev/null || { echo "image: error: buildah is missing: apt-get install --no-install-recommends buildah" >&2; exit 1; }
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
VERSION=${1:-0.0.$(git rev-list --count HEAD)}
target=${2:-build}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export CGO_ENABLED=0
out=$target/image
$as_root rm -rf --one-file-system "$out"
mkdir -p "$out/context"
stamp="-X xwarp/engine/version.stamped=$VERSION -X xwarp/engine/version.stampedRevision=$(git rev-parse HEAD)"
go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= $stamp" -o "$out/context/" ./cmd/xwarp ./cmd/xwarpd ./cmd/xwarp-device-plugin
export VERSION
go run ./scripts/package/notices "$out/context" "$out/context/xwarp" "$out/context/xwarpd" "$out/context/xwarp-device-plugin"

# Layers go to a separate store, so that the images of this machine do not change.
store=$(mktemp -d)
b() { $as_root buildah --storage-driver vfs --root "$store/root" --runroot "$store/run" "$@"; }
trap 'b rm --all >/dev/null 2>&1 || true; $as_root rm -rf --one-file-system "$store"' EXIT
b build --quiet --isolation chroot --timestamp "$SOURCE_DATE_EPOCH" -f scripts/package/Containerfile -t "xwarp:$VERSION" "$out/context" >/dev/null
container=$(b from "xwarp:$VERSION")
b run --isolation chroot "$container" -- /usr/bin/xwarp version
help=$(b run --isolation chroot "$container" -- /usr/bin/xwarpd --help 2>&1)
echo "$help" | head -n 1
help=$(b run --isolation chroot "$container" -- /usr/bin/xwarp-device-plugin --help 2>&1)
echo "$help" | head -n 1

b push --quiet "xwarp:$VERSION" "oci:$out/oci:xwarp:$VERSION"
archive=$target/xwarp-$VERSION.oci.tar
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -C "$out/oci" -cf "$archive" .
$as_root rm -rf --one-file-system "$out"
scripts/package/manifests.sh "$VERSION" "$target"
(cd "$target" && sha256sum "xwarp-$VERSION.oci.tar")
