"""Logs by name, with upstream's names: `TORCHJIT_LOGS="+recompiles,graph_breaks"` or `set_logs(recompiles=True)`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Final

from torchjit_core import events
from torchjit_core.user_errors import unknown_name, wrong_type
from torchjit_report import remarks
from torchjit_report.trace import rank

__all__ = ["check_logs_variable", "describe_logs", "log_names", "set_logs", "set_logs_from_text"]

_log = logging.getLogger("torchjit")


def _text_of(kind: str, f: dict[str, Any]) -> str:
    where = f"{f.get('filename')}:{f.get('lineno')}"
    texts = {
        "recompile": lambda: (
            f"{f['function']} recompiles: {f['guard']}: expected {f['expected']}, got {f['actual']} ({where})"
            + (f"\n    avoid it: {f['advice']}" if f.get("advice") else "")
        ),
        "graph_break": lambda: (
            f"{f['reason']} {f['headline']}: {f['detail']} ({where})\n    {f.get('line', '').strip()}"
            + "".join(f"\n    hint: {hint}" for hint in f.get("hints", ()))
        ),
        "guards": lambda: "guards\n" + "\n".join(f"    {_guard_text(g)}" for g in f["guards"]),
        "graph": lambda: f"{f['stage']} graph {f.get('name', '')} ({f['nodes']} nodes)\n{f['code']}",
        "saved_tensors": lambda: (
            "saved for the backward: "
            + (
                "; ".join(f"{t['name']} {t['shape']}, {t['bytes']} bytes: {t['why']}" for t in f["tensors"])
                or "nothing"
            )
        ),
        "kernel": lambda: f"kernel {f['name']} ({f['language']})\n{f['source']}",
        "host_program": lambda: f"host program {f['name']}\n{f['source']}",
        "not_fused": lambda: (
            f"{', '.join(f['kernel'])} not fused with {', '.join(f['group'])} ({f['shared_bytes']} shared bytes): {f['why']}"
        ),
        "emitted": lambda: f"emitted code\n{f['source']}",
        "bytecode": lambda: (
            f"original bytecode of {f['function']}\n{f['original']}\nrewritten bytecode of {f['function']}\n{f['rewritten']}"
            + (f"\ndecompiled\n{f['source']}" if f["source"] else "")
        ),
        "symbols": lambda: "\n".join(
            f"{s['name']} is {s['path']} ({s['value']} now, in {s['range']})" for s in f["symbols"]
        ),
        "fallback": lambda: f"{f['reason']} {f['headline']}: {f['detail']}",
        "repeated_blocks": lambda: (
            f"{f['name']}: {f['blocks']} equal blocks of {f['nodes']} operations, "
            + (f"made from {f['kept']} of them" if f["expanded"] else f"each compiled: {f['detail']}")
        ),
        "cudagraph_timed": lambda: (
            f"CUDA graph of {f['graph']} {'kept' if f['kept'] else 'dropped'}: {f['replay'] * 1e3:.3f} ms a call, {f['plain'] * 1e3:.3f} ms without; "
            f"it copies {f['bytes_copied']} bytes of inputs"
        ),
        "autotune": lambda: (
            f"{f['what']}: "
            + ", ".join(f"{c['choice']} {c['seconds'] * 1e6:.1f} us" for c in f["choices"])
            + "".join(f"\n    rejected: {choice}: {why}" for choice, why in f["rejected"].items())
        ),
        "product_settled": lambda: (
            f"{', '.join(f['products'])}: {'a kernel' if f['kept'] else 'left to the library'}"
            + (
                ""
                if f["kernel_seconds"] is None or f["library_seconds"] is None
                else f" ({f['kernel_seconds'] * 1e6:.1f} us with what joins it, {f['library_seconds'] * 1e6:.1f} us as calls and kernels)"
            )
        ),
        "compared_with_eager": lambda: f"{f['function']}: {f['choice']}",
        "entry_loaded": lambda: (
            f"{f['function']} ({where}) loaded from disk in {f['seconds']:.3f} s; compiling it took {f['built_in']:.2f} s"
        ),
        "entry_missed": lambda: (
            f"{f.get('function', 'an entry')} ({where}) is on disk, but not for this call: {f['why']}"
        ),
        "entry_not_stored": lambda: (
            f"{f.get('function', 'an entry')} ({where}) is not kept on disk: {f['reason']} {f.get('headline', '')}: {f['detail']}"
        ),
        "entry_stored": lambda: f"{f['function']} ({where}) kept on disk: {f['bytes']} bytes in {f['seconds']:.3f} s",
        "phase": lambda: f"{f['name']}: {f['seconds']:.3f} s",
        "compile_start": lambda: f"compiling {f['function']} ({where}): {f['cause']}",
        "compile_end": lambda: f"compiled in {f['seconds']:.3f} s" + ("" if f["ok"] else " (failed)"),
    }
    make = texts.get(kind)
    if make is None:
        return remarks.KINDS[kind](f) if kind in remarks.KINDS else f"{kind}: {f}"
    return make()


def _guard_text(guard: Mapping[str, Any]) -> str:
    return f"{guard['text']}  # {guard['filename']}:{guard['lineno']}" if guard.get("filename") else str(guard["text"])


def describe_logs() -> dict[str, str]:
    """The names of logs, and what each tells."""
    return {name: _OF_COMPONENTS.get(name) or _NAMES[name][1] for name in log_names()}


_NAMES: dict[str, tuple[tuple[str, ...], str]] = {
    "recompiles": (("recompile",), "each guard that missed: its value then and now, its line, and how to avoid it"),
    "graph_breaks": (("graph_break",), "each graph break: its reason, its line, what to write instead"),
    "guards": (("guards",), "what each specialisation relies on, with the lines that do"),
    "graph_code": (("graph",), "the captured torch.fx graphs"),
    "graph_sizes": (("graph",), "the shapes and dtypes of the values in them"),
    "aot_graphs": (
        ("graph", "saved_tensors"),
        "the joint, forward and backward graphs, and what is saved for the backward",
    ),
    "output_code": (("host_program", "kernel"), "the host programs and the text of the kernels"),
    "kernel_code": (("kernel",), "the text of the kernels"),
    "fusion": (("not_fused",), "what was not fused, and why"),
    "autotuning": (("autotune", "product_settled"), "what was measured, and what was chosen"),
    "perf_hints": (
        ("fallback", "compared_with_eager", "cudagraph_timed", "graph_break", "recompile"),
        "what costs time: fallbacks to eager, what eager code is faster at, recompiles, graph breaks, CUDA graphs that do not pay",
    ),
    "cudagraphs": (
        ("fallback", "cudagraph_captured", "cudagraph_timed"),
        "recordings of CUDA graphs, their times, and why there are none",
    ),
    "store": (
        ("entry_loaded", "entry_missed", "entry_not_stored", "entry_stored", "entry_differs"),
        "compiled entries on disk: what was loaded, what was there but did not fit and why, what is not kept and why",
    ),
    "dynamic": (("symbols",), "sizes and numbers that became symbols: where they come from, and their range"),
    "bytecode": (("bytecode",), "the bytecode of the program beside that which replaces it, and the latter decompiled"),
    "compile_times": (("phase", "compile_start", "compile_end", "entry_loaded"), "each compilation with its phases"),
    "all": ((), "everything"),
}
"""What each tells: kinds of events, and in words."""
_MADE_BY_COMPILING = frozenset({"aot_graphs", "bytecode", "fusion", "kernel_code", "output_code"})
"""Names that tell nothing of an entry that was loaded from disk: they say so."""
_ERRORS: Final = ("fallback",)
_COMPONENTS: dict[str, dict[int, tuple[str, ...]]] = {
    "dynamo": {
        logging.INFO: (
            *_ERRORS,
            "compile_start",
            "compile_end",
            "compared_with_eager",
            "entry_loaded",
            "graph_break",
            "recompile",
            "postponed",
            "rerun",
        ),
        logging.DEBUG: ("guards", "graph:captured", "emitted", "symbols"),
    },
    "aot": {logging.INFO: (*_ERRORS, "saved_tensors"), logging.DEBUG: ("graph:aot", "rewrites")},
    "inductor": {
        logging.INFO: (*_ERRORS, "autotune", "product_settled", "cudagraph_captured", "cudagraph_timed"),
        logging.DEBUG: ("host_program", "kernel", "not_fused"),
    },
}
"""What upstream's components tell, by level; each also what is above it."""
_OF_COMPONENTS = {
    "dynamo": "captures: compilations, breaks, recompiles, fallbacks; with + also guards, graphs and emitted code; with - fallbacks only",
    "aot": "autograd: what is saved for the backward; with + also the graphs; with - fallbacks only",
    "inductor": "kernels: what was measured; with + also their text, host programs and what was not fused; with - fallbacks only",
}
_enabled: dict[str, int] = {}
"""Names that are on, with their level."""


