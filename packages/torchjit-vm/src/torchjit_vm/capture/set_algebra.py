"""Operators of sets and of the views of a dict."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture import containers, iteration
from torchjit_vm.capture.values import Const, DictView, SetValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["is_set_view", "set_binary", "set_keys"]


def is_set_view(value: Value) -> bool:
    """Is it `d.keys()` or `d.items()`?"""
    return isinstance(value, DictView) and value.kind != "values"


def set_binary(domain: CaptureDomain, function: Any, left: Value, right: Value) -> Value | None:
    """An operator of two sets; with a view of a dict the other side may be any iterable, and the result is a set."""
    if function not in (operator.or_, operator.and_, operator.sub, operator.xor):
        return None
    view = is_set_view(left) or is_set_view(right)
    a, b = (_elements(domain, v) if view else set_keys(domain, v) for v in (left, right))
    if a is None or b is None or not (view or isinstance(left, SetValue) or isinstance(right, SetValue)):
        return None
    if function is operator.or_:
        entries = {**a, **{k: v for k, v in b.items() if k not in a}}
    elif function is operator.and_:
        few, many = (b, a) if len(b) <= len(a) else (a, b)  # equal elements may differ: those of the smaller set stay
        entries = {k: v for k, v in few.items() if k in many}
    elif function is operator.sub:
        entries = {k: v for k, v in a.items() if k not in b}
    else:
        entries = {k: v for k, v in a.items() if k not in b} | {k: v for k, v in b.items() if k not in a}
    frozen = type(left) is Const or (isinstance(left, SetValue) and issubclass(left.cls, frozenset))
    return SetValue(entries, frozenset if frozen and not view else set)


def _elements(domain: CaptureDomain, value: Value) -> dict[Any, Value]:
    found = set_keys(domain, value)
    return {containers.key_of(domain, v): v for v in iteration.items_of(domain, value)} if found is None else found


def set_keys(domain: CaptureDomain, value: Value) -> dict[Any, Value] | None:
    """Element keys to elements of a set or a view that is like one; None for anything else."""
    if isinstance(value, SetValue):
        return containers.set_entries(domain, value)
    if isinstance(value, DictView) and value.kind != "values":
        return {containers.key_of(domain, v): v for v in containers.view_items(domain, value)}
    if type(value) is Const and type(value.value) is frozenset:
        return {v: Const(v) for v in value.value}
    return None
