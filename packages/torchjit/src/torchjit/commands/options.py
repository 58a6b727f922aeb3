"""The options of `torchjit.compile(options={...})` with their defaults and meanings."""

from __future__ import annotations

import argparse

from rich.table import Table

from torchjit.commands.console import print_table
from torchjit.options import describe_options

__all__ = ["HELP", "add_arguments", "run"]

HELP = "the options with their defaults and meanings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""


def run(options: argparse.Namespace) -> int:
    """Print a table, always with success."""
    table = Table("option", "takes", "default", "meaning", show_lines=True)
    for each in describe_options():
        table.add_row(each.name, each.takes, each.default, each.meaning)
    print_table(table)
    return 0
