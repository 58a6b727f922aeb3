"""`nn.Module.compile()`: torch compiles the module's `_call_impl`, which runs hooks, too, and keeps that on the module.

Hooks that gather parameters, and what broadcasts buffers, cannot be captured. A module that has them, or gets them before its
first call, keeps a compiled method behind them instead: hooks are given the module itself, in Python.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from torchjit_frame import FrontDoor
from torchjit_session.modules import behind_hooks

__all__ = ["compiled_call"]


def compiled_call(module: torch.nn.Module, start: Callable[..., FrontDoor]) -> types.MethodType:
    """What `nn.Module.compile` keeps as `_compiled_call_impl`.

    Args:
        module: whose `_call_impl` it is.
        start: makes the front door of a function, `of_object` where it is called for one object.
    """
    function: Any = torch.nn.Module._call_impl
    door = start(function, of_object=True)

    def begins_elsewhere(called: Any) -> bool:
        return isinstance(called, torch.nn.Module) and _moved(called, start) is not None

    found: Any = _moved(module, start)
    if found is not None:
        return types.MethodType(found, module)
    door.compiled.root.begins_elsewhere = begins_elsewhere  # type: ignore[attr-defined]
    return types.MethodType(door, module)


def _moved(module: torch.nn.Module, start: Callable[..., FrontDoor]) -> Callable[..., Any] | None:
    """Compile the method of a module that is behind its hooks; None if there is no such. What is called in the place of `_call_impl`."""
    name = behind_hooks(module)
    if name is None:
        return None
    method: Any = getattr(module, name)
    plain: Any = torch.nn.Module
    door = start(method.__func__, type(module).__qualname__, of_object=True)

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return plain._call_impl(self, *args, **kwargs)

    call._torchjit_door = door  # type: ignore[attr-defined]  # for who asks what was compiled
    module.__dict__[name] = types.MethodType(door, module)
    if module.__dict__.get("_compiled_call_impl") is not None:
        module.__dict__["_compiled_call_impl"] = types.MethodType(call, module)
    return call
