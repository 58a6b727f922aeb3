"""What the VM interprets, what it replaces, and what it leaves to Python: the policy of a capture."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from torchjit import control

__all__ = ["SUBSTITUTES", "should_inline"]

# Modules whose functions do more than compute: their effects must happen each time, in Python.
_LEFT_TO_PYTHON = (
    "asyncio", "concurrent", "ctypes", "gc", "importlib", "io", "json", "linecache", "logging", "multiprocessing", "os",
    "pathlib", "pdb", "pickle", "queue", "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time",
    "traceback", "unittest", "urllib", "warnings",
    "torch._dynamo", "torch._inductor", "torch._subclasses", "torch.cuda.graphs", "torch.distributed", "torch.fx",
    "torch.hub", "torch.jit", "torch.multiprocessing", "torch.onnx", "torch.profiler", "torch.serialization",
    "torch.testing", "torch.utils.benchmark", "torch.utils.checkpoint", "torch.utils.data", "torch.autograd.function",
    "torchjit_vm", "torchjit_frame", "torchjit_guards", "torchjit_fx", "torchjit_aot", "torchjit_inductor",
    "torchjit_cudagraphs", "torchjit_report",
)  # fmt: skip


def should_inline(fn: types.FunctionType) -> bool:
    """May the VM look inside this function? By the module that defines it."""
    module = fn.__globals__.get("__name__") or ""
    return not any(module == m or module.startswith(m + ".") for m in _LEFT_TO_PYTHON)


def _true() -> bool:
    return True


def _false(*args: object, **kwargs: object) -> bool:
    return False


def _nothing(*args: object, **kwargs: object) -> None:
    return None


SUBSTITUTES: dict[Callable[..., Any], Callable[..., Any]] = {
    control.is_compiling: _true,
    torch.compiler.is_compiling: _true,
    torch.compiler.is_dynamo_compiling: _true,
    torch.compiler.is_exporting: _false,
    torch.jit.is_scripting: _false,
    torch.jit.is_tracing: _false,
    torch._C._get_tracing_state: _nothing,
    torch._C._log_api_usage_once: _nothing,
}
"""Functions that mean something else under capture, and the plain functions that stand for them."""
