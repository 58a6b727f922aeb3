#!/usr/bin/env bash
# Each package's tests in an environment that holds only that package, what it declares, and its test group.
# A shared environment would hide a leaked import; this one does not. Arguments: names of packages (default: all).
# With --few-parameters first, one case of each parametrised test, also in processes that tests start: CI, where the same tests run whole in the shared environment.
set -euo pipefail
cd "$(dirname "$0")/.."
unset VIRTUAL_ENV
built=() # anew: uv keeps what it built of a package until its pyproject.toml changes, whatever was edited since
for package in packages/* tools/torchjit-testing; do
  built+=(--reinstall-package "$(basename "$package")")
done
[ "${1:-}" != --few-parameters ] || { export PYTEST_ADDOPTS="${PYTEST_ADDOPTS:-} --few-parameters"; shift; }
packages=("$@")
[ ${#packages[@]} -gt 0 ] || packages=(core torch vm frame guards fx aot inductor cudagraphs report session backends torchjit)
for name in "${packages[@]}"; do
  package="torchjit-$name"
  [ "$name" != torchjit ] || package=torchjit # the one that composes the others
  echo "-- $package"
  uv run -q --isolated --exact --no-editable --no-default-groups "${built[@]}" --package "$package" --group test \
    pytest -q -p no:cacheprovider "packages/$package"
done
