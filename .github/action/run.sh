#!/usr/bin/env bash
# Runs the parts of the Action that have an input. All of them run; the step fails if one did.
set -uo pipefail

failed=0
strict=()
if [ "${KILN_STRICT:-true}" = true ]; then
  strict=(--strict)
fi

# Words of an input, without being read as patterns.
words() {
  set -f
  # shellcheck disable=SC2086
  printf '%s\n' $1
  set +f
}

part() {
  local title=$1
  shift
  echo "::group::kiln $title"
  "$KILN" "$@" || failed=1
  echo "::endgroup::"
}

if [ -n "${KILN_CHECK:-}" ]; then
  mapfile -t paths < <(words "$KILN_CHECK")
  part check check "${strict[@]}" --format github "${paths[@]}"
  if [ -n "${KILN_SARIF:-}" ] && [ -z "${KILN_APPLY:-}" ]; then
    "$KILN" check --format sarif "${paths[@]}" > "$KILN_SARIF" 2> /dev/null || true
  fi
fi
if [ -n "${KILN_FMT:-}" ]; then
  mapfile -t paths < <(words "$KILN_FMT")
  part fmt fmt --check --keep-comments --diff "${paths[@]}"
fi
if [ -n "${KILN_TEST:-}" ]; then
  mapfile -t paths < <(words "$KILN_TEST")
  part test test --require-tests --format github "${paths[@]}"
fi
if [ -n "${KILN_BUILD:-}" ]; then
  mapfile -t paths < <(words "$KILN_BUILD")
  for path in "${paths[@]}"; do
    part "build $path" build --offline --format github "$path"
  done
fi
if [ -n "${KILN_APPLY:-}" ]; then
  mapfile -t paths < <(words "$KILN_APPLY")
  part apply apply "${strict[@]}" --format github "${paths[@]}" --resource "${KILN_RESOURCES:-}"
  if [ -n "${KILN_SARIF:-}" ]; then
    "$KILN" apply --format sarif "${paths[@]}" --resource "${KILN_RESOURCES:-}" > "$KILN_SARIF" 2> /dev/null || true
  fi
fi
exit "$failed"
