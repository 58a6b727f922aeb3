"""The names that TORCHJIT_LOGS and torchjit.set_logs take, and what each tells."""

from __future__ import annotations

import argparse

from rich.table import Table

from torchjit.commands.console import print_table
from torchjit_report.logs import describe_logs

__all__ = ["HELP", "add_arguments", "run"]

HELP = "the names that TORCHJIT_LOGS takes, and what each tells"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""


def run(options: argparse.Namespace) -> int:
    """Print a table, always with success."""
    table = Table("name", "what it tells")
    for name, meaning in describe_logs().items():
        table.add_row(name, meaning)
    print_table(table)
    print('TORCHJIT_LOGS="+recompiles,graph_breaks" python program.py')
    return 0
