"""Ranges in torch.profiler: the search of an entry, the region that is called, the graph and its kernels.

Nobody looks on a call whether a profiler runs. torch says when one starts and ends, and then front doors and programs are changed.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable

import torch

from torchjit_frame import Entry, set_ranges
from torchjit_session import upstream

__all__ = ["follow", "show_loaded"]

LOOKUP = "TorchDynamo Cache Lookup"
REGION = "Torch-Compiled Region: {0}"


def follow() -> None:
    """Be told of every profiler that starts from now on, and of one that runs already."""
    for name, runs in (("_run_on_profiler_start", True), ("_run_on_profiler_stop", False)):
        upstream.call_after(torch.autograd.profiler, name, functools.partial(_show, runs))
    if _runs():
        _show(True)


def show_loaded() -> None:
    """An entry has been read from disk: its graph and kernels are ranges, too, if a profiler runs."""
    if _runs():
        _show(True)


def _runs() -> bool:
    return bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", False))


def _show(runs: bool) -> None:
    set_ranges(_begin if runs else None)
    inductor = sys.modules.get("torchjit_inductor.compiled_graph")  # one that is imported later looks itself
    if inductor is not None:
        inductor.show_ranges(runs)


def _begin(entry: Entry | None) -> Callable[[], object]:
    stack = contextlib.ExitStack()
    if entry is None:
        names: tuple[str, ...] = (LOOKUP,)
    else:
        names = (REGION.format(getattr(entry.data, "compile_id", "-")), *getattr(entry.data, "ranges", ()))
    for name in names:
        stack.enter_context(torch.profiler.record_function(name))
    return stack.close
