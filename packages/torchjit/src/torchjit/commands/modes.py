"""The modes of `torchjit.compile(mode=...)` and the options that each stands for."""

from __future__ import annotations

import argparse

from rich.table import Table

from torchjit.commands.console import print_table
from torchjit.options import describe_modes

__all__ = ["HELP", "add_arguments", "run"]

HELP = "the modes, and the options that each stands for"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""


def run(options: argparse.Namespace) -> int:
    """Print a table, always with success."""
    table = Table("mode", "options", "what for")
    for name, chosen, meaning in describe_modes():
        told = ", ".join(f"{option}={value}" for option, value in chosen.items())
        table.add_row(name, told or "all at their defaults", meaning)
    print_table(table)
    return 0
