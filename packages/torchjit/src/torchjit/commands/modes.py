"""The modes of `torchjit.compile(mode=...)` and the options that each stands for."""

from __future__ import annotations

import argparse

from rich.table import Table

from torchjit.commands.console import print_table
from torchjit.options import list_mode_options

__all__ = ["HELP", "add_arguments", "run"]

HELP = "the modes, and the options that each stands for"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""


def run(options: argparse.Namespace) -> int:
    """Print a table, always with success."""
    table = Table("mode", "options")
    for name, chosen in list_mode_options().items():
        table.add_row(
            name, ", ".join(f"{option}={value}" for option, value in chosen.items()) or "all at their defaults"
        )
    print_table(table)
    return 0
