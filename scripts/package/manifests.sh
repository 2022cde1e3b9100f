#!/bin/sh
# manifests.sh VERSION DIRECTORY writes the Kubernetes manifests to DIRECTORY, with the image name that image.sh uses for
# VERSION.
set -eu
cd "$(dirname "$0")/../.."
for f in daemonset pod; do
	sed "s|xwarp:VERSION\$|xwarp:$1|" "scripts/package/$f.yaml" >"$2/$f.yaml"
done
