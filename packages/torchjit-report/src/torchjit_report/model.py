"""What the page shows: events put in order, by function and by compilation.

Nothing here trusts a field to be there or to have the right type: a trace may be cut off, or written by another version.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs

__all__ = [
    "Break",
    "Call",
    "Choice",
    "Compilation",
    "Fallback",
    "Function",
    "Graph",
    "GuardLine",
    "Kernel",
    "Phase",
    "Place",
    "Program",
    "Recompile",
    "Report",
    "SavedTensor",
    "Schedule",
]


@final
@attrs.frozen
class Place:
    """A source line. `short` is for reading, `filename` for tooltips."""

    filename: str
    lineno: int

    @property
    def short(self) -> str:
        name = os.path.basename(self.filename) or self.filename
        return f"{name}:{self.lineno}" if self.lineno else name


@final
@attrs.frozen
class Call:
    """A line of an active function. `module`: the path and class of the module whose method it is, if it is one."""

    place: Place
    function: str
    module: str


@final
@attrs.frozen
class Break:
    """A graph break. `stack` has the lines of the calls that lead to it, outermost first, and so has `calls`, from the start of
    the program's call on, without the library's own frames."""

    reason: str
    headline: str
    detail: str
    explanation: str
    hints: tuple[str, ...]
    place: Place
    line: str
    function: str
    stack: tuple[Place, ...] = ()
    calls: tuple[Call, ...] = ()


@final
@attrs.frozen
class Recompile:
    """A guard that missed, and what would avoid it."""

    guard: str
    expected: str
    actual: str
    place: Place
    advice: str = ""


@final
@attrs.frozen
class Fallback:
    """Something that was left to eager PyTorch."""

    reason: str
    headline: str
    detail: str


@final
@attrs.frozen
class GuardLine:
    """A guard, and the line that relies on it."""

    text: str
    place: Place | None


@final
@attrs.frozen
class Graph:
    """An fx graph at one stage."""

    stage: str
    name: str
    code: str
    nodes: int


Shape: TypeAlias = str
"""`[2, s0]`."""


@final
@attrs.frozen
class SavedTensor:
    """A tensor that the forward keeps for the backward."""

    name: str
    shape: Shape
    dtype: str
    bytes: int
    why: str


@final
@attrs.frozen
class Choice:
    """Ways to compute one thing that were measured.

    Attributes:
        what: was to be computed.
        measured: each way and its seconds, the fastest first.
        rejected: ways that did not work, each with its reason.
        decision: what was made of it in the end; empty where that is not said.
    """

    what: str
    measured: tuple[tuple[str, float], ...]
    rejected: tuple[str, ...] = ()
    decision: str = ""


@final
@attrs.frozen
class Kernel:
    """A generated kernel."""

    name: str
    language: str
    source: str
    origins: tuple[str, ...]
    graph: str


@final
@attrs.frozen
class Program:
    """Generated Python: a host program or the rewritten function."""

    name: str
    source: str


@final
@attrs.frozen
class Phase:
    """A named stretch of compile time. `end` is when it ended, in seconds since the epoch; 0 if unknown."""

    name: str
    seconds: float
    end: float = 0.0


@final
@attrs.frozen
class Schedule:
    """The kernels and operators of a compiled graph, in order, for `draw_steps`."""

    graph: str
    steps: tuple[Mapping[str, Any], ...]


@final
@attrs.define
class Compilation:
    """One compilation of one function.

    Attributes:
        ok: None if its end was not recorded.
        remarks: lines of text, and how often each was said.
        hits: calls that it served, if the recording tells: programs do at their end.
        follows: of a continuation, the lines of the breaks behind which it goes on.
        recompile: the miss that made it necessary.
        asked: backend, mode, options and device, as text.
        compared: was it compared with eager code?
        kept_eager: do calls run as eager code, if only those of some sizes?
        late: phases after its end, such as a backward that is compiled when it is first needed.
    """

    id: str
    cause: str = ""
    started: float = 0.0
    seconds: float = 0.0
    ok: bool | None = None
    guards: list[GuardLine] = attrs.field(factory=list)
    graphs: list[Graph] = attrs.field(factory=list)
    saved: list[SavedTensor] = attrs.field(factory=list)
    choices: list[Choice] = attrs.field(factory=list)
    kernels: list[Kernel] = attrs.field(factory=list)
    programs: list[Program] = attrs.field(factory=list)
    emitted: list[Program] = attrs.field(factory=list)
    bytecode: list[Program] = attrs.field(factory=list)
    schedules: list[Schedule] = attrs.field(factory=list)
    phases: list[Phase] = attrs.field(factory=list)
    late: list[Phase] = attrs.field(factory=list)
    breaks: list[Break] = attrs.field(factory=list)
    fallbacks: list[Fallback] = attrs.field(factory=list)
    remarks: dict[str, int] = attrs.field(factory=dict)
    asked: Mapping[str, str] = attrs.field(factory=dict)
    hits: int = 0
    follows: tuple[Place, ...] = ()
    recompile: Recompile | None = None
    compared: bool = False
    kept_eager: bool = False

    @property
    def operators(self) -> int:
        """Nodes of its captured graphs."""
        first = self.graphs[0].stage if self.graphs else ""
        return sum(graph.nodes for graph in self.graphs if graph.stage == first)

    @property
    def status(self) -> str:
        return {True: "ok", False: "failed", None: "unfinished"}[self.ok]


@final
@attrs.define
class Function:
    """A function and all its compilations."""

    name: str
    place: Place
    source: str
    compilations: list[Compilation] = attrs.field(factory=list)
    recompiles: list[Recompile] = attrs.field(factory=list)

    @property
    def seconds(self) -> float:
        return sum(c.seconds for c in self.compilations)

    def line(self, place: Place) -> str:
        """The text of a line of its source; "" of any other."""
        lines = self.source.splitlines() if place.filename == self.place.filename else []
        k = place.lineno - (self.place.lineno or 1)
        return lines[k] if 0 <= k < len(lines) else ""

    def count(self, what: str) -> int:
        """How many `graphs`, `kernels`, `breaks` or `fallbacks` all compilations have together.

        A region is a graph once, however many stages of it were recorded: stages after the first do not count.
        """
        if what == "graphs":
            return sum(sum(g.stage == "captured" for g in c.graphs) or bool(c.graphs) for c in self.compilations)
        return sum(len(getattr(c, what)) for c in self.compilations)

    @property
    def status(self) -> str:
        found = {c.status for c in self.compilations}
        return next((s for s in ("failed", "unfinished") if s in found), "ok")


@final
@attrs.define
class Report:
    """Everything on the page."""

    functions: list[Function] = attrs.field(factory=list)
    session: Mapping[str, Any] = attrs.field(factory=dict)
    events: int = 0
    skipped: int = 0
    unknown: dict[str, int] = attrs.field(factory=dict)
    first: float = 0.0
    last: float = 0.0

    def total(self, what: str) -> int:
        """Sum of `Function.count` over the functions."""
        return sum(f.count(what) for f in self.functions)

    @property
    def tells_calls(self) -> bool:
        """Does the recording tell how often what was compiled was called?"""
        return any(c.hits for c in self.compilations)

    @property
    def compilations(self) -> Sequence[Compilation]:
        return [c for f in self.functions for c in f.compilations]
