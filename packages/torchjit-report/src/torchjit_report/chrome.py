"""Compilations and their phases in the format of Chrome's traces, which https://ui.perfetto.dev and chrome://tracing open.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (times in microseconds).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, final

import attrs

from torchjit_report.collect import number
from torchjit_report.trace import Event, PathLike

__all__ = ["chrome_trace", "write_chrome_trace"]

_MICRO = 1e6
_APART = 1000.0  # microseconds between two clocks, at most
_INSTANTS = ("graph_break", "recompile", "fallback", "autotune", "kernel", "cudagraph_captured", "cudagraph_timed")
_LONGEST = 200  # characters of an argument


@final
@attrs.define
class _Slice:
    name: str
    category: str
    start: float
    end: float
    args: dict[str, Any]


def chrome_trace(events: Iterable[Event]) -> dict[str, Any]:
    """The trace as one JSON object: a process for each that wrote events, in it compilations, with phases below, and what was told meanwhile."""
    slices: dict[int, list[_Slice]] = {}
    marks: list[dict[str, Any]] = []
    ranks: dict[int, Any] = {}
    begun: dict[tuple[int, str], tuple[float, dict[str, Any]]] = {}
    for event in events:
        fields = event.fields
        pid, time, compile_id = (
            int(number(fields, "pid")),
            number(fields, "time") * _MICRO,
            str(fields.get("compile_id")),
        )
        into = slices.setdefault(pid, [])
        if "rank" in fields:
            ranks[pid] = fields["rank"]
        if event.kind == "compile_start":
            begun[pid, compile_id] = time, dict(fields)
        elif event.kind == "compile_end":
            start, said = begun.pop((pid, compile_id), (time - number(fields, "seconds") * _MICRO, {}))
            into.append(_compilation(start, time, compile_id, said, ok=fields.get("ok")))
        elif event.kind == "phase":
            length = number(fields, "seconds") * _MICRO
            into.append(_Slice(str(fields.get("name")), "phase", time - length, time, {"compile_id": compile_id}))
        elif event.kind in _INSTANTS:
            marks.append(_mark(event.kind, pid, time, fields))
    for (pid, compile_id), (start, said) in begun.items():  # it was killed meanwhile
        into = slices[pid]
        last = max((s.end for s in into), default=start)
        into.append(_compilation(start, max(start, last), compile_id, said, ok=False))
    made = [row for pid, found in sorted(slices.items()) if found for row in _process(pid, ranks.get(pid), found)]
    return {"traceEvents": made + marks, "displayTimeUnit": "ms"}


def write_chrome_trace(events: Iterable[Event], path: PathLike) -> Path:
    """Write `chrome_trace` as a file.

    Raises:
        OSError: it cannot be written.
    """
    place = Path(path)
    place.write_text(json.dumps(chrome_trace(events), allow_nan=False), encoding="utf-8")
    return place


def _compilation(start: float, end: float, compile_id: str, said: Mapping[str, Any], *, ok: Any) -> _Slice:
    told = {name: _short(said[name]) for name in ("filename", "lineno", "cause", "backend", "mode") if name in said}
    return _Slice(
        f"{said.get('function', 'compilation')} [{compile_id}]", "compilation", start, end, {**told, "ok": ok}
    )


def _mark(kind: str, pid: int, time: float, fields: Mapping[str, Any]) -> dict[str, Any]:
    named = fields.get("headline") or fields.get("guard") or fields.get("name") or fields.get("what") or ""
    told = {name: _short(value) for name, value in fields.items() if isinstance(value, (str, int, float, bool))}
    name = f"{kind}: {_short(named)}" if named else kind
    return {"name": name, "cat": kind, "ph": "i", "s": "t", "ts": time, "pid": pid, "tid": 0, "args": told}


def _process(pid: int, rank: Any, found: list[_Slice]) -> list[dict[str, Any]]:
    """Rows of one process. Those of a thread lie one in another or apart; what overlaps otherwise gets a thread of its own."""
    name = f"torchjit {pid}" if rank is None else f"torchjit rank {rank} ({pid})"
    rows = [{"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": name}}]
    open_slices: list[list[_Slice]] = []
    for piece in sorted(found, key=lambda s: (s.start, -s.end, s.category)):
        thread = next((n for n, stack in enumerate(open_slices) if _fits(stack, piece)), len(open_slices))
        if thread == len(open_slices):
            open_slices.append([])
            name = "compilations" if thread == 0 else f"compilations, at the same time ({thread})"
            rows.append({"name": "thread_name", "ph": "M", "pid": pid, "tid": thread, "args": {"name": name}})
        open_slices[thread].append(piece)
        rows.append(
            {
                "name": piece.name, "cat": piece.category, "ph": "X", "ts": piece.start, "dur": piece.end - piece.start,
                "pid": pid, "tid": thread, "args": piece.args,
            }
        )  # fmt: skip
    return rows


def _fits(stack: list[_Slice], piece: _Slice) -> bool:
    """May the piece come next in a thread? Ends that two clocks have put a little apart are brought together."""
    while stack and piece.start >= stack[-1].end - min(_APART, (stack[-1].end - stack[-1].start) / 2):
        piece.start = max(piece.start, stack.pop().end)
    piece.end = max(piece.end, piece.start)
    if not stack:
        return True
    outer = stack[-1].end
    if piece.end > outer + _APART:
        return False
    piece.end = min(piece.end, outer)
    return True


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[: _LONGEST - 3] + "..."
    return value if isinstance(value, (str, int, bool)) or value is None else str(value)