def log_names() -> list[str]:
    """The names that `set_logs` and `TORCHJIT_LOGS` take."""
    return sorted({**_NAMES, **_COMPONENTS})


def set_logs(names: Mapping[str, bool | int], variable: str = "") -> None:
    """Turn logs on or off by name.

    Args:
        names: True or False; for `dynamo`, `aot` and `inductor` also a level of `logging`.
        variable: the value of `TORCHJIT_LOGS`: when set, it beats the names.

    Raises:
        UserError: an unknown name, of which the nearest ones are told, or a value that is no bool and no level.
    """
    for name, level in names.items():
        _check(name, "log")
        if type(level) not in (bool, int):
            raise wrong_type(name, level, "True, False or a level of logging")
        if name not in _COMPONENTS and level not in (True, False):
            raise wrong_type(name, level, "True or False")
    if variable:
        set_logs_from_text(variable)
        return
    _apply({n: _LEVELS[bool(v)] if v in (True, False) else v for n, v in names.items()})


_OFF: Final = 0
_LEVELS: Final = {True: logging.INFO, False: _OFF}


def set_logs_from_text(text: str) -> None:
    """Apply the syntax of `TORCHJIT_LOGS`: names separated by commas, `+` before one for more, `-` for errors only, or nothing.

    `help` lists the names.
    """
    names = _parse(text)
    if names.pop("help", None) is not None:
        width = max(map(len, log_names()))
        lines = [f"    {name:<{width}}  {meaning}" for name, meaning in describe_logs().items()]
        print("TORCHJIT_LOGS takes these names, separated by commas:", *lines, sep="\n", file=sys.stderr)
    for name in names:
        _check(name, "log")
    _apply(names)


