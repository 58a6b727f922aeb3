"""Numbers that vary and that a kernel converts to the dtype of its result: eager refuses those that it cannot hold.

`x.fill_(n)` of bytes raises for 300. A graph is made for the numbers that fit, which a guard says; others run in eager, for its error.
Plain numbers are tried by `dtype_probe`. Python arithmetic (`x + n`) wraps, in eager and in compiled code, and is not asked about.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from torchjit_fx.eager_rules.rule import OperatorCall, Overload, Value

__all__ = ["refuse_numbers"]

_Number = torch.SymInt | torch.SymFloat


@functools.cache
def _places(func: Overload, names: frozenset[str]) -> tuple[tuple[int, str], ...]:
    """Where the schema has such numbers."""
    if func.namespace != "aten":
        return ()
    arguments = enumerate(func._schema.arguments)
    return tuple((i, a.name) for i, a in arguments if a.name in names and _is_number(a.real_type))


def _is_number(kind: Any) -> bool:
    return kind.kind() == "NumberType" or (kind.kind() == "OptionalType" and _is_number(kind.getElementType()))


def _varying(call: OperatorCall) -> list[_Number]:
    """The numbers that vary among those that this overload converts."""
    given = [call.argument(place, name) for place, name in _places(call.func, call.rule.converts)]
    return [value for value in given if isinstance(value, torch.SymInt | torch.SymFloat)]


def refuse_numbers(call: OperatorCall, result: Value) -> None:
    """Raise if a number that varies is not known to fit the dtype of the result. If it does at capture, a guard says so.

    Raises:
        RuntimeError: it does not, or only the run knows.
    """
    if not isinstance(result, torch.Tensor):
        return
    for number in _varying(call):
        limits = _limits(type(number) is torch.SymFloat, result.dtype)
        if limits is None:
            continue
        low, high = limits
        if type(number) is torch.SymFloat and (result.dtype.is_floating_point or result.dtype.is_complex):
            # Infinities and NaN are held: one question that finite numbers alone fail, so that one guard holds of them too.
            # That a float which only the run knows is beyond 1e38 is not worth a break.
            fits = (number.node.hint is None and high > 1e38) or _is_known(abs(number) + number * 0.0 > high, False)
        else:
            fits = _is_known(number >= low, True) and _is_known(number <= high, True)  # NaN fails
        if not fits:
            raise RuntimeError(f"a number that varies cannot be converted to {result.dtype} without overflow")


def _limits(is_float: bool, dtype: torch.dtype) -> tuple[Any, Any] | None:
    """What a dtype holds of ints or floats; None for all that there are."""
    if dtype is torch.bool:
        return None
    if not (dtype.is_floating_point or dtype.is_complex):
        info = torch.iinfo(dtype)
        if not is_float:
            return None if info.bits == 64 else (info.min, info.max)
        # The largest int64 is not a double: the next one is too large.
        return float(info.min), float(info.max) if info.bits < 64 else math.nextafter(2.0**63, 0)
    held = torch.finfo(dtype)
    if dtype in (torch.float64, torch.complex128) or (not is_float and held.max > 2.0**64):
        return None
    return (held.min, held.max) if is_float else (int(held.min), int(held.max))


def _is_known(condition: Value, wanted: bool) -> bool:
    """Does it have this truth at capture, with a guard, or for all values that only the run knows?"""
    if not isinstance(condition, torch.SymBool):
        return bool(condition) is wanted
    node: Value = condition.node
    return bool(condition) is wanted if node.has_hint() else node.statically_known_true() is wanted
