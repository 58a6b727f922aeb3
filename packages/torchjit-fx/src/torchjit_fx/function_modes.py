"""Torch function modes that a region enters: what torch would hand to the mode for a call."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Sequence
from typing import Any, final

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode, get_testing_overrides
from torch.utils._device import _device_constructors

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import leaves_in, map_raw
from torchjit_fx.intrinsics import INTRINSICS
from torchjit_fx.leaves import Function, OpaqueLeaf, Raw, RawArgs, RawKwargs, TensorLeaf
from torchjit_fx.modes import MODE_READERS, MODE_SETTERS
from torchjit_fx.ownership import CONSTANT_FUNCTIONS

__all__ = ["asks_for_modes", "seen_by_function_modes"]

_ASKING = frozenset(
    getattr(owner, name)
    for owner in (torch._C, torch.overrides)
    for name in (
        "_has_torch_function",
        "_has_torch_function_unary",
        "_has_torch_function_variadic",
        "has_torch_function",
        "has_torch_function_unary",
        "has_torch_function_variadic",
        "_is_torch_function_mode_enabled",
    )
    if hasattr(owner, name)
)
_NOT_SHOWN: Any = frozenset(getattr(torch.Tensor, name) for name in ("as_subclass", "_make_subclass"))
_OPERATORS = frozenset(f for f in vars(operator).values() if callable(f)) | {getattr, len, abs, round, divmod, pow}


_OF_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
"""A call of one of these is shown under its own name, or not at all; Python may make other calls."""


def asks_for_modes(fn: object) -> bool:
    """Does this function ask whether a mode, or a tensor of another class, gets to see calls?"""
    return fn in _ASKING


@functools.cache
def _overridable() -> frozenset[Any]:
    constructors: Raw = _device_constructors
    return frozenset(get_testing_overrides()) | frozenset(constructors())


@final
class _Seen(Exception):
    """Raised to end a call once it is known what a mode sees of it."""

    def __init__(self, what: tuple[Any, ...]) -> None:
        super().__init__()
        self.what = what


@final
class _Look(TorchFunctionMode):
    def __torch_function__(self, *what: Raw) -> Raw:
        raise _Seen(what)


def seen_by_function_modes(
    domain: CallDomain, fn: Function, args: RawArgs, kwargs: RawKwargs
) -> tuple[Any, ...] | None:
    """The arguments of the mode's `__torch_function__`, found by making the call on fakes, up to the mode.

    None for a call that torch shows to no mode.

    Raises:
        GraphBreak: it cannot be found out.
    """
    if _is_never_shown(fn):
        return None
    found = leaves_in((args, kwargs))
    if any(isinstance(leaf, OpaqueLeaf) for leaf in found):
        raise GraphBreak(breaks.MODE_OBJECT, f"{fn} of a tensor that cannot be captured")
    if not _is_always_shown(fn):
        if not any(isinstance(leaf, TensorLeaf) for leaf in found):
            return None
        if fn not in _OPERATORS and not isinstance(fn, _OF_C):
            raise GraphBreak(breaks.MODE_OBJECT, f"{getattr(fn, '__qualname__', fn)} under a torch function mode")
    fakes = {id(leaf): domain.metas.fake(leaf) for leaf in found}
    leaves = {id(fakes[id(leaf)]): leaf for leaf in found}
    given, named = map_raw((args, kwargs), lambda leaf: fakes[id(leaf)])
    try:
        with _Look():
            fn(*given, **named)
    except _Seen as seen:
        return tuple([_back(item, leaves) for item in seen.what])
    except Exception as error:  # it fails before any mode would see it: so it does for real
        raise GraphBreak(breaks.META_FAILED, f"{type(error).__name__}: {error}") from error
    return None


def _is_never_shown(fn: Function) -> bool:
    own = fn in _NOT_SHOWN or fn in MODE_READERS or fn in MODE_SETTERS or fn in INTRINSICS
    return own or (fn in CONSTANT_FUNCTIONS and fn not in _overridable())


def _is_always_shown(fn: Function) -> bool:
    return fn in _overridable() or isinstance(fn, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))


def _back(value: Raw, leaves: dict[int, Any]) -> Raw:
    """From fakes to leaves."""
    found = leaves.get(id(value))
    if found is not None:
        return found
    if isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise GraphBreak(breaks.MODE_OBJECT, "the mode would be given a tensor that the program did not give")
    if value is FakeTensor:
        return torch.Tensor
    if isinstance(value, dict):
        return {key: _back(item, leaves) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*[_back(item, leaves) for item in (value.start, value.stop, value.step)])
    if type(value) in (tuple, list):
        made: Sequence[Raw] = [_back(item, leaves) for item in value]
        return tuple(made) if type(value) is tuple else made
    return value
