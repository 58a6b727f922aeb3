"""Fake tensors without the import of the compiler that this project replaces.

torch imports `torch._dynamo` at the first use of its fake tensors (1 to 7 s on a cold process), for one flag and for a
decorator that matters only while that compiler runs. Here both are answered until somebody really imports it.
Its symbolic shapes, which it imports too, wait for the first symbol (`deferred_shapes.py`).
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from typing import Any

import torch
from torch._compile import _disable_dynamo as disabling_wrapper
from torch._decomp import decomposition_table, meta_table

from torchjit_fx.deferred_shapes import defer_symbolic_shapes, defer_sympy, load_symbolic_shapes

__all__ = ["defer_dynamo", "preload"]


class _DeferredConfig(types.ModuleType):
    """Stands for `torch._dynamo.config` until somebody wants more of it than the one flag that fake tensors read."""

    def __getattr__(self, name: str) -> Any:
        if name == "_custom_ops_profile":
            return None
        return getattr(_real("torch._dynamo.config"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_real("torch._dynamo.config"), name, value)


class _DeferredAutograd(types.ModuleType):
    """Stands for `torch._dynamo.compiled_autograd`, which nobody has switched on while it is not imported."""

    _disable = staticmethod(contextlib.nullcontext)

    def __getattr__(self, name: str) -> Any:
        return getattr(_real("torch._dynamo.compiled_autograd"), name)


class _DeferredDynamo(types.ModuleType):
    """Stands for the attribute `torch._dynamo`, which would be imported on its first use; any other use does import it.

    Fake tensors read `torch._dynamo.config._custom_ops_profile` at most operations, and `torch.func.grad` switches
    `compiled_autograd` off; that import takes seconds.
    It is no entry of `sys.modules`: an import statement finds the real package, which then replaces this attribute.
    """

    config = _DeferredConfig("torch._dynamo.config")
    compiled_autograd = _DeferredAutograd("torch._dynamo.compiled_autograd")

    def __getattr__(self, name: str) -> Any:
        return getattr(_real("torch._dynamo"), name)


def _real(name: str) -> Any:
    return importlib.import_module(name)


def preload() -> None:
    """Import now what the first captures would import: torch's symbolic shapes with sympy, and its metadata functions.

    They take 1 to 3 s on a cold process. A caller with time to spare (a thread, a server that starts) can pay early.
    """
    load_symbolic_shapes()
    defer_dynamo()
    for name in ("torch._subclasses.fake_impls", "torch._refs"):
        _real(name)


def defer_dynamo() -> None:
    """From now on fake tensors work without importing `torch._dynamo`. Does nothing where it is imported already."""
    if "torch._dynamo" in sys.modules or isinstance(vars(torch).get("_dynamo"), _DeferredDynamo):
        return
    torch._dynamo = _DeferredDynamo("torch._dynamo")
    defer_symbolic_shapes()
    defer_sympy()
    seen: set[int] = set()
    importing_wrapper = disabling_wrapper(lambda: None).__code__
    for name in ("torch._refs", "torch._refs.nn.functional", "torch._refs.special", "torch._refs.linalg"):
        for value in list(vars(_real(name)).values()):
            _free(value, importing_wrapper, seen)
    for value in (*decomposition_table.values(), *meta_table.values()):
        _free(value, importing_wrapper, seen)


def _free(function: Any, importing_wrapper: Any, seen: set[int]) -> None:
    """Answer the import that `torch._disable_dynamo` does at a function's first call (see torch/_compile.py).

    Walks through the closures of decorators, since later ones overwrite `__wrapped__`.
    """
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    if function.__code__ is importing_wrapper:
        inner = function.__closure__[importing_wrapper.co_freevars.index("fn")].cell_contents  # type: ignore[index]
        if not hasattr(inner, "__dynamo_disable"):
            inner.__dynamo_disable = _disabled_once_loaded(inner)
    for cell in function.__closure__ or ():
        try:
            _free(cell.cell_contents, importing_wrapper, seen)
        except ValueError:
            continue  # an empty cell


def _disabled_once_loaded(function: Any) -> Any:
    """`torch._dynamo.disable(function)` as soon as there is a `torch._dynamo`, until then the function itself."""

    def run(*args: Any, **kwargs: Any) -> Any:
        disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
        if disable is None:
            return function(*args, **kwargs)
        function.__dynamo_disable = disable(function, True, wrapping=False)
        return function.__dynamo_disable(*args, **kwargs)

    return run
