"""From events to a `Report`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import attrs

from torchjit_report import remarks
from torchjit_report.annotate import annotated
from torchjit_report.model import (
    Break,
    Call,
    Choice,
    Compilation,
    Fallback,
    Function,
    Graph,
    GuardLine,
    Kernel,
    Phase,
    Place,
    Program,
    Recompile,
    Report,
    SavedTensor,
    Schedule,
)
from torchjit_report.phases import tree
from torchjit_report.trace import Event, Trace

__all__ = ["KNOWN", "collect", "number"]

Fields = Mapping[str, Any]
_T = TypeVar("_T")
_LARGEST = 1e15
_NAMELESS = "(start not recorded)"
_LOADED = "loaded from disk"
_OUTSIDE = "(outside of any compilation)"


def collect(events: Iterable[Event]) -> Report:
    """Sort events by function and compilation. A `Trace` also tells how many of its lines were skipped."""
    collector = _Collector()
    for event in events:
        collector.take(event)
    collector.finish()
    collector.report.skipped = events.skipped if isinstance(events, Trace) else 0
    return collector.report


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return "" if value is None else value if isinstance(value, str) else str(value)


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    value = fields.get(name)
    if isinstance(value, (list, tuple)):
        return tuple(str(v) for v in value)
    return () if value is None else (str(value),)


def number(fields: Fields, name: str) -> float:
    """A finite number that is not negative, else 0."""
    value = fields.get(name)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < _LARGEST else 0.0


def _rows(fields: Fields, name: str) -> list[Fields]:
    value = fields.get(name)
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, (list, tuple)) else []


def _place(fields: Fields) -> Place:
    return Place(_text(fields, "filename"), int(number(fields, "lineno")))


def _shape(fields: Fields) -> str:
    value = fields.get("shape")
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, (list, tuple)) else _text(fields, "shape")


def _made(cls: type[_T], fields: Fields) -> _T:
    """An object of the model, each of its fields by its type from what is told under its name."""
    told: Any = cls
    return cls(**{f.name: _READERS[str(f.type)](fields, f.name) for f in attrs.fields(told)})


_READERS: Final[dict[str, Callable[[Fields, str], Any]]] = {
    "str": _text,
    "int": lambda fields, name: int(number(fields, name)),
    "Shape": lambda fields, name: _shape(fields),
    "Place": lambda fields, name: _place(fields),
    "Place | None": lambda fields, name: _place(fields) if fields.get("filename") else None,
    "tuple[str, ...]": _texts,
    "tuple[Place, ...]": lambda fields, name: tuple(_place(row) for row in _rows(fields, name)),
    "tuple[Call, ...]": lambda fields, name: tuple(_made(Call, row) for row in _rows(fields, name)),
}
"""By the annotations in `model`."""


def _mapping(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    return value if isinstance(value, Mapping) else {}


def _asked(fields: Fields) -> dict[str, str]:
    """How the compilation was asked for: what is said, and is not the default."""
    found = {name: _text(fields, name) for name in ("backend", "mode", "dynamic", "fullgraph", "device")}
    options = _mapping(fields, "options")
    found["options"] = ", ".join(f"{name} = {value}" for name, value in options.items())
    return {name: text for name, text in found.items() if text not in ("", "False")}


def _add_remark(kind: str, into: Compilation, fields: Fields) -> None:
    text = remarks.KINDS[kind](fields)
    into.remarks[text] = into.remarks.get(text, 0) + 1


def _add_graph(into: Compilation, fields: Fields) -> None:
    into.graphs.append(
        Graph(
            _text(fields, "stage"),
            _text(fields, "name"),
            annotated(_text(fields, "code").strip("\n"), _mapping(fields, "values"), _mapping(fields, "lines")),
            int(number(fields, "nodes")),
        )
    )


def _add_choice(into: Compilation, fields: Fields) -> None:
    measured = [(_text(row, "choice"), number(row, "seconds")) for row in _rows(fields, "choices")]
    rejected = fields.get("rejected")
    reasons = tuple(f"{way}: {why}" for way, why in rejected.items()) if isinstance(rejected, dict) else ()
    ordered = tuple(sorted(measured, key=lambda way: way[1]))
    into.choices.append(Choice(_text(fields, "what"), ordered, reasons))


def _add_settled(into: Compilation, fields: Fields) -> None:
    ways = [("as a kernel, with what joins it", "kernel_seconds"), ("as calls and kernels", "library_seconds")]
    measured = [(text, number(fields, name)) for text, name in ways if fields.get(name) is not None]
    decision = "generated kernel" if fields.get("kept") else "left to the library"
    ordered = tuple(sorted(measured, key=lambda way: way[1]))
    into.choices.append(Choice(", ".join(_texts(fields, "products")), ordered, (), decision))


def _add_replay(into: Compilation, fields: Fields) -> None:
    ways = [("replayed as a CUDA graph", "replay"), ("call by call", "plain")]
    measured = sorted(((text, number(fields, name)) for text, name in ways), key=lambda way: way[1])
    copied = int(number(fields, "bytes_copied"))
    decision = f"CUDA graph {'kept' if fields.get('kept') else 'dropped'}; it copies {copied} bytes of inputs"
    into.choices.append(Choice(_text(fields, "graph"), tuple(measured), (), decision))


def _add_emitted(into: Compilation, fields: Fields) -> None:
    made = _made(Program, fields)
    if made not in into.emitted:  # two packages may tell of it
        into.emitted.append(made)


def _add_bytecode(into: Compilation, fields: Fields) -> None:
    for name in ("original", "rewritten"):
        if text := _text(fields, name):
            into.bytecode.append(Program(f"{name} bytecode", text))


def _add_schedule(into: Compilation, fields: Fields) -> None:
    texts = {"name": _text, "nodes": _texts, "reads": _texts, "writes": _texts}
    steps = [
        {"generated": bool(row.get("generated")), **{name: read(row, name) for name, read in texts.items()}}
        for row in _rows(fields, "steps")
    ]
    into.schedules.append(Schedule(_text(fields, "graph"), tuple(steps)))


def _add_phase(into: Compilation, fields: Fields) -> None:
    phases = into.phases if into.ok is None else into.late
    phases.append(Phase(_text(fields, "name"), number(fields, "seconds"), number(fields, "time")))


def _add_comparison(into: Compilation, fields: Fields) -> None:
    into.compared = True
    into.kept_eager = into.kept_eager or fields.get("kept") == "eager"
    _add_remark("compared_with_eager", into, fields)


def _end(into: Compilation, fields: Fields) -> None:
    into.seconds = number(fields, "seconds")
    into.ok = bool(fields.get("ok"))


_OF_A_COMPILATION: Final[dict[str, Callable[[Compilation, Fields], None]]] = {
    "autotune": _add_choice,
    "autotune_progress": lambda c, f: None,  # for who waits: `autotune` tells the end
    "bytecode": _add_bytecode,
    "cudagraph_timed": _add_replay,
    "compile_end": _end,
    "emitted": _add_emitted,
    "fallback": lambda c, f: c.fallbacks.append(_made(Fallback, f)),
    "graph": _add_graph,
    "graph_break": lambda c, f: c.breaks.append(_made(Break, f)),
    "guards": lambda c, f: c.guards.extend(_made(GuardLine, row) for row in _rows(f, "guards")),
    "host_program": lambda c, f: c.programs.append(_made(Program, f)),
    "kernel": lambda c, f: c.kernels.append(_made(Kernel, f)),
    "phase": _add_phase,
    "product_settled": _add_settled,
    "saved_tensors": lambda c, f: c.saved.extend(_made(SavedTensor, row) for row in _rows(f, "tensors")),
    "schedule": _add_schedule,
    **{kind: functools.partial(_add_remark, kind) for kind in remarks.KINDS},
    "compared_with_eager": _add_comparison,
}

KNOWN: Final = frozenset({"session", "calls", "compile_start", "recompile", *_OF_A_COMPILATION})
"""Kinds that the page has a place for."""


def _identity(fields: Fields) -> str:
    """What people call a compilation: with the rank, where there are several."""
    identity = _text(fields, "compile_id")
    return f"{identity} of rank {int(number(fields, 'rank'))}" if identity and "rank" in fields else identity


class _Collector:
    """Takes events in order."""

    def __init__(self) -> None:
        self.report = Report()
        self.functions: dict[tuple[str, Place], Function] = {}
        self.compilations: dict[tuple[Any, Any], Compilation] = {}  # the latest by (pid, compile id)
        self.open: dict[Any, list[Compilation]] = {}  # started and not ended, by pid
        self.owners: dict[int, Function] = {}  # by id of the compilation
        self.missed: dict[tuple[Any, str], Recompile] = {}  # told of, and not yet compiled for; by pid and function
        self.early: dict[str, list[Recompile]] = {}  # of functions not met yet, by name

    def take(self, event: Event) -> None:
        fields = event.fields
        report = self.report
        report.events += 1
        if at := number(fields, "time"):
            report.first = min(report.first or at, at)
            report.last = max(report.last, at)
        if event.kind == "session":
            report.session = report.session or fields
        elif event.kind == "compile_start":
            self._start(fields)
        elif event.kind == "calls":
            self._calls(fields)
        elif event.kind == "recompile":
            self._recompile(fields)
        elif event.kind in _OF_A_COMPILATION:
            compilation = self._loaded(fields) if event.kind == "entry_loaded" else self._compilation(fields)
            _OF_A_COMPILATION[event.kind](compilation, fields)
            if event.kind == "compile_end":
                pid = _key(fields, "pid")
                self.open[pid] = [c for c in self.open.get(pid, []) if c is not compilation]
        else:
            report.unknown[event.kind] = report.unknown.get(event.kind, 0) + 1

    def _start(self, fields: Fields) -> Compilation:
        name, place = _text(fields, "function") or _NAMELESS, _place(fields)
        function = self.functions.get((name, place))
        if function is None:
            function = self.functions[name, place] = Function(name, place, _text(fields, "source"))
            self.report.functions.append(function)
        pid = _key(fields, "pid")
        made = Compilation(_identity(fields), _text(fields, "cause"), number(fields, "time"))
        made.asked = _asked(fields)
        made.follows = tuple(_place(row) for row in _rows(fields, "follows"))
        made.recompile = self.missed.pop((pid, name), None)
        function.compilations.append(made)
        self.owners[id(made)] = function
        self.compilations[pid, _key(fields, "compile_id")] = made
        self.open.setdefault(pid, []).append(made)
        return made

    def _loaded(self, fields: Fields) -> Compilation:
        """What was loaded from disk stands beside what was compiled; it has started and ended at once."""
        made = self._start({**fields, "lineno": fields.get("code_lineno", fields.get("lineno")), "cause": _LOADED})
        self.open[_key(fields, "pid")].remove(made)
        _end(made, {"seconds": fields.get("seconds"), "ok": True})
        return made

    def _calls(self, fields: Fields) -> None:
        hits = _mapping(fields, "hits")
        for identity in hits:
            known = self.compilations.get((_key(fields, "pid"), identity))
            if known is not None:
                known.hits += int(number(hits, identity))

    def _compilation(self, fields: Fields) -> Compilation:
        """The one that the event names, else the innermost that is under way, else one without a start."""
        identity, pid = _key(fields, "compile_id"), _key(fields, "pid")
        found = self.compilations.get((pid, identity))
        if found is not None and identity is not None:
            return found
        if identity is None and self.open.get(pid):
            return self.open[pid][-1]
        if found is None:
            name = _OUTSIDE if identity is None else _NAMELESS
            found = self._start({"compile_id": identity, "pid": pid, "time": fields.get("time"), "function": name})
            if identity is None:
                found.ok = True
                self.open[pid].remove(found)
        return found

    def _recompile(self, fields: Fields) -> None:
        missed = _made(Recompile, fields)
        name = _text(fields, "function")
        self.missed[_key(fields, "pid"), name] = missed
        identity = _key(fields, "compile_id")
        known = self.compilations.get((_key(fields, "pid"), identity)) if identity is not None else None
        owner = self.owners[id(known)] if known is not None else None
        if owner is None or (name and owner.name != name):
            owner = next((f for f in reversed(self.report.functions) if f.name == name), None)
        if owner is None:
            self.early.setdefault(name, []).append(missed)
        else:
            owner.recompiles.append(missed)

    def finish(self) -> None:
        """Add up late phases, and show what belongs to functions whose compilation was not recorded."""
        for compilation in self.report.compilations:
            compilation.seconds += sum(node.seconds for node in tree(compilation.late, 0.0))
            compilation.phases += compilation.late
        for name, missed in self.early.items():
            known = [f for f in self.report.functions if f.name == name]
            function = known[0] if known else Function(name or _NAMELESS, Place("", 0), "")
            if not known:
                self.report.functions.append(function)
            function.recompiles[:0] = missed


def _key(fields: Fields, name: str) -> str | int | None:
    value = fields.get(name)
    return value if isinstance(value, (str, int, type(None))) else str(value)
