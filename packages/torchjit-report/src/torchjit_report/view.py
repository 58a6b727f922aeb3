"""From a `Report` to what the template needs: anchors, highlighted lines, marks in the source, bar widths."""

from __future__ import annotations

import textwrap
import time
from typing import final

import attrs
from markupsafe import Markup

from torchjit_report import highlight
from torchjit_report.model import Break, Compilation, Function, Phase, Place, Report

__all__ = [
    "CompilationView",
    "FunctionView",
    "Note",
    "PageView",
    "Segment",
    "SourceLine",
    "duration",
    "page",
    "size",
]

_COLORS = 8  # in the style sheet, classes p0..p7


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
class Segment:
    """A phase in a bar. `width` in percent of the whole bar; `color` is a number of the palette, or `rest`."""

    name: str
    seconds: float
    width: float
    color: str


@final
@attrs.frozen
class CompilationView:
    """A compilation and where it is on the page."""

    compilation: Compilation
    anchor: str
    title: str
    segments: tuple[Segment, ...]
    saved_bytes: int
    graph_anchors: dict[str, str]


@final
@attrs.frozen
class FunctionView:
    """A function and where it is on the page. `bar` is scaled to the slowest function."""

    function: Function
    anchor: str
    lines: tuple[SourceLine, ...]
    compilations: tuple[CompilationView, ...]
    bar: tuple[Segment, ...]

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


def duration(seconds: float) -> str:
    """`1.23 s`, `45 ms`, `120 µs`; three digits at most below a second."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 0.001:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.0995 else f"{seconds * 1e3:.0f} ms"
    return f"{seconds * 1e6:.0f} µs" if seconds > 0 else "0"


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
    colors: dict[str, str] = {}
    slowest = max((f.seconds for f in report.functions), default=0.0)
    views = tuple(_function(f, f"f{n}", slowest, colors) for n, f in enumerate(report.functions, 1))
    return PageView(report, views, title, _facts(report))


def _facts(report: Report) -> tuple[str, ...]:
    session = report.session
    versions = session.get("versions")
    facts = [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, dict) else []
    if session.get("python"):
        facts.append(f"Python {session['python']}")
    if session.get("platform"):
        facts.append(str(session["platform"]))
    if 0 < report.first < 1e11:  # what gmtime surely takes
        facts.insert(0, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.first)))
    return tuple(facts)


def _function(function: Function, anchor: str, slowest: float, colors: dict[str, str]) -> FunctionView:
    views = tuple(_compilation(c, f"{anchor}c{n}", n, colors) for n, c in enumerate(function.compilations, 1))
    totals: dict[str, float] = {}
    for compilation in function.compilations:
        for phase in compilation.phase_totals() or [Phase("other", compilation.seconds)]:
            totals[phase.name] = totals.get(phase.name, 0.0) + phase.seconds
    bar = _segments([Phase(name, seconds) for name, seconds in totals.items()], slowest, colors)
    return FunctionView(function, anchor, _source(function, anchor), views, bar)


def _segments(phases: list[Phase], whole: float, colors: dict[str, str]) -> tuple[Segment, ...]:
    """Bars of phases; phases can overlap or exceed the total, then the bar is scaled down to fit."""
    whole = max(whole, sum(p.seconds for p in phases)) or 1.0
    found = []
    for phase in phases:
        color = "rest" if phase.name == "other" else colors.setdefault(phase.name, str(len(colors) % _COLORS))
        found.append(Segment(phase.name, phase.seconds, 100 * phase.seconds / whole, color))
    return tuple(found)


def _compilation(compilation: Compilation, anchor: str, number: int, colors: dict[str, str]) -> CompilationView:
    graphs = {g.name: f"{anchor}g{n}" for n, g in enumerate(compilation.graphs, 1) if g.name}
    return CompilationView(
        compilation,
        anchor,
        f"Compilation {compilation.id}" if compilation.id else f"Compilation {number}",
        _segments(compilation.phase_totals(), compilation.seconds, colors),
        sum(t.bytes for t in compilation.saved),
        graphs,
    )


def _source(function: Function, anchor: str) -> tuple[SourceLine, ...]:
    if not function.source.strip():
        return ()
    first = function.place.lineno or 1
    notes = _notes(function, anchor)
    latest = next((c for c in reversed(function.compilations) if c.guards), None)
    guards: dict[Place | None, int] = {}
    for guard in latest.guards if latest else ():
        guards[guard.place] = guards.get(guard.place, 0) + 1
    found = []
    for number, html in enumerate(highlight.lines(textwrap.dedent(function.source)), first):
        place = Place(function.place.filename, number)
        found.append(
            SourceLine(number, html, f"{anchor}L{number}", guards.get(place, 0), tuple(notes.get(place, {}).values()))
        )
    return tuple(found)


def _notes(function: Function, anchor: str) -> dict[Place, dict[object, Note]]:
    """By line; equal remarks of several compilations once."""
    found: dict[Place, dict[object, Note]] = {}
    for n, compilation in enumerate(function.compilations, 1):
        for k, b in enumerate(compilation.breaks, 1):
            note = Note("break", "graph break", _summary(b), f"#{anchor}c{n}b{k}")
            found.setdefault(b.place, {}).setdefault(note.text, note)
    for k, missed in enumerate(function.recompiles, 1):
        note = Note("recompile", "recompiled", missed.guard, f"#{anchor}r{k}")
        found.setdefault(missed.place, {}).setdefault((note.kind, note.text), note)
    return found


def _summary(b: Break) -> str:
    return " · ".join(filter(None, (b.reason, b.headline)))
