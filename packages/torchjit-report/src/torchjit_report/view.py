"""From a `Report` to what the template needs: anchors, highlighted lines, marks in the source, bar widths."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Iterator, Mapping
from typing import TypeAlias, final

import attrs
from markupsafe import Markup

from torchjit_report import highlight
from torchjit_report.by_line import CostlyLine, by_line
from torchjit_report.model import Break, Compilation, Function, Place, Recompile, Report
from torchjit_report.phases import OTHER, Node, Row, Segment, flat, rows, segments, tree

__all__ = [
    "CompilationView",
    "FunctionView",
    "Missed",
    "Note",
    "PageView",
    "SourceLine",
    "duration",
    "page",
    "size",
]

Notes: TypeAlias = "dict[Place, dict[object, Note]]"

_MOST_NOTES = 3  # recompiles under one source line
_CONTINUATION = re.compile(r" \(continuation at line (\d+)\)$")
_COLORS = 12  # in the style sheet, classes p0 to p11


@final
@attrs.frozen
class Note:
    """A remark under a source line. `kind` is break or recompile."""

    kind: str
    label: str
    text: str
    href: str


@final
@attrs.frozen
class SourceLine:
    """One line of the function's source."""

    number: int
    html: Markup
    anchor: str
    guards: int
    notes: tuple[Note, ...]


@final
@attrs.frozen
class CompilationView:
    """A compilation and where it is on the page."""

    compilation: Compilation
    anchor: str
    title: str
    segments: tuple[Segment, ...]
    rows: tuple[Row, ...]
    saved_bytes: int
    graph_anchors: dict[str, str]


@final
@attrs.frozen
class Missed:
    """Recompilations of one line that one change of the program avoids.

    Attributes:
        recompiles: each with its anchor.
    """

    place: Place
    advice: str
    recompiles: tuple[tuple[str, Recompile], ...]


@final
@attrs.frozen
class FunctionView:
    """A function and where it is on the page.

    Attributes:
        bar: scaled to the slowest function.
        shows_source: unfold the source: not where an earlier section shows the same lines and nothing is marked.
    """

    function: Function
    anchor: str
    lines: tuple[SourceLine, ...]
    compilations: tuple[CompilationView, ...]
    bar: tuple[Segment, ...]
    shows_source: bool
    missed: tuple[Missed, ...] = ()

    def line_anchor(self, place: Place | None) -> str | None:
        """The anchor of a source line, if this function's source has it."""
        if place is None or place.filename != self.function.place.filename or not self.lines:
            return None
        k = place.lineno - self.lines[0].number
        return self.lines[k].anchor if 0 <= k < len(self.lines) else None


@final
@attrs.frozen
class PageView:
    """The whole page."""

    report: Report
    functions: tuple[FunctionView, ...]
    title: str
    facts: tuple[str, ...]
    costly: tuple[CostlyLine, ...]
    colors: Mapping[str, str]


def duration(seconds: float) -> str:
    """`1.23 s`, `45 ms`, `120 µs`; three digits at most below a second."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 0.001:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.0995 else f"{seconds * 1e3:.0f} ms"
    return f"{seconds * 1e6:.0f} µs" if seconds > 0 else "0"


def brief(name: str) -> str:
    """For a narrow column: `f:12` for `f (continuation at line 12)`, whose end would be cut off."""
    return _CONTINUATION.sub(r":\1", name)


def size(nbytes: int) -> str:
    """`1.5 MiB` and so on."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 999.5 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def page(report: Report, title: str) -> PageView:
    """Lay out the page."""
    slowest = max((f.seconds for f in report.functions), default=0.0)
    first = {f.place: f for f in reversed(report.functions)}  # continuations share the place of their function
    named = [(f"f{n}", f) for n, f in enumerate(report.functions, 1)]
    costly = by_line(named)
    notes = _break_notes(named)
    views = tuple(_function(f, anchor, slowest, notes, repeats=first[f.place] is not f) for anchor, f in named)
    return PageView(report, views, title, _facts(report), tuple(costly), _colors(report))


def _colors(report: Report) -> dict[str, str]:
    """A color class for each phase, the same all over the page."""
    names = dict.fromkeys(p.name for c in report.compilations for p in c.phases)
    return {name: f"p{n % _COLORS}" for n, name in enumerate(names)} | {OTHER: "prest"}


def _facts(report: Report) -> tuple[str, ...]:
    session = report.session
    versions = session.get("versions")
    facts = [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, dict) else []
    if session.get("python"):
        facts.append(f"Python {session['python']}")
    if session.get("platform"):
        facts.append(str(session["platform"]))
    for name in ("backend", "mode", "options", "dynamic", "fullgraph", "device"):
        texts = dict.fromkeys(c.asked[name] for c in report.compilations if name in c.asked)
        if texts:
            facts.append(f"{name} {', '.join(list(texts)[:6])}")
    facts += _shares(report)
    if 0 < report.first < 1e11:  # what gmtime surely takes
        facts.insert(0, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.first)))
    return tuple(facts)


