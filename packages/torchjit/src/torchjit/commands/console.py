"""Where commands print: tables, and what they saw of this machine, each thing with what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, final

import attrs
from rich.console import Console
from rich.table import Table

__all__ = ["PARTS", "Finding", "console", "print_findings", "print_table"]

PARTS = (
    "core",
    "torch",
    "vm",
    "frame",
    "guards",
    "fx",
    "aot",
    "inductor",
    "cudagraphs",
    "report",
    "session",
    "store",
    "backends",
)
"""The packages below `torchjit`, without their prefix."""
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


MARKS = {"ok": "[green]ok[/]   ", "note": "[yellow]note[/] ", "fail": "[red]fail[/] "}


@final
@attrs.frozen
class Finding:
    """One thing that was looked at.

    Attributes:
        what: its name.
        state: `ok`; `note`, where something is slower or missing and programs run all the same; `fail`, where nothing compiles.
        detail: what was seen.
        cure: what to do about it.
    """

    what: str
    state: Literal["ok", "note", "fail"]
    detail: str
    cure: str = ""


def print_findings(findings: Iterable[Finding]) -> bool:
    """Print them, each in one line and its cure in another. Did one fail?"""
    out, failed = console(), False
    for finding in findings:
        failed |= finding.state == "fail"
        out.print(f"{MARKS[finding.state]} {finding.what}: ", end="", soft_wrap=True)
        out.print(finding.detail, markup=False, soft_wrap=True)
        if finding.cure:
            out.print(f"       -> {finding.cure}", markup=False, soft_wrap=True)
    return failed
