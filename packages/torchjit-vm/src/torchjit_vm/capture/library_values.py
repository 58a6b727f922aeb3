"""Immutable values of the standard library that a capture computes with: paths, dates and times; texts of JSON.

What is made of constants is a constant. A path that was there before is relied on by its text; dates and times that were
there before stay opaque: they are often the time of the call.
"""

from __future__ import annotations

import json
import pathlib
import types
from collections.abc import Callable
from typing import Any

from torchjit_vm.capture.builtin_table import builtin
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.raw import from_raw
from torchjit_vm.capture.special_methods import compute, computed
from torchjit_vm.capture.values import Args, Const, Kwargs, Value

__all__: list[str] = []

_PATHS = (pathlib.PurePath, pathlib.Path)


def _compute_at_capture(function: Callable[..., object]) -> None:
    @builtin(function)
    def run(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        return computed(domain, function, args, kwargs)


_ASKS_NO_FILE = (
    "__truediv__", "__rtruediv__", "__str__", "__fspath__", "__repr__", "__bytes__", "as_posix", "is_absolute", "is_relative_to",
    "joinpath", "relative_to", "with_name", "with_stem", "with_suffix",
)  # fmt: skip


def _register() -> None:
    for name in _ASKS_NO_FILE:
        found = {getattr(cls, name) for cls in _PATHS}
        for function in found:
            if isinstance(function, types.FunctionType):
                _compute_at_capture(function)


_register()


@builtin(json.loads)
def _loads(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    """New containers for each call. Functions of the program among the arguments would run at capture: then it is not known."""
    if len(args) != 1 or kwargs or type(args[0]) is not Const:
        return None
    made: list[Any] = []

    def load(text: Any) -> None:
        made.append(json.loads(text))

    compute(domain, load, domain.use(args[0]))  # it may raise
    return from_raw(domain, made[0])


_SHAPING = frozenset({"skipkeys", "ensure_ascii", "check_circular", "allow_nan", "indent", "separators", "sort_keys"})


@builtin(json.dumps)
def _dumps(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if len(args) != 1 or not set(kwargs) <= _SHAPING:
        return None
    return computed(domain, json.dumps, args, kwargs)
