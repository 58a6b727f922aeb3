# Every target is one `uv run` line; `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help demo test lint format types contracts alone interpreters slow bench docs ci

help: ## list the targets
	@uv run --no-sync python -c "import re; [print(f'{m[1]:14} {m[2]}') for m in re.finditer(r'^([a-z-]+):.*?## (.+)$$', open('Makefile').read(), re.M)]"

demo: ## run the main job on resnet18 and a transformer
	uv run torchjit demo

test: ## all tests, or with P=fx those of one package; both on two cores
	uv run pytest $(if $(P),-q -n 2 --dist loadfile --durations=5 packages/torchjit-$(P))

lint: ## ruff
	uv run ruff check .

format: ## let ruff write the formatting
	uv run ruff format .

types: ## mypy --strict, package by package
	uv run tools/check_types.sh

contracts: ## who may import whom
	uv run lint-imports

alone: ## each package's tests with only that package installed
	uv run tools/test_alone.sh

interpreters: ## VM, frame and guards on every supported Python found
	uv run tools/test_interpreters.sh

slow: ## the sweeps that CI leaves out
	uv run pytest -m slow

bench: ## the figures of docs/benchmarks.md
	uv run python benchmarks/run.py

docs: ## the documentation as a site, links checked
	tools/build_docs.sh

ci: ## what must pass before a change lands
	uv run bash .ci/run
