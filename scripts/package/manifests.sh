#!/bin/sh
# manifests.sh VERSION DIRECTORY writes the manifests for Kubernetes there, with the name that image.sh gives the image of that version.
set -eu
cd "$(dirname "$0")/../.."
for f in daemonset pod; do
	sed "s|xwarp:VERSION\$|xwarp:$1|" "scripts/package/$f.yaml" >"$2/$f.yaml"
done