def _shares(report: Report) -> Iterator[str]:
    """How much eager PyTorch still does: by choice of whole functions, and as operators of compiled graphs."""
    made = list(report.compilations)
    if any(c.compared for c in made):
        kept = [c for c in made if c.kept_eager]
        own, all_of = (sum(c.operators for c in some) for some in (kept, made))
        yield f"kept eager: {len(kept)} of {len(made)} compilations, {own} of {all_of} nodes"
    steps = [step for c in made for schedule in c.schedules for step in schedule.steps]
    computed = sum(len(step["nodes"]) for step in steps)
    if computed:
        own = sum(len(step["nodes"]) for step in steps if not step["generated"])
        yield f"PyTorch's own operators: {own} of {computed} ({own / computed:.0%})"


def _function(function: Function, anchor: str, slowest: float, breaks: Notes, *, repeats: bool) -> FunctionView:
    views = tuple(_compilation(c, f"{anchor}c{n}", n) for n, c in enumerate(function.compilations, 1))
    times = [node for c in function.compilations for node in tree(c.phases, c.seconds) or [Node(OTHER, c.seconds)]]
    bar = tuple(segments(flat(times), slowest))
    lines = _source(function, anchor, breaks)
    shows = not repeats or any(line.notes for line in lines)
    return FunctionView(function, anchor, lines, views, bar, shows, _missed(function, anchor))


def _missed(function: Function, anchor: str) -> tuple[Missed, ...]:
    """By line and advice, in the order in which they came."""
    found: dict[tuple[Place, str], list[tuple[str, Recompile]]] = {}
    for k, recompile in enumerate(function.recompiles, 1):
        found.setdefault((recompile.place, recompile.advice), []).append((f"{anchor}r{k}", recompile))
    return tuple(Missed(place, advice, tuple(items)) for (place, advice), items in found.items())


def _compilation(compilation: Compilation, anchor: str, number: int) -> CompilationView:
    graphs = {g.name: f"{anchor}g{n}" for n, g in enumerate(compilation.graphs, 1) if g.name}
    times = tree(compilation.phases, compilation.seconds)
    whole = max(compilation.seconds, sum(n.seconds for n in times))
    return CompilationView(
        compilation,
        anchor,
        f"Compilation {compilation.id}" if compilation.id else f"Compilation {number}",
        tuple(segments(times, whole)),
        tuple(rows(times, whole)),
        sum(t.bytes for t in compilation.saved),
        graphs,
    )


def _source(function: Function, anchor: str, breaks: Notes) -> tuple[SourceLine, ...]:
    if not function.source.strip():
        return ()
    first = function.place.lineno or 1
    recompiles = _notes(function, anchor)
    latest = next((c for c in reversed(function.compilations) if c.guards), None)
    guards: dict[Place | None, int] = {}
    for guard in latest.guards if latest else ():
        guards[guard.place] = guards.get(guard.place, 0) + 1
    found = []
    for number, html in enumerate(highlight.lines(textwrap.dedent(function.source)), first):
        place = Place(function.place.filename, number)
        notes = (*breaks.get(place, {}).values(), *recompiles.get(place, {}).values())
        found.append(SourceLine(number, html, f"{anchor}L{number}", guards.get(place, 0), notes))
    return tuple(found)


def _break_notes(functions: list[tuple[str, Function]]) -> Notes:
    """Of all functions, so that a break in an inlined callee is marked in the callee, and at the calls that lead to it."""
    found: Notes = {}
    for anchor, function in functions:
        for n, compilation in enumerate(function.compilations, 1):
            for k, b in enumerate(compilation.breaks, 1):
                note = Note("break", "graph break", _summary(b), f"#{anchor}c{n}b{k}")
                found.setdefault(b.place, {}).setdefault(note.text, note)
                inside = f"{_summary(b)}, in {b.function} ({b.place.short})"
                for place in b.stack:
                    if place != b.place:
                        found.setdefault(place, {}).setdefault(inside, attrs.evolve(note, text=inside))
    return found


def _notes(function: Function, anchor: str) -> Notes:
    """Recompiles by line; equal ones once, and of many the first."""
    found: Notes = {}
    for k, missed in enumerate(function.recompiles, 1):
        note = Note("recompile", "recompiled", missed.guard, f"#{anchor}r{k}")
        found.setdefault(missed.place, {}).setdefault((note.kind, note.text), note)
    for notes in found.values():
        rest = list(notes)[_MOST_NOTES:]
        if len(rest) > 1:
            notes["more"] = attrs.evolve(notes[rest[0]], text=f"and {len(rest)} more guards")
            for key in rest:
                del notes[key]
    return found


def _summary(b: Break) -> str:
    return " · ".join(filter(None, (b.reason, b.headline)))
