"""Taking the items of iterables as C code does: it asks for a length first, and what it has taken is there at once.

An exception under way leaves what was taken before it, and code that runs meanwhile (a generator, a `__next__`) sees it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from torchjit_vm.capture import elements, iteration, lengths, members
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reasons import OPAQUE_ITERATOR
from torchjit_vm.capture.special_methods import is_not_implemented, special_call
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import Const, GeneratorValue, Known, Leaf, ListValue, Value
from torchjit_vm.frame import Raised
from torchjit_vm.type_labels import type_label

__all__ = ["collected", "each", "extend"]


def collected(domain: CaptureDomain, iterable: Value) -> list[Value]:
    """The items of a new list or tuple (`list(...)`, `tuple(...)`, `f(*...)`, `sorted(...)`)."""
    return list(each(domain, iterable, sized=True))


def extend(domain: CaptureDomain, target: ListValue, iterable: Value) -> None:
    """`target.extend(iterable)`."""
    is_deque = issubclass(target.cls, deque)
    known = elements.items(domain, target) if iterable is target else iteration.direct_items(domain, iterable)
    if known is not None:
        elements.append(domain, target, list(known))
        return
    taken = each(domain, iterable, sized=not is_deque)
    elements.append(domain, target, ())
    for item in taken:
        elements.append(domain, target, [item])


def each(domain: CaptureDomain, iterable: Value, *, sized: bool = False) -> Iterator[Value]:
    """The items, taken one after the other; the iterator is asked for at once.

    Args:
        sized: is the length of the iterable asked for, to make room?
    """
    known = iteration.direct_items(domain, iterable)
    if known is not None:
        return iter(list(known))
    iterator = iteration.get_iter(domain, iterable)
    if sized:
        _length_hint(domain, iterable)
    return _rest(domain, iterator)


def _rest(domain: CaptureDomain, iterator: Value) -> Iterator[Value]:
    count = 0
    while (item := iteration.advance(domain, iterator)) is not None:
        yield item
        count += 1
        if count > domain.policy.step_limit:
            raise domain.graph_break(OPAQUE_ITERATOR, "endless iterator")


def _length_hint(domain: CaptureDomain, iterable: Value) -> None:
    """`operator.length_hint(iterable, 8)`, for what the program's methods do there. Source: Objects/abstract.c."""
    if isinstance(iterable, (iteration.IteratorValue, GeneratorValue, Const, Leaf, Known)):
        return
    cls = type_of(domain, iterable)
    if members.find_member(domain, cls, "__len__").kind == members.FUNCTION:
        try:
            lengths.length(domain, iterable)
        except Raised as raised:
            if not issubclass(type_of(domain, raised.value), TypeError):
                raise
        else:
            return
    if members.find_member(domain, cls, "__length_hint__").kind != members.FUNCTION:
        return
    try:
        found = special_call(domain, iterable, "__length_hint__", [])
    except Raised as raised:
        if not issubclass(type_of(domain, raised.value), TypeError):
            raise
        return
    if found is None or is_not_implemented(found):
        return
    if not issubclass(type_of(domain, found), int):
        kind = type_label(type_of(domain, found))
        raise domain.error(TypeError, f"__length_hint__ must be an integer, not {kind}")
    if type(found) is Const and domain.use(found) < 0:
        raise domain.error(ValueError, "__length_hint__() should return >= 0")
