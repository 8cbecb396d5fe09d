#!/bin/sh
# Renders a kustomization and publishes the result for Flux: publish.sh DIR ADDRESS
set -eu
rendered=$(mktemp -d)
trap 'rm -r "$rendered"' EXIT
kiln build --offline "$1" > "$rendered/all.yaml"
commit=$(git rev-parse HEAD)
flux push artifact "$2" --path "$rendered" --source "$(git remote get-url origin)" \
  --revision "${BRANCH:-main}@sha1:$commit"
