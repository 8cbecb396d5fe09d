#!/usr/bin/env bash
# Finds the kiln of the Action: the one that is given, or that of a release, with its checksum compared.
set -euo pipefail

if [ -n "${KILN_BINARY:-}" ]; then
  kiln=$KILN_BINARY
else
  version=${KILN_VERSION:-}
  if [ -z "$version" ]; then
    # The Action is used as kiln@v0.2.0: that release is meant.
    version=${KILN_REF#v}
  fi
  if ! [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]]; then
    echo "::error title=kiln::set version to a release such as 0.2.0, or kiln to the path of a binary"
    exit 2
  fi
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) system=linux-amd64 ;;
    Linux-aarch64 | Linux-arm64) system=linux-arm64 ;;
    *)
      echo "::error title=kiln::there is no release file for $(uname -s) $(uname -m); set kiln to the path of a binary"
      exit 2
      ;;
  esac
  directory=${RUNNER_TEMP:-/tmp}/kiln-$version
  file=kiln-$version-$system.tar.gz
  mkdir -p "$directory"
  for name in "$file" SHA256SUMS; do
    curl --fail --silent --show-error --location --retry 3 --output "$directory/$name" \
      "$KILN_RELEASES/v$version/$name"
  done
  (cd "$directory" && grep " $file\$" SHA256SUMS | sha256sum --check --quiet)
  tar --extract --gzip --file "$directory/$file" --directory "$directory"
  kiln=$(find "$directory" -type f -name kiln -perm -u+x | head -n 1)
  dirname "$kiln" >> "$GITHUB_PATH"
fi
"$kiln" version
echo "kiln=$kiln" >> "$GITHUB_OUTPUT"
