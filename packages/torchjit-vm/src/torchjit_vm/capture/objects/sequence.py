"""Lists, deques, tuples, and instances of classes derived from them."""

from __future__ import annotations

import operator
import types
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture import collecting, elements
from torchjit_vm.capture.comparisons import compare, compare_methods, same_or_equal
from torchjit_vm.capture.elements import copy_deque, plain_base
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import ListValue, TupleValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__: list[str] = []


def _richcompare(domain: CaptureDomain, function: Any, self: ListValue | TupleValue, other: Value) -> Value | None:
    if not isinstance(other, type(self)) or plain_base(self.cls) is not plain_base(other.cls):
        return None
    a, b = elements.items(domain, self), elements.items(domain, other)
    equality = function in (operator.eq, operator.ne)
    if equality and len(a) != len(b):
        return domain.constant(function is operator.ne)
    for x, y in zip(a, b, strict=False):
        if not same_or_equal(domain, x, y):
            return domain.constant(function is operator.ne) if equality else compare(domain, function, x, y)
    return domain.constant(bool(function(len(a), len(b))))


def _concat_lists(domain: CaptureDomain, self: ListValue, other: Value) -> Value | None:
    if not isinstance(other, ListValue) or plain_base(self.cls) is not plain_base(other.cls):
        return None
    if plain_base(self.cls) is list:
        return ListValue(elements.items(domain, self) + elements.items(domain, other))
    more = list(elements.items(domain, other))
    return _cut(domain, copy_deque(domain, self), lambda items: [*items, *more])


def _repeat_list(domain: CaptureDomain, self: ListValue, count: int) -> Value:
    if plain_base(self.cls) is list:
        return ListValue(elements.items(domain, self) * count)
    return _cut(domain, copy_deque(domain, self), lambda items: items * count)


def _cut(domain: CaptureDomain, made: ListValue, change: Callable[[list[Value]], list[Value]]) -> ListValue:
    """A new deque with other items, as many as it may hold."""
    made.items = change(elements.items(domain, made))
    elements.trim(domain, made, left=True)
    return made


def _change_list(domain: CaptureDomain, function: Any, self: ListValue, other: Value) -> Value | None:
    if function is operator.iadd:
        collecting.extend(domain, self, other)
        return self
    if function is not operator.imul or not hasattr(type_of(domain, other), "__index__"):
        return None
    count = domain.index(other)
    target = elements.change(domain, self)
    target[:] = target * count
    elements.trim(domain, self, left=True)
    return self


def _concat_tuples(domain: CaptureDomain, self: TupleValue, other: Value) -> Value | None:
    if not isinstance(other, TupleValue):
        return None
    both = elements.items(domain, self) + elements.items(domain, other)
    return TupleValue(both, _tuple_class(operator.add, self.cls, other.cls))


def _repeat_tuple(domain: CaptureDomain, self: TupleValue, count: int) -> Value:
    return TupleValue(elements.items(domain, self) * count, _tuple_class(operator.mul, self.cls, int))


def _tuple_class(function: Any, left: type, right: type) -> type:
    """The class of `left + right` or `left * right`; a tuple class of C may give its own, which is asked with empty ones."""
    if any(c is not tuple and issubclass(c, tuple) and _is_c(c, "__add__", "__mul__") for c in (left, right)):
        return type(function(left(), right()))
    return tuple


def _is_c(cls: type, *names: str) -> bool:
    """Has a class operators of its own, written in C?"""
    return any(type(cls.__dict__.get(name)) is types.WrapperDescriptorType for name in names)


register(
    ListValue,
    TypeSlots(richcompare=_richcompare, inplace=_change_list, concat=_concat_lists, repeat=_repeat_list),
)
register(TupleValue, TypeSlots(richcompare=_richcompare, concat=_concat_tuples, repeat=_repeat_tuple))
compare_methods(list, tuple, deque)
