#!/usr/bin/env bash
# mypy --strict on every package's sources and tests. In one run, which reads what they share, torch above all, once; that packages
# do not see each other is for import contracts and for test_alone.sh. The conftest.py, of one name, come one at a time.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
mapfile -t sources < <(find packages/*/src -mindepth 1 -maxdepth 1 ! -type l ! -name '*.egg-info' ! -name __pycache__) # no links
mypy --strict "${sources[@]}" packages/*/tests --exclude 'conftest\.py$' || failed=1
for conftest in packages/*/tests/conftest.py; do
  mypy --strict "$conftest" || failed=1
done
exit $failed
