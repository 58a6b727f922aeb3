"""Breaks and recompiles of all functions, by the source line that they come from, the line that costs most time first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, final

import attrs

from torchjit_report.model import Break, Compilation, Function, Place, Recompile
from torchjit_report.time_lost import TimeLost

__all__ = ["CostlyLine", "by_line"]


@final
@attrs.define
class CostlyLine:
    """A source line that breaks graphs, or whose guards missed.

    Attributes:
        anchor: of its first mark on the page: the card of its first break or miss.
        texts: reason, if it has one, and what happened, each once.
        hints: what to write instead, each once.
        count: regions that ended there, or misses.
        functions: whose regions these are: the line itself may be in a callee of theirs.
    """

    kind: Literal["break", "recompile"]
    place: Place
    line: str
    within: str
    anchor: str
    lost: TimeLost = attrs.field(factory=TimeLost)
    texts: dict[tuple[str, str], None] = attrs.field(factory=dict)
    hints: dict[str, None] = attrs.field(factory=dict)
    count: int = 0
    functions: dict[str, str] = attrs.field(factory=dict)

    def _add(self, reason: str, text: str, hints: Iterable[str], function: str, anchor: str) -> None:
        self.texts.setdefault((reason, text))
        self.hints.update(dict.fromkeys(hints))
        self.count += 1
        self.functions.setdefault(function, anchor)


def by_line(functions: Iterable[tuple[str, Function]]) -> list[CostlyLine]:
    """The lines, that which costs most first.

    Args:
        functions: each with its anchor.
    """
    known = tuple(functions)
    compilations = [c for _, function in known for c in function.compilations]
    breaks: dict[Place, CostlyLine] = {}
    calls: dict[Place, int] = {}
    for anchor, function in known:
        for n, compilation in enumerate(function.compilations, 1):
            for k, b in enumerate(compilation.breaks, 1):
                entry = breaks.setdefault(
                    b.place, CostlyLine("break", b.place, b.line, b.function, f"{anchor}c{n}b{k}")
                )
                entry._add(b.reason, _said(b), b.hints, function.name, anchor)
                calls[b.place] = calls.get(b.place, 0) + compilation.hits
    for place, entry in breaks.items():
        behind = [c for c in compilations if place in c.follows]
        switches = max(calls[place], sum(c.hits for c in behind))
        entry.lost = TimeLost(sum(c.seconds for c in behind), switches)
    return sorted([*breaks.values(), *_missed(known)], key=lambda entry: -entry.lost.seconds)


def _missed(functions: Iterable[tuple[str, Function]]) -> Iterable[CostlyLine]:
    found: dict[tuple[Place, str], CostlyLine] = {}
    for anchor, function in functions:
        made: dict[int, Compilation] = {id(c.recompile): c for c in function.compilations if c.recompile is not None}
        for k, r in enumerate(function.recompiles, 1):
            key = (r.place, "" if r.place.filename else function.name)
            entry = found.setdefault(key, CostlyLine("recompile", r.place, function.line(r.place), "", f"{anchor}r{k}"))
            entry._add("", _change(r), [r.advice] if r.advice else [], function.name, anchor)
            if (compilation := made.get(id(r))) is not None:
                entry.lost = attrs.evolve(entry.lost, compiling=entry.lost.compiling + compilation.seconds)
    return found.values()


def _said(b: Break) -> str:
    return f"{b.headline}: {b.detail}" if b.detail else b.headline


def _change(missed: Recompile) -> str:
    values = f": expected {missed.expected}, got {missed.actual}" if missed.expected or missed.actual else ""
    return f"`{missed.guard}`{values}"
