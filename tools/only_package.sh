# Sourced by the scripts that test packages in an environment of their own; the working directory is the project's.
#
# only_package NAME [options of `uv sync`]: an environment that holds the package torchjit-NAME (not editable), what it declares, its test group, and
# nothing else. `$only` is its folder. Every package's is in the same place: what Python compiles of torch's modules (10 s each time) serves all of them.
unset VIRTUAL_ENV
only=$(mktemp -d)/environment
trap 'rm -rf "$(dirname "$only")"' EXIT
declare -A only_built=()

only_package() {
  local package=torchjit-$1 each anew=()
  [ "$1" != torchjit ] || package=torchjit # the one that composes the others
  for each in packages/* tools/torchjit-testing; do
    each=$(basename "$each")
    # Once anew: uv keeps what it built of a package until its pyproject.toml changes, whatever was edited since.
    [ -n "${only_built[$each]:-}" ] || anew+=(--reinstall-package "$each")
  done
  UV_PROJECT_ENVIRONMENT=$only uv sync -q --exact --no-editable --no-default-groups "${anew[@]}" --package "$package" --group test "${@:2}"
  for each in "$only"/lib/python*/site-packages/torchjit*.dist-info; do
    each=$(basename "$each")
    each=${each%%-*}
    only_built[${each//_/-}]=yes
  done
}
