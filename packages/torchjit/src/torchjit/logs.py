"""Logs by name, with upstream's names: `TORCHJIT_LOGS="+recompiles,graph_breaks"` or `set_logs(recompiles=True)`."""

from __future__ import annotations

import logging
from typing import Any

from torchjit.environment import read_environment
from torchjit.exc import unknown_name
from torchjit_core import events

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
        ),
        "guards": lambda: "guards\n" + "\n".join(f"    {g['text']}" for g in f["guards"]),
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
        "fallback": lambda: f"{f['reason']} {f['headline']}: {f['detail']}",
        "cudagraph_captured": lambda: f"CUDA graph recorded, number {f['recordings']} of {f['graph']}",
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
        "phase": lambda: f"{f['name']}: {f['seconds']:.3f} s",
        "compile_start": lambda: f"compiling {f['function']} ({where}): {f['cause']}",
        "compile_end": lambda: f"compiled in {f['seconds']:.3f} s" + ("" if f["ok"] else " (failed)"),
    }
    make = texts.get(kind)
    return make() if make else f"{kind}: {f}"


_MEANINGS = {
    "recompiles": "each guard that missed: its value then and now, its line, and how to avoid it",
    "graph_breaks": "each graph break: its reason, its line, what to write instead",
    "guards": "what each specialisation relies on",
    "graph_code": "the captured torch.fx graphs",
    "aot_graphs": "the joint, forward and backward graphs, and what is saved for the backward",
    "output_code": "the host programs and the text of the kernels",
    "kernel_code": "the text of the kernels",
    "fusion": "what was not fused, and why",
    "autotuning": "what was measured, and what was chosen",
    "perf_hints": "what costs time: fallbacks to eager, CUDA graphs that do not pay",
    "cudagraphs": "recordings of CUDA graphs, their times, and why there are none",
    "dynamic": "sizes and numbers that became symbols, by the recompilation that made them so",
    "bytecode": "the code that replaces the program's, decompiled",
    "compile_times": "each compilation with its phases",
    "all": "everything",
}


def describe_logs() -> dict[str, str]:
    """The names of logs, and what each tells."""
    return {name: _MEANINGS[name] for name in _NAMES}


_NAMES: dict[str, tuple[str, ...]] = {
    "recompiles": ("recompile",),
    "graph_breaks": ("graph_break",),
    "guards": ("guards",),
    "graph_code": ("graph",),
    "aot_graphs": ("graph", "saved_tensors"),
    "output_code": ("host_program", "kernel"),
    "kernel_code": ("kernel",),
    "fusion": ("not_fused",),
    "autotuning": ("autotune", "product_settled"),
    "perf_hints": ("fallback", "cudagraph_timed"),
    "cudagraphs": ("fallback", "cudagraph_captured", "cudagraph_timed"),
    "dynamic": ("recompile",),
    "bytecode": ("emitted",),
    "compile_times": ("phase", "compile_start", "compile_end"),
    "all": (),
}
_enabled: set[str] = set()


def log_names() -> list[str]:
    """The names that `set_logs` and `TORCHJIT_LOGS` take."""
    return sorted(_NAMES)


def set_logs(**names: bool) -> None:
    """Turn logs on or off by name. `TORCHJIT_LOGS`, when set, beats the call.

    Raises:
        UserError: an unknown name; the nearest ones are told.
    """
    if read_environment().logs:
        _apply(_parse(read_environment().logs))
        return
    _apply(names)


def set_logs_from_text(text: str) -> None:
    """Apply the syntax of `TORCHJIT_LOGS`: names separated by commas, `-` before one turns it off."""
    _apply(_parse(text))


def check_logs_variable(text: str) -> None:
    """Is this a value for `TORCHJIT_LOGS`?

    Raises:
        UserError: it has a name that is unknown.
    """
    for name in _parse(text):
        if name not in _NAMES:
            raise unknown_name("log in TORCHJIT_LOGS:", name, _NAMES)


def _parse(text: str) -> dict[str, bool]:
    names: dict[str, bool] = {}
    for word in filter(None, (w.strip() for w in text.split(","))):
        names[word.lstrip("+-")] = not word.startswith("-")
    return names


def _apply(names: dict[str, bool]) -> None:
    for name, on in names.items():
        if name not in _NAMES:
            raise unknown_name("log", name, _NAMES)
        (_enabled.add if on else _enabled.discard)(name)
    events.stop_listening(_listen)
    if _enabled:
        events.start_listening(_listen)
        if not _log.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("[torchjit] %(message)s"))
            _log.addHandler(handler)
            _log.setLevel(logging.INFO)


def _listen(kind: str, fields: dict[str, Any]) -> None:
    if "all" not in _enabled and not any(kind in _NAMES[name] for name in _enabled):
        return
    if kind == "graph" and "all" not in _enabled:
        captured = fields["stage"] == "captured"
        if ("graph_code" if captured else "aot_graphs") not in _enabled:
            return
    _log.info("[%s] %s", fields.get("compile_id") or "-", _text_of(kind, fields))
