"""Texts of numbers that vary between calls: emitted code makes them, and nothing is fixed unless the region looks at one.

A line that is printed or logged, a name, a message: they are made of the step or the loss, and the program only hands them on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchjit_vm.capture import library_numbers
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import NEW, Const, Leaf, TupleValue, Value

__all__ = ["joined", "made_later", "settle", "varies"]

joined = "".join


def varies(domain: CaptureDomain, value: Value) -> bool:
    """Is this a number whose value at capture is known and need not be the next call's, or was it made of such?"""
    if type(value) is Leaf:
        return domain.leaves.number(value.payload) is not None
    if type(value) is Const:
        return not value.used and (value.made is not None or library_numbers.varies(domain, value))
    return _is_tuple(value) and any(varies(domain, v) for v in value.items or ())  # type: ignore[attr-defined]


def made_later(domain: CaptureDomain, function: Callable[..., object], *args: Value) -> Const | None:
    """`function(*args)`, where `function` is pure and some argument varies; None if an argument is of another kind.

    Whether it raises depends on the arguments' types alone, as formatting does; a call that raises is not put off.
    """
    if not any(varies(domain, a) for a in args):
        return None
    try:
        made = Const(function(*(_seen(domain, a) for a in args)))
    except Exception:  # whatever a program's format raises: the call then goes its usual way, which raises it there
        return None
    made.used, made.made = False, (function, args)
    return made


def settle(domain: CaptureDomain, const: Const) -> None:
    """Fix the numbers that a text was made of: the region relies on it."""
    for arg in const.made[1] if const.made is not None else ():
        _fix(domain, arg)


def _is_tuple(value: Value) -> bool:
    return type(value) is TupleValue and value.cls is tuple and value.real is NEW and value.items is not None


def _seen(domain: CaptureDomain, value: Value) -> Any:
    if type(value) is Leaf:
        number = domain.leaves.number(value.payload)
        if number is not None:
            return number
    if type(value) is Const:
        type_of(domain, value)  # which guards the type
        return value.value
    if _is_tuple(value):
        return tuple(_seen(domain, v) for v in value.items or ())  # type: ignore[attr-defined]
    raise TypeError


def _fix(domain: CaptureDomain, value: Value) -> None:
    if type(value) is Leaf:
        domain.leaf_constant(value)
    elif type(value) is Const:
        domain.use(value)
    elif type(value) is TupleValue:
        for item in value.items or ():
            _fix(domain, item)
