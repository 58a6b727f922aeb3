"""Commands that print one table: backends, options, modes and names of logs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import final

import attrs
from rich.table import Table

from torchjit.backends import describe_backends
from torchjit.commands.console import print_table
from torchjit.options import describe_modes, describe_options
from torchjit_report.logs import describe_logs

__all__ = ["TABLES"]


@final
@attrs.frozen
class TableCommand:
    """A command that takes nothing and prints a table.

    Attributes:
        HELP: one line for the list of commands.
        DESCRIPTION: for its own help.
        columns: their titles.
        rows: makes them.
        show_lines: between rows, where these are long.
        last_line: below the table.
    """

    HELP: str
    DESCRIPTION: str
    columns: tuple[str, ...]
    rows: Callable[[], Iterable[tuple[str, ...]]]
    show_lines: bool = False
    last_line: str = ""

    def run(self, options: argparse.Namespace) -> int:
        """Print it, always with success."""
        table = Table(*self.columns, show_lines=self.show_lines)
        for row in self.rows():
            table.add_row(*row)
        print_table(table)
        if self.last_line:
            print(self.last_line)
        return 0


TABLES = {
    "backends": TableCommand(
        "the backends, and what those that cannot be used now need",
        "The backends that `torchjit.compile(backend=...)` takes, and what the others need.",
        ("backend", "usable", "what it is"),
        lambda: ((name, "yes" if usable else "no", text) for name, usable, text in describe_backends()),
    ),
    "modes": TableCommand(
        "the modes, and the options that each stands for",
        "The modes of `torchjit.compile(mode=...)` and the options that each stands for.",
        ("mode", "options", "what for"),
        lambda: (
            (
                name,
                ", ".join(f"{option}={value}" for option, value in chosen.items()) or "all at their defaults",
                meaning,
            )
            for name, chosen, meaning in describe_modes()
        ),
    ),
    "options": TableCommand(
        "the options with their defaults and meanings",
        "The options of `torchjit.compile(options={...})` with their defaults and meanings.",
        ("option", "takes", "default", "meaning"),
        lambda: ((each.name, each.takes, each.default, each.meaning) for each in describe_options()),
        show_lines=True,
    ),
    "logs": TableCommand(
        "the names that TORCHJIT_LOGS takes, and what each tells",
        "The names that TORCHJIT_LOGS and torchjit.set_logs take, and what each tells.",
        ("name", "what it tells"),
        lambda: describe_logs().items(),
        last_line='TORCHJIT_LOGS="+recompiles,graph_breaks" python program.py',
    ),
}
"""By name."""
