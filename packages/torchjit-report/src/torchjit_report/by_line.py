"""Breaks of all functions, by the source line that they come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import attrs

from torchjit_report.model import Break, Function, Place

__all__ = ["BreakLine", "by_line"]


@final
@attrs.define
class BreakLine:
    """A source line that breaks graphs.

    Attributes:
        breaks: one of each text.
        count: regions that ended there.
        functions: whose regions these are: the line itself may be in a callee of theirs.
        anchor: of its first mark on the page, the card of its first break.
    """

    place: Place
    line: str
    within: str
    anchor: str
    breaks: dict[tuple[str, str], Break] = attrs.field(factory=dict)
    count: int = 0
    functions: dict[str, str] = attrs.field(factory=dict)

    @property
    def hints(self) -> list[str]:
        """What to write instead, each hint once."""
        return list(dict.fromkeys(h for b in self.breaks.values() for h in b.hints))


def by_line(functions: Iterable[tuple[str, Function]]) -> list[BreakLine]:
    """The lines, that with most broken regions first.

    Args:
        functions: each with its anchor.
    """
    found: dict[Place, BreakLine] = {}
    for anchor, function in functions:
        for n, compilation in enumerate(function.compilations, 1):
            for k, b in enumerate(compilation.breaks, 1):
                card = f"{anchor}c{n}b{k}"
                entry = found.setdefault(b.place, BreakLine(b.place, b.line, b.function, card))
                entry.breaks.setdefault((b.reason, b.detail), b)
                entry.count += 1
                entry.functions.setdefault(function.name, anchor)
    return sorted(found.values(), key=lambda entry: -entry.count)
