"""Where commands print."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

__all__ = ["console", "print_table"]

WIDTH = 140  # of a log or pipe: lines of a table stay whole


def console() -> Console:
    """Standard output, as wide as the terminal."""
    made = Console(highlight=False)
    if not made.is_terminal:
        made.width = WIDTH
    return made


def print_table(table: Table) -> None:
    """Print a table; what stands in it is no markup."""
    console().print(table)
