"""Breaks and recompiles by the source line that they come from, the costliest line first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, final

import attrs

from torchjit_core.location import CodeLocation
from torchjit_report import TimeLost
from torchjit_session.call_chain import CallSite, shown_calls

if TYPE_CHECKING:
    from torchjit_report.recompiles import Recompile
    from torchjit_session.region_info import BreakInfo, RegionInfo

__all__ = ["Obstacle", "by_line"]


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
        lost: the time that it costs, and what that is made of.
        calls: that lead to the line, for the first break.
    """

    kind: str
    location: CodeLocation | None
    texts: tuple[str, ...]
    cures: tuple[str, ...]
    count: int
    lost: TimeLost
    calls: tuple[CallSite, ...] = ()

    @property
    def seconds(self) -> float:
        """Of `lost`, all."""
        return self.lost.seconds

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        lines = [f"{'; '.join(self.texts)} ({times}; {self.lost})"]
        lines += shown_calls(self.calls, self.location)
        label = "hint" if self.kind == "Break" else "avoid it"
        return "\n    ".join([*lines, *(f"{label}: {cure}" for cure in self.cures)])


def by_line(regions: Iterable[RegionInfo]) -> tuple[Obstacle, ...]:
    """Breaks, and misses of guards, of these regions."""
    found = tuple(regions)
    breaks: dict[object, list[BreakInfo]] = {}
    missed: dict[object, list[tuple[Recompile, float]]] = {}
    for region in found:
        for info in region.breaks:
            breaks.setdefault(_line(info.location) or info.headline, []).append(info)
        if region.recompile is not None:
            key = _line(region.recompile.location) or region.recompile.function
            missed.setdefault(key, []).append((region.recompile, region.seconds))
    ranked = [_of_breaks(met, found) for met in breaks.values()] + [_of_misses(met) for met in missed.values()]
    return tuple(sorted(ranked, key=lambda o: -o.seconds))


def _line(where: CodeLocation | None) -> tuple[str, int] | None:
    return None if where is None else (where.filename, where.lineno)


def _of_breaks(met: list[BreakInfo], regions: Iterable[RegionInfo]) -> Obstacle:
    names = {name for info in met for name in info.continuations}
    behind = [region for region in regions if region.compile_id in names]
    count = sum(info.count for info in met)
    lost = TimeLost(
        compiling=sum(region.seconds for region in behind),
        switches=max(count, sum(region.hits for region in behind)),
        guards=sum(region.hits * (region.guard_seconds or 0.0) for region in behind),
    )
    texts, hints = _once(i.text for i in met), _once(h for i in met for h in i.hints)
    return Obstacle("Break", met[0].location, texts, hints, count, lost, met[0].calls)


def _of_misses(met: list[tuple[Recompile, float]]) -> Obstacle:
    texts = _once(f"{m.function}: {m.guard}: expected {m.expected}, got {m.actual}" for m, _ in met)
    advice = _once(m.advice for m, _ in met)
    return Obstacle("Recompile", met[0][0].location, texts, advice, len(met), TimeLost(sum(spent for _, spent in met)))


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
