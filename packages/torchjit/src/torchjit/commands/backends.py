"""The backends that `torchjit.compile(backend=...)` takes, and what the others need."""

from __future__ import annotations

import argparse

from rich.table import Table

from torchjit.backends import describe_backends
from torchjit.commands.console import print_table

__all__ = ["HELP", "add_arguments", "run"]

HELP = "the backends, and what those that cannot be used now need"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""


def run(options: argparse.Namespace) -> int:
    """Print a table, always with success."""
    table = Table("backend", "usable", "what it is")
    for name, usable, text in describe_backends():
        table.add_row(name, "yes" if usable else "no", text)
    print_table(table)
    return 0
