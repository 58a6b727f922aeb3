#!/usr/bin/env bash
# Each package's tests in an environment that holds only that package, what it declares, and its test group.
# A shared environment would hide a leaked import; this one does not. Arguments: names of packages (default: all).
# With --one-a-file first, one test of each file, also in processes that tests start, after an import of every module: CI, where the same tests
# run whole in the shared environment. What an environment lacks shows at an import, of a module or of a test file: import contracts see siblings'.
set -euo pipefail
cd "$(dirname "$0")/.."
unset VIRTUAL_ENV
built=() # anew: uv keeps what it built of a package until its pyproject.toml changes, whatever was edited since
for package in packages/* tools/torchjit-testing; do
  built+=(--reinstall-package "$(basename "$package")")
done
[ "${1:-}" != --one-a-file ] || { export PYTEST_ADDOPTS="${PYTEST_ADDOPTS:-} --one-a-file"; shift; }
import_all='
import importlib, importlib.metadata, pkgutil, re, sys
package = importlib.import_module(sys.argv[1])
declared = importlib.metadata.requires(sys.argv[1]) or []
extras = {re.match(r"[\w-]+", text)[0] for text in declared if "extra ==" in text}  # what it uses only where it is there
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in extras:
                raise
'
packages=("$@")
[ ${#packages[@]} -gt 0 ] || packages=(core torch vm frame guards fx aot inductor cudagraphs report session backends torchjit)
for name in "${packages[@]}"; do
  package="torchjit-$name"
  [ "$name" != torchjit ] || package=torchjit # the one that composes the others
  echo "-- $package"
  uv run -q --isolated --exact --no-editable --no-default-groups "${built[@]}" --package "$package" --group test \
    bash -c 'python -c "$0" "$1" && pytest -q -p no:cacheprovider "$2"' "$import_all" "${package//-/_}" "packages/$package"
done
