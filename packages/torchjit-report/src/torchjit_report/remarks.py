"""Events that are a line of text on the page: what happened, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["KINDS"]

Fields = Mapping[str, Any]


def _of(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else "?" if value is None else str(value)


def _seconds(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return f"{value:.3g} s" if isinstance(value, (int, float)) else "some time"


def _rewrites(f: Fields) -> str:
    counts = f.get("counts")
    told = ", ".join(f"{rule} ({n})" for rule, n in counts.items()) if isinstance(counts, Mapping) else "?"
    return f"rewrites of {_of(f, 'name')}: {told}"


def _symbols(f: Fields) -> str:
    rows = f.get("symbols")
    known = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, (list, tuple)) else []
    return "symbols: " + "; ".join(f"{_of(s, 'name')} is {_of(s, 'path')} ({_of(s, 'range')})" for s in known)


KINDS: Final[dict[str, Callable[[Fields], str]]] = {
    "autotune_process_failed": lambda f: f"the process that measures kernels failed: {_of(f, 'detail')}",
    "compile_worker_failed": lambda f: f"a process that compiles kernels failed: {_of(f, 'detail')}",
    "compared_with_eager": lambda f: _of(f, "choice"),
    "cudagraph_captured": lambda f: f"CUDA graph recorded, number {_of(f, 'recordings')} of {_of(f, 'graph')}",
    "entry_differs": lambda f: f"what was loaded from disk differs from what is captured: {_of(f, 'detail')}",
    "entry_loaded": lambda f: "loaded from disk: no capture and no compilation",
    "entry_missed": lambda f: f"an entry on disk is not for this call: {_of(f, 'why')}",
    "entry_not_stored": lambda f: f"not stored on disk: {_of(f, 'reason')}: {_of(f, 'detail')}",
    "entry_stored": lambda f: "stored on disk, for the next process",
    "large_capture": lambda f: (
        f"a large graph: {_of(f, 'nodes')} nodes after {_seconds(f, 'seconds')}; {_of(f, 'where')}"
    ),
    "not_fused": lambda f: f"{_of(f, 'kernel')} did not join {_of(f, 'group')}: {_of(f, 'why')}",
    "one_call": lambda f: (
        f"{_of(f, 'name')} is one call of an operator of torch's, as its backward is: it runs as eager code"
    ),
    "postponed": lambda f: f"{_of(f, 'function')} was put off until another call: {_of(f, 'error')}",
    "repeated_blocks": lambda f: (
        f"{_of(f, 'name')} has {_of(f, 'blocks')} equal blocks: "
        + (
            f"{_of(f, 'kept')} were compiled, the others are copies"
            if f.get("expanded")
            else f"all compiled, {_of(f, 'detail')}"
        )
    ),
    "rerun": lambda f: f"{_of(f, 'function')} ran again as plain Python, as its graph raised {_of(f, 'error')}",
    "rewrites": _rewrites,
    "symbols": _symbols,
    "waiting": lambda f: f"waited {_seconds(f, 'seconds')} for {_of(f, 'what')}",
}
"""Kinds, and their lines; a field that is missing is a question mark in it."""
