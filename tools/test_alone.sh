#!/usr/bin/env bash
# Each package's tests in an environment that holds only that package, what it declares, and its test group.
# A shared environment would hide a leaked import; this one does not. Arguments: names of packages (default: all).
# With --one-a-file first, one test of each file, also in processes that tests start, after an import of every module: CI, where the same tests
# run whole in the shared environment. What an environment lacks shows at an import, of a module or of a test file: import contracts see siblings'.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/only_package.sh
[ "${1:-}" != --one-a-file ] || { export PYTEST_ADDOPTS="${PYTEST_ADDOPTS:-} --one-a-file"; shift; }
import_all_and_test='
import importlib, importlib.metadata, pkgutil, re, sys
name, *arguments = sys.argv[1:]
package = importlib.import_module(name)
declared = importlib.metadata.requires(name) or []
extras = {re.match(r"[\w-]+", text)[0] for text in declared if "extra ==" in text}  # what it uses only where it is there
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in extras:
                raise
import pytest
sys.exit(pytest.main(arguments))
'
packages=("$@")
# First those without torch, which would have to go and come again.
[ ${#packages[@]} -gt 0 ] || packages=(core vm frame guards report store torch fx aot inductor cudagraphs session backends torchjit)
for name in "${packages[@]}"; do
  package="torchjit-$name"
  [ "$name" != torchjit ] || package=torchjit
  echo "-- $package"
  only_package "$name"
  PATH="$only/bin:$PATH" "$only/bin/python" -P -c "$import_all_and_test" "${package//-/_}" -q -p no:cacheprovider "packages/$package"
done
