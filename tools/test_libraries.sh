#!/usr/bin/env bash
# The programs of integration_tests/libraries, with the libraries from PyPI in an environment that uv makes beside the project's.
# Arguments go to pytest: `tools/test_libraries.sh -k lightning`.
set -euo pipefail
cd "$(dirname "$0")/.."
with=()
for library in accelerate datasets diffusers keras lightning peft sentence-transformers timm torch_geometric torchao transformers; do
  with+=(--with "$library")
done
export HF_HUB_OFFLINE=1 KERAS_BACKEND=torch # nothing here needs the network
uv run "${with[@]}" python -m pytest -q -m slow integration_tests/libraries "$@"
