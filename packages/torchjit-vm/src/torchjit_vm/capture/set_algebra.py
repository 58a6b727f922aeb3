"""Operators of sets and of the views of a dict."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

from torchjit_vm.capture import dicts, elements, iteration, keys, sets
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.type_slots import Op
from torchjit_vm.capture.values import Const, DictValue, DictView, Key, SetValue, Value

__all__ = ["is_set_view", "refuse_numbers", "set_binary", "set_keys"]


def is_set_view(value: Value) -> bool:
    """Is it `d.keys()` or `d.items()`?"""
    return isinstance(value, DictView) and value.kind != "values"


_METHODS: dict[Op, Callable[..., set[Key]]] = {
    operator.or_: set.union,
    operator.and_: set.intersection,
    operator.sub: set.difference,
    operator.xor: set.symmetric_difference,
}
_IN_PLACE: dict[Op, Callable[..., None]] = {
    operator.or_: set.update,
    operator.and_: set.intersection_update,
    operator.sub: set.difference_update,
    operator.xor: set.symmetric_difference_update,
}


def set_binary(
    domain: CaptureDomain, function: Op, left: Value, right: Value, *, source: object = None, in_place: bool = False
) -> Value | None:
    """An operator of two sets; with a view of a dict the other side may be any iterable, and the result is a set.

    Args:
        domain: the capture.
        function: the operator.
        left, right: the operands.
        source: what a method is given in the place of the right operand (`set_source`).
        in_place: the result takes the place of the left one.
    """
    view = is_set_view(left) or is_set_view(right)
    if function not in _ENTRIES or not (view or isinstance(left, SetValue) or isinstance(right, SetValue)):
        return None
    a, b = (_elements(domain, v) if view else set_keys(domain, v) for v in (left, right))
    if a is None or b is None:
        return None
    refuse_numbers(domain, a, b)
    made = SetValue(_ENTRIES[function](a, b), frozenset if _is_frozen(left) and not view else set)
    first, second = _real(domain, left), _real(domain, right)
    if first is not None and second is not None:
        made.layout = _laid_out(function, first, second if source is None else source, source is not None, in_place)
    return made


_Entries = dict[Key, Value]


def refuse_numbers(domain: CaptureDomain, a: _Entries, b: _Entries) -> None:
    """Break where `id` numbers are among what is compared with objects."""
    if domain.has_numbers:
        keys.refuse_numbers(domain, a, b)
        keys.refuse_numbers(domain, b, a)


def _union(a: _Entries, b: _Entries) -> _Entries:
    return {**a, **{k: v for k, v in b.items() if k not in a}}


def _intersection(a: _Entries, b: _Entries) -> _Entries:
    few, many = (b, a) if len(b) <= len(a) else (a, b)  # equal elements may differ: those of the smaller set stay
    return {k: v for k, v in few.items() if k in many}


def _difference(a: _Entries, b: _Entries) -> _Entries:
    return {k: v for k, v in a.items() if k not in b}


_ENTRIES: dict[Op, Callable[[_Entries, _Entries], _Entries]] = {
    operator.or_: _union,
    operator.and_: _intersection,
    operator.sub: _difference,
    operator.xor: lambda a, b: _difference(a, b) | _difference(b, a),
}


def _laid_out(function: Op, left: Any, right: Any, by_method: bool, in_place: bool) -> set[Key]:
    """The keys as C combines them, which decides the order of iteration."""
    if in_place:
        _IN_PLACE[function](left, right)
        return cast("set[Key]", left)
    found: Any = _METHODS[function](left, right) if by_method else function(left, right)
    return found if type(found) is set else set(found)


def set_source(domain: CaptureDomain, value: Value, content: SetValue) -> object:
    """What stands for a set, dict or other iterable that a method of sets is given; None if its order is not settled."""
    layout = sets.layout_of(domain, content)
    if layout is None or isinstance(value, SetValue):
        return layout
    ordered = content.entries or {}
    return dict.fromkeys(ordered) if isinstance(value, DictValue) and value.cls is dict else list(ordered)


def laid_out_union(domain: CaptureDomain, target: SetValue, other: Value) -> set[Key] | None:
    """How `target.update(other)` leaves the set, where C makes room for all of the elements first: for sets and dicts."""
    source: Any = None
    if isinstance(other, SetValue):
        source = sets.layout_of(domain, other)
    elif type(other) is Const and type(other.value) is frozenset:
        source = domain.use(other)
    elif isinstance(other, DictValue) and other.cls is dict:
        source = {keys.key_of(domain, k): None for k, _ in dicts.dict_pairs(domain, other)}
    layout = None if source is None or not sets.is_ordered(source) else sets.layout_of(domain, target)
    if layout is None:
        return None
    made = layout.copy()
    made.update(source)
    return made


def _is_frozen(value: Value) -> bool:
    return type(value) is Const or (isinstance(value, SetValue) and issubclass(value.cls, frozenset))


def _real(domain: CaptureDomain, value: Value) -> object:
    """A set, a view or a list of the keys, which C combines in the order of its own; None if they have none.

    What a view's set, or a set made of a dict, begins with is given room first, so that a dict is needed.
    """
    if type(value) is Const:
        return value.value
    if isinstance(value, SetValue):
        return sets.layout_of(domain, value)
    ordered: list[Any] = list(_elements(domain, value))
    if not sets.is_ordered(ordered):
        return None
    if not isinstance(value, DictView):
        return ordered
    return dict.fromkeys(ordered).keys() if value.kind == "keys" else dict(ordered).items()


def _elements(domain: CaptureDomain, value: Value) -> dict[Key, Value]:
    found = set_keys(domain, value)
    return {keys.key_of(domain, v): v for v in iteration.items_of(domain, value)} if found is None else found


def set_keys(domain: CaptureDomain, value: Value) -> dict[Key, Value] | None:
    """Element keys to elements of a set or a view that is like one; None for anything else."""
    if isinstance(value, SetValue):
        return elements.set_entries(domain, value)
    if isinstance(value, DictView) and value.kind != "values":
        return {keys.key_of(domain, v): v for v in dicts.view_items(domain, value)}
    if type(value) is Const and type(value.value) is frozenset:
        return {v: Const(v) for v in value.value}
    return None