def check_logs_variable(text: str) -> None:
    """Is this a value for `TORCHJIT_LOGS`?

    Raises:
        UserError: it has a name that is unknown.
    """
    for name in _parse(text):
        if name != "help":
            _check(name, "log in TORCHJIT_LOGS:")


def _check(name: str, what: str) -> None:
    if name not in _NAMES and name not in _COMPONENTS:
        raise unknown_name(what, name, log_names())


def _parse(text: str) -> dict[str, int]:
    names: dict[str, int] = {}
    for word in filter(None, (w.strip() for w in text.split(","))):
        name = word.removeprefix(word[0]) if word[0] in "+-" else word
        less = logging.ERROR if name in _COMPONENTS else _OFF
        names[name] = {"+": logging.DEBUG, "-": less}.get(word[0], logging.INFO)
    return names


def _apply(names: Mapping[str, int]) -> None:
    for name, level in names.items():
        if level == _OFF:
            _enabled.pop(name, None)
        else:
            _enabled[name] = level
    events.stop_listening(_listen)
    wanted = events.bytecode_wanted_by
    (wanted.add if {"bytecode", "all"} & _enabled.keys() else wanted.discard)("logs")
    if _enabled:
        events.start_listening(_listen)
        if not _log.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("[torchjit] %(message)s"))
            _log.addHandler(handler)
        if _log.level == logging.NOTSET:  # also where the program has a handler of its own
            _log.setLevel(logging.INFO)


def _wants(name: str, kind: str, fields: Mapping[str, Any]) -> bool:
    """Does the log of this name tell of such an event?"""
    captured = kind == "graph" and fields["stage"] == "captured"
    if name in _COMPONENTS:
        level, told = _enabled[name], _COMPONENTS[name]
        kinds = _ERRORS if level > logging.INFO else told[logging.INFO]
        kinds += told[logging.DEBUG] if level <= logging.DEBUG else ()
        return (f"graph:{'captured' if captured else 'aot'}" if kind == "graph" else kind) in kinds
    if kind == "graph":
        return captured if name in ("graph_code", "graph_sizes") else name == "aot_graphs"
    if kind == "fallback" and name == "cudagraphs":
        return str(fields["reason"]).startswith("TJ-CG-")
    return kind in _NAMES[name][0] or (kind == "entry_loaded" and name in _MADE_BY_COMPILING)


def _listen(kind: str, fields: dict[str, Any]) -> None:
    asked = [name for name in _enabled if name != "all" and _wants(name, kind, fields)]
    if not asked and "all" not in _enabled:
        return
    text = _text_of(kind, fields)
    if kind == "graph" and {"graph_sizes", "all"} & {*asked, *_enabled}:
        sizes = "\n".join(f"    {name}: {value}" for name, value in fields.get("values", {}).items())
        text = f"sizes\n{sizes}" if asked == ["graph_sizes"] else f"{text}\nsizes\n{sizes}"
    if kind == "entry_loaded" and _MADE_BY_COMPILING & {*asked}:
        text = f"{text} (TORCHJIT_STORE=off compiles it again, and shows what comes of that)"
    of = rank()
    label = "" if of is None else f"rank {of}, "
    _log.info("[%s%s] %s", label, fields.get("compile_id") or "-", text)
