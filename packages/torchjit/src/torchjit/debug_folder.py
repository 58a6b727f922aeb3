"""`trace.enabled` and `trace.graph_diagram`: what a compilation makes, as files of a folder."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import torch

import torchjit_report
from torchjit.backends import Backend
from torchjit.environment import read_environment
from torchjit.options import Options
from torchjit.user_warnings import warn_user
from torchjit_core import events

__all__ = ["tracing"]

_SUFFIXES = {"c": "cpp", "triton": "py"}


def tracing(backend: Backend, options: Options) -> Backend:
    """The backend; where the options ask for it, with a debug folder for each compilation."""
    if not options.trace and not options.graph_diagram:
        return backend

    @functools.wraps(backend)
    def traced(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        _folder(events.current_compile_id(), options)
        return backend(gm, example_inputs)

    return traced


def _folder(compile_id: str | None, options: Options) -> None:
    files = _of_this_process()
    files.wanted[compile_id] = (options.trace, options.graph_diagram)


@functools.cache
def _of_this_process() -> _Files:
    base = read_environment().debug_dir or Path("torchjit_debug")
    files = _Files(base / f"run_{time.strftime('%Y_%m_%d_%H_%M_%S')}-pid_{os.getpid()}")
    events.start_listening(files)
    return files


@final
class _Files:
    """A listener that writes what it hears of some compilations. Backwards are compiled later, under the id of their forward."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wanted: dict[str | None, tuple[bool, bool]] = {}

    def __call__(self, kind: str, fields: dict[str, Any]) -> None:
        files, diagrams = self.wanted.get(fields.get("compile_id"), (False, False))
        named = _diagram(kind, fields) if diagrams else None
        if files:
            named = named or _text(kind, fields)
        if named is not None:
            self._write(_safe(fields.get("compile_id") or "graph"), *named)

    def _write(self, folder: str, name: str, text: str) -> None:
        place = self.folder / folder
        try:
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        except OSError as error:
            self.wanted.clear()
            warn_user(
                f"torchjit: the debug folder {self.folder} cannot be written ({error.strerror}); name another one in TORCHJIT_DEBUG_DIR"
            )


def _text(kind: str, fields: dict[str, Any]) -> tuple[str, str] | None:
    """The name of the file that an event becomes, and its text."""
    if kind == "graph":
        return _safe(f"{fields['stage']}_{fields.get('name') or 'graph'}") + ".graph.py", fields["code"]
    if kind == "host_program":
        return _safe(f"{fields['name']}") + ".host.py", fields["source"]
    if kind == "kernel":
        suffix = _SUFFIXES.get(fields["language"], "txt")
        return _safe(f"{fields['graph']}.{fields['name']}") + f".{suffix}", fields["source"]
    if kind == "guards":
        return "guards.txt", "\n".join(g["text"] for g in fields["guards"]) + "\n"
    if kind == "emitted":
        return "rewritten.py", fields["source"]
    return None


def _diagram(kind: str, fields: dict[str, Any]) -> tuple[str, str] | None:
    if kind != "schedule":
        return None
    return _safe(fields["graph"]) + ".svg", torchjit_report.draw_steps(fields["graph"], fields["steps"])


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)
