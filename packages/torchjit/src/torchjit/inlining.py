"""What the VM interprets, what it replaces, and what it leaves to Python: the policy of a capture."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import torchjit_frame
import torchjit_vm
from torchjit import control
from torchjit_vm import DictChainGetattr, ReturnConstant

__all__ = ["SUBSTITUTES", "VALUE_TYPES", "is_user_code", "should_inline"]

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


def is_user_code(code: types.CodeType) -> bool:
    """Does this code belong to the user's program, not to torch or torchjit?"""
    return not code.co_filename.startswith(_OURS)


_OURS = tuple(
    str(Path(m.__file__).parent) + "/" for m in (torch, torchjit_vm, torchjit_frame) if m.__file__ is not None
)

VALUE_TYPES = (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
"""Immutable values of torch with a trustworthy `==`: guarded by value."""

SUBSTITUTES: dict[Callable[..., Any], object] = {
    control.is_compiling: ReturnConstant(True),
    torch.compiler.is_compiling: ReturnConstant(True),
    torch.compiler.is_dynamo_compiling: ReturnConstant(True),
    torch.compiler.is_exporting: ReturnConstant(False),
    torch.jit.is_scripting: ReturnConstant(False),
    torch.jit.is_tracing: ReturnConstant(False),
    torch._C._get_tracing_state: ReturnConstant(None),
    torch._C._log_api_usage_once: ReturnConstant(None),
    torch.nn.Module.__getattr__: DictChainGetattr(("_parameters", "_buffers", "_modules")),
}
"""Functions that mean something else under capture, and what stands for them."""
