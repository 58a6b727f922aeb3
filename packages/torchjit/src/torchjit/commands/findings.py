"""What a command saw of this machine, each thing with what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, final

import attrs

from torchjit.commands.console import console

__all__ = ["Finding", "print_findings"]

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
