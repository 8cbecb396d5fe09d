#!/bin/sh
# A generator as a KRM function: it gets a ResourceList on standard input and prints the objects that it makes.
# Any language will do. What is written to standard error is shown; an exit code other than 0 fails the build.
set -eu
list=$(cat)

# The configuration is under functionConfig. This reads the value of a line such as `  team: checkout`.
value() {
  printf '%s\n' "$list" | sed -n "s/^ *$1: *//p" | head -n 1
}

team=$(value team)
if [ -z "$team" ]; then
  echo "settings.yaml must have spec.team" >&2
  exit 1
fi

cat <<YAML
apiVersion: v1
kind: ConfigMap
metadata:
  name: NAME
data:
  team: $team
YAML
