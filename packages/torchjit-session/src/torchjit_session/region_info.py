"""Regions as data: what was made for them, where they break, what they rely on, and how they lead to one another."""

from __future__ import annotations

from typing import Literal, final

import attrs
import torch

from torchjit_core.location import CodeLocation
from torchjit_report.recompiles import Recompile
from torchjit_session.call_chain import CallSite, shown_calls
from torchjit_session.trials import Choice

__all__ = ["BreakInfo", "GuardInfo", "KernelInfo", "PhaseInfo", "RegionInfo", "RegionNode", "StoreInfo"]


@final
@attrs.frozen
class BreakInfo:
    """One graph break: its registered reason, what happened, and where.

    Attributes:
        hints: what to write instead, the best first.
        count: calls that met it.
        continuations: ids of the regions that go on after it up to the next break, one for each of their specialisations.
        calls: the lines of the program that lead to it, outermost first, with the modules on which these calls are made.
    """

    reason_id: str
    headline: str
    detail: str
    hints: tuple[str, ...]
    location: CodeLocation | None
    count: int = 1
    continuations: tuple[str, ...] = ()
    calls: tuple[CallSite, ...] = ()

    @property
    def text(self) -> str:
        """Id, headline and detail in one line."""
        return f"{self.reason_id}: {self.headline}" + (f": {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return "\n    ".join([self.text, *shown_calls(self.calls, self.location)])


@final
@attrs.frozen
class GuardInfo:
    """A guard.

    Attributes:
        location: the line that relies on it, if one does.
        seconds: of one test of it alone, if that was measured: `explain` does, and calls in `with f.compiled.measuring_guards():`.
    """

    text: str
    location: CodeLocation | None
    seconds: float | None


@final
@attrs.frozen
class KernelInfo:
    """A generated kernel. `origins`: the operators that it computes, with their lines."""

    name: str
    language: str
    graph: str
    origins: tuple[str, ...]


@final
@attrs.frozen
class PhaseInfo:
    """A stretch of compile time.

    Attributes:
        seconds: wall time.
        self_seconds: of that, what no inner phase accounts for.
    """

    name: str
    seconds: float
    self_seconds: float
    phases: tuple[PhaseInfo, ...] = ()


@final
@attrs.frozen
class StoreInfo:
    """What came of the specialisations on disk.

    Attributes:
        folder: where entries are kept.
        loaded: how many came from there.
        stored: how many are there now for the next process.
        waiting: how many will be, once their backward has been compiled.
        not_stored: reason and what it applies to, the function and its line.
        missed: entries that were there and did not fit: the function, and why.
    """

    folder: str
    loaded: int = 0
    stored: int = 0
    waiting: int = 0
    not_stored: tuple[tuple[str, tuple[str, ...]], ...] = ()
    missed: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        counts = {
            "loaded": self.loaded,
            "stored": self.stored,
            "waiting for their backward": self.waiting,
            "not stored": sum(len(where) for _, where in self.not_stored),
            "there, but not for these calls": len(self.missed),
        }
        said = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
        lines = [f"On disk ({self.folder}): {said or 'nothing'}"]
        lines += [f"    not stored: {why}: {', '.join(where)}" for why, where in self.not_stored]
        lines += [f"    not used: {where}: {why}" for where, why in self.missed]
        return "\n".join(lines)


@final
@attrs.frozen
class RegionInfo:
    """One specialisation of one region.

    Attributes:
        cause: "first call", or the guard that missed, as text; `recompile` is the same as data.
        seconds: wall time of capture and compilation.
        hits: calls that it served.
        location: the first line of the function, or the line where a continuation begins.
        checks: its guards, with their lines and what they cost.
        guard_seconds: of one test of all guards, if that was measured.
        kernels: what was generated for it, also for backwards that were compiled later.
        phases: where the time of its compilation went.
        storage: what became of it on disk: "loaded", "stored", "not stored: " and why; "" where nothing was tried.
        texts: of one that was loaded, the code of its graphs, which are not there.
        op_count: calls in its graphs.
        compared: with eager code, and which of the two is kept, for each class of sizes; none where that was not asked for, or is not known yet.
    """

    compile_id: str
    function: str
    cause: str
    seconds: float
    graphs: tuple[torch.fx.GraphModule, ...]
    guards: tuple[str, ...]
    breaks: tuple[BreakInfo, ...]
    source: str
    recompile: Recompile | None = None
    hits: int = 0
    location: CodeLocation | None = None
    checks: tuple[GuardInfo, ...] = ()
    guard_seconds: float | None = None
    kernels: tuple[KernelInfo, ...] = ()
    phases: tuple[PhaseInfo, ...] = ()
    storage: str = ""
    texts: tuple[str, ...] = ()
    op_count: int = 0
    compared: tuple[Choice, ...] = ()


@final
@attrs.frozen
class RegionNode:
    """A place where compiled code starts.

    Attributes:
        kind: a `function` that was given to `compile`, a `continuation` behind a graph break, or a `call` that Python makes at one.
        location: its first line.
        specializations: what was made for it.
        children: continuations of its breaks, in the order in which they were met.
    """

    function: str
    kind: Literal["function", "continuation", "call"]
    location: CodeLocation
    specializations: tuple[RegionInfo, ...]
    children: tuple[RegionNode, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        calls = sum(s.hits for s in self.specializations)
        seconds = sum(s.seconds for s in self.specializations)
        count = len(self.specializations)
        lines = [
            f"{self.function}: {count} specialisation{'s' * (count != 1)}, {calls} call{'s' * (calls != 1)}, {seconds:.3f} s"
        ]
        for made in self.specializations:
            lines += [f"  break at line {b.location.lineno}: {b.headline}" for b in made.breaks if b.location]
        for child in self.children:
            lines += [f"  {line}" for line in child._lines()]
        return lines
