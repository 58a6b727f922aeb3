"""torch.compile in the same process and thread: neither compiler may take the other one's code for the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["hidden_from_torch_compile", "torch_compile_is_active"]

_F = TypeVar("_F", bound=Callable[..., Any])
# The C half of torch.compile, which is there whether or not torch.compile was used.
_hook: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def hidden_from_torch_compile(function: _F) -> _F:
    """Run `function`, and what it calls, as plain Python below code of torch.compile. Changes and returns it."""
    code = getattr(function, "__code__", None)
    if code is not None and hasattr(_hook, "set_code_exec_strategy"):
        skip = _hook._FrameAction.SKIP
        _hook.set_code_exec_strategy(code, _hook._FrameExecStrategy(skip, skip))
    return function


def torch_compile_is_active() -> bool:
    """Does torch.compile look at the frames that this thread enters?"""
    return hasattr(_hook, "get_eval_frame_callback") and callable(_hook.get_eval_frame_callback())
