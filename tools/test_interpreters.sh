#!/usr/bin/env bash
# The suites that depend on CPython's internals, on every supported interpreter that uv or pyenv knows.
# With --others not on the one that the project's own environment has: there the other suites have run them.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/only_package.sh
own=""
[ "${1:-}" = --others ] && own=$(uv run -q python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
found=()
for version in 3.11 3.12 3.13; do
  if [ "$version" = "$own" ]; then
    found+=("$version")
    continue
  fi
  python=""
  if command -v pyenv >/dev/null; then
    prefix=$(pyenv prefix "$(pyenv versions --bare | grep -E "^${version//./\\.}\.[0-9]+$" | tail -1)" 2>/dev/null || true)
    [ -n "$prefix" ] && [ -x "$prefix/bin/python3" ] && python="$prefix/bin/python3"
  fi
  [ -n "$python" ] || python=$(uv python find --no-python-downloads "$version" 2>/dev/null || true)
  if [ -z "$python" ]; then
    echo "-- Python $version: not found, left out"
    continue
  fi
  found+=("$version")
  for name in vm frame guards; do
    echo "-- torchjit-$name on $("$python" --version)"
    extra=() ignored=()
    if [ "$name" = guards ]; then
      extra=(--extra torch) # tensors are read raw: that depends on the interpreter too
      for file in costs docs properties readme shapes; do # arithmetic of sizes and texts do not
        ignored+=(--ignore "packages/torchjit-guards/tests/test_guards_$file.py")
      done
    fi
    only_package "$name" --python "$python" "${extra[@]}"
    PATH="$only/bin:$PATH" "$only/bin/python" -P -m pytest -q -p no:cacheprovider "${ignored[@]}" "packages/torchjit-$name"
  done
done
[ ${#found[@]} -gt 0 ] || { echo "no supported interpreter found" >&2; exit 1; }
