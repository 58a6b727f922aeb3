"""What the tools that generate pages of the documentation have in common."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["DOCS", "table", "write_or_check"]

DOCS = Path(__file__).parent.parent / "docs"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; bars in cells do not end them."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def write_or_check(page: Path, text: str) -> int:
    """Write a page, or with `--check` on the command line only compare it; returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        page.write_text(text)
        return 0
    if page.exists() and page.read_text() == text:
        return 0
    print(f"docs/{page.name} is not current: run {sys.argv[0]}", file=sys.stderr)
    return 1
