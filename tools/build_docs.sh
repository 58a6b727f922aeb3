#!/usr/bin/env bash
# Builds the documentation into site/ and fails where a link, an anchor or the navigation is wrong. mkdocs comes from the
# dependency group `docs`, in an environment of its own. `tools/build_docs.sh serve` shows the site while you write.
set -euo pipefail
cd "$(dirname "$0")/.."
export NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true
exec uv run --isolated --locked --only-group docs mkdocs "${1:-build}" --strict
