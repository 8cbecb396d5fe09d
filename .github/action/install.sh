#!/usr/bin/env bash
# Finds the kiln of the Action: the one that is given, or that of a release, with its checksum compared.
set -euo pipefail

# Ends the step with an annotation.
fail() {
  echo "::error title=kiln::$1"
  exit 2
}

if [ -n "${KILN_BINARY:-}" ]; then
  kiln=$KILN_BINARY
else
  version=${KILN_VERSION:-}
  if [ -z "$version" ]; then
    # The Action is used as kiln@v0.2.0: that release is meant.
    version=${KILN_REF#v}
  fi
  if ! [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]]; then
    fail "set version to a release such as 0.2.0, or kiln to the path of a binary"
  fi
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) system=linux-amd64 ;;
    Linux-aarch64 | Linux-arm64) system=linux-arm64 ;;
    *) fail "there is no release file for $(uname -s) $(uname -m); set kiln to the path of a binary" ;;
  esac
  directory=${RUNNER_TEMP:-/tmp}/kiln-$version
  file=kiln-$version-$system.tar.gz
  mkdir -p "$directory"
  for name in "$file" SHA256SUMS; do
    curl --fail --silent --show-error --location --retry 3 --output "$directory/$name" \
      "$KILN_RELEASES/v$version/$name" ||
      fail "cannot download $KILN_RELEASES/v$version/$name; set version to a release that has it"
  done
  # The name is compared as a whole: a pattern would take others for it.
  (cd "$directory" && awk -v file="$file" '$2 == file' SHA256SUMS | sha256sum --check --quiet --status) ||
    fail "$file does not have the checksum in SHA256SUMS of release $version; it is not used"
  tar --extract --gzip --file "$directory/$file" --directory "$directory"
  kiln=$(find "$directory" -type f -name kiln -perm -u+x | head -n 1)
  dirname "$kiln" >> "$GITHUB_PATH"
fi
"$kiln" version
echo "kiln=$kiln" >> "$GITHUB_OUTPUT"
