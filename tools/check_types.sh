#!/usr/bin/env bash
# mypy --strict on every package's sources and tests, and on a program with wrong lines: those have to be told. In one run, which reads what they share, torch above all, once; that packages
# do not see each other is for import contracts and for test_alone.sh. The conftest.py, of one name, come one at a time.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
mapfile -t sources < <(find packages/*/src -mindepth 1 -maxdepth 1 ! -type l ! -name '*.egg-info' ! -name __pycache__) # no links
{ mypy --strict "${sources[@]}" packages/*/tests integration_tests/typed_program.py --exclude 'conftest\.py$' || [ $? = 1 ]; } |
  python tools/wrong_lines.py integration_tests/typed_program.py || failed=1
for conftest in packages/*/tests/conftest.py; do
  mypy --strict "$conftest" || failed=1
done
exit $failed
