"""Calls that are one step of a graph, with constants of the program among their arguments.

Of DTensor what converts between it and plain tensors, with meshes and placements; the collectives in such a call are functional ones, which
whoever traces the graph sees. Of every class whose tensors consist of others its constructor.
Source: torch/distributed/tensor/_api.py and torch/distributed/tensor/parallel/style.py (torch 2.11 and 2.15).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from torchjit_fx.followed_classes import is_wrapper
from torchjit_fx.intrinsics import Value, call_whole, refuse

__all__ = ["construction_of", "whole_call_of"]

_API = "torch.distributed.tensor._api"
_STYLE = "torch.distributed.tensor.parallel.style"
_WHOLE = frozenset(
    {
        *((_API, f"DTensor.{name}") for name in ("from_local", "to_local", "redistribute", "full_tensor")),
        *((_STYLE, f"{cls}._prepare_input_fn") for cls in ("ColwiseParallel", "RowwiseParallel", "SequenceParallel")),
        *((_STYLE, f"{cls}._prepare_output_fn") for cls in ("ColwiseParallel", "RowwiseParallel", "SequenceParallel")),
        *((_STYLE, f"PrepareModuleInput.{name}") for name in ("_prepare_input_fn", "_prepare_input_kwarg_fn")),
        *((_STYLE, f"PrepareModuleInputOutput.{name}") for name in ("_prepare_input_fn", "_prepare_output_fn")),
        (_STYLE, "PrepareModuleOutput._prepare_out_fn"),
    }
)


def whole_call_of(function: types.FunctionType) -> Callable[..., Any] | None:
    """What is interpreted instead of such a function."""
    return _made(function) if (function.__module__, function.__qualname__) in _WHOLE else None


@functools.cache
def _made(function: Value) -> Callable[..., Any]:
    checks = function.__qualname__ == "DTensor.from_local"

    def call(*args: Value, **kwargs: Value) -> Value:
        if checks and (len(args) > 3 or kwargs.get("run_check", False)):
            refuse("from_local with run_check=True", True)
        return call_whole(function, args, kwargs)

    return call


def construction_of(cls: type) -> Callable[..., Any] | None:
    """What is interpreted instead of `cls(...)`, which makes a tensor that consists of others; None for all other classes."""
    return _construction(cls) if issubclass(cls, torch.Tensor) and is_wrapper(cls) else None


@functools.lru_cache(maxsize=1024)
def _construction(cls: type) -> Callable[..., Any]:
    def make(*args: Value, **kwargs: Value) -> Value:
        return call_whole(cls, args, kwargs)

    return make
