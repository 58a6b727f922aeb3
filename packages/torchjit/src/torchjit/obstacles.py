"""Breaks and recompiles by the source line that they come from, the costliest line first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, final

import attrs

from torchjit.call_chain import CallSite, shown_calls
from torchjit_core.location import CodeLocation

if TYPE_CHECKING:
    from torchjit.inspection import BreakInfo, RegionInfo
    from torchjit.recompiles import Recompile

__all__ = ["Obstacle", "by_line"]

BREAK_SECONDS: Final = 20e-6
"""What a break costs each call, about: one more region is entered, its guards are checked and its graph is called."""


@final
@attrs.frozen
class Obstacle:
    """What one source line costs.

    Attributes:
        kind: "Break" or "Recompile".
        location: the line; None where it is not known.
        texts: what happened there, each text once.
        cures: what to write instead, the best first.
        count: how often: calls that met the break, or specialisations that the line made necessary.
        seconds: lost by it, about: compiling what follows a break or what a miss made necessary, and the breaks' own cost.
        calls: that lead to the line, for the first break.
    """

    kind: str
    location: CodeLocation | None
    texts: tuple[str, ...]
    cures: tuple[str, ...]
    count: int
    seconds: float
    calls: tuple[CallSite, ...] = ()

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        lines = [f"{'; '.join(self.texts)} ({times}, about {self.seconds:.3f} s)"]
        lines += shown_calls(self.calls, self.location)
        label = "hint" if self.kind == "Break" else "avoid it"
        return "\n    ".join([*lines, *(f"{label}: {cure}" for cure in self.cures)])


def by_line(regions: Iterable[RegionInfo]) -> tuple[Obstacle, ...]:
    """Breaks, and misses of guards, of these regions."""
    found = tuple(regions)
    seconds = {r.compile_id: r.seconds for r in found}
    breaks: dict[object, list[BreakInfo]] = {}
    missed: dict[object, list[tuple[Recompile, float]]] = {}
    for region in found:
        for info in region.breaks:
            breaks.setdefault(_line(info.location) or info.headline, []).append(info)
        if region.recompile is not None:
            key = _line(region.recompile.location) or region.recompile.function
            missed.setdefault(key, []).append((region.recompile, region.seconds))
    ranked = [_of_breaks(met, seconds) for met in breaks.values()] + [_of_misses(met) for met in missed.values()]
    return tuple(sorted(ranked, key=lambda o: -o.seconds))


def _line(where: CodeLocation | None) -> tuple[str, int] | None:
    return None if where is None else (where.filename, where.lineno)


def _of_breaks(met: list[BreakInfo], seconds: Mapping[str, float]) -> Obstacle:
    follow = {name for info in met for name in info.continuations}
    count = sum(info.count for info in met)
    lost = sum(seconds.get(name, 0.0) for name in follow) + count * BREAK_SECONDS
    texts, hints = _once(i.text for i in met), _once(h for i in met for h in i.hints)
    return Obstacle("Break", met[0].location, texts, hints, count, lost, met[0].calls)


def _of_misses(met: list[tuple[Recompile, float]]) -> Obstacle:
    texts = _once(f"{m.function}: {m.guard}: expected {m.expected}, got {m.actual}" for m, _ in met)
    advice = _once(m.advice for m, _ in met)
    return Obstacle("Recompile", met[0][0].location, texts, advice, len(met), sum(spent for _, spent in met))


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
