#!/usr/bin/env bash
# mypy --strict on every package's sources and tests, one package at a time (as it is installed: on its own).
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
for package in packages/*; do
  echo "-- $package"
  targets=("$package/src")
  [ -d "$package/tests" ] && targets+=("$package/tests")
  mypy --strict "${targets[@]}" || failed=1
done
exit $failed
