"""What sequences and sets hold: read from real ones lazily, changed."""

from __future__ import annotations

import enum
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from torchjit_core.paths import AccessPath, Pinned
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.members import walk
from torchjit_vm.capture.reading import wrap
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.values import NEW, Const, Key, Known, ListValue, SetValue, TupleValue, Value

__all__ = [
    "append",
    "change",
    "copy_deque",
    "guarded_length",
    "is_atom",
    "items",
    "maximum",
    "plain_base",
    "set_entries",
    "stored",
    "trim",
]


def items(domain: CaptureDomain, value: ListValue | TupleValue) -> list[Value]:
    """The items of a list or tuple, read and guarded at the first call. Do not change the result."""
    found = value.items
    if found is None:
        real, path = value.real, value.path
        if path is None:
            raise AssertionError("a real container without a path")
        if type(path) is not Pinned or not issubclass(type(real), tuple):
            guarded_length(domain, path, real)
        if issubclass(type(real), deque):
            limit = path.attr("maxlen") if type(real) is deque else path.computed(bound_of)
            domain.guard_value(limit, bound_of(real))
        found = value.items = [wrap(domain, item, path.item(i)) for i, item in enumerate(stored(real))]
        if isinstance(value, ListValue) and value.added:
            added, value.added = value.added, []
            append(domain, value, added)
    return found


def guarded_length(domain: CaptureDomain, path: AccessPath, real: Any) -> int:
    """How many items a container has, past a subclass's own `__len__`, guarded."""
    base = next(base for base in _COUNTED if issubclass(type(real), base))
    length: int = base.__len__(real)
    if walk(type(real).__mro__, "__len__") is base.__len__:
        domain.guard_length(path, length)
    else:
        domain.guard_value(path.computed(length_of), length)
    return length


def length_of(real: Any) -> int | None:
    """The number of items, past a subclass's own `__len__`; None of what is no container."""
    found: int | None = next((base.__len__(real) for base in _COUNTED if issubclass(type(real), base)), None)
    return found


def stored(real: Any) -> Iterator[Any]:
    """The items of a sequence or set, past a subclass's own `__iter__`."""
    for base in _ITERATED:
        if issubclass(type(real), base):
            found: Iterator[Any] = base.__iter__(real)
            return found
    return iter(real)


_ITERATED: tuple[Any, ...] = (list, tuple, deque, set, frozenset)
_COUNTED: tuple[Any, ...] = (*_ITERATED, dict)


def maximum(value: ListValue) -> int | None:
    """`maxlen` of a deque."""
    if value.limit is not None or value.real is NEW:
        return value.limit
    return bound_of(value.real)


def bound_of(real: object) -> int | None:
    """`maxlen` of a deque, past what a subclass has under that name; None of a list."""
    found: int | None = deque.maxlen.__get__(real) if issubclass(type(real), deque) else None
    return found


def plain_base(cls: type) -> type:
    """The class of C behind a class of lists or deques; list for those of tuples."""
    return deque if issubclass(cls, deque) else list


def copy_deque(domain: CaptureDomain, value: ListValue) -> ListValue:
    """`value.copy()`: an instance of a subclass is made by a call of its class."""
    limit = maximum(value)
    if value.cls is deque:
        made = ListValue(list(items(domain, value)), deque)
        made.limit = limit
        return made
    arguments: list[Value] = [value] if limit is None else [value, Const(limit)]
    copied = domain.vm.call(Known(value.cls), arguments)
    if not (isinstance(copied, ListValue) and issubclass(copied.cls, deque) and copied.real is NEW):
        raise domain.graph_break(UNKNOWN_OPERATION, f"a copy of a {value.cls.__name__}")
    return copied


def trim(domain: CaptureDomain, value: ListValue, *, left: bool) -> None:
    """Drop what is too much for a bounded deque, at the left or the right end."""
    limit = maximum(value)
    if limit is not None and value.items is not None and len(value.items) > limit:
        excess = len(value.items) - limit
        if left:
            del value.items[:excess]
        else:
            del value.items[limit:]


def append(domain: CaptureDomain, value: ListValue, more: Iterable[Value]) -> None:
    """Put items at the end. A real list that was not read is not read for that: it may have another length in the next call."""
    if value.items is None:
        domain.touch(value)
        value.added.extend(more)
        return
    change(domain, value).extend(more)
    trim(domain, value, left=True)


def change(domain: CaptureDomain, value: ListValue) -> list[Value]:
    """The items of a list that is about to change."""
    found = items(domain, value)
    domain.touch(value)
    if value.before is None and value.real is not NEW:
        value.before = list(found)
    return found


def is_atom(raw: object) -> bool:
    """Whether an object is what its value says, such as a number; a tuple, if each of its elements is."""
    return all(map(is_atom, raw)) if type(raw) is tuple else type(raw) in (str, int, float, bool, bytes, type(None))


def set_entries(domain: CaptureDomain, value: SetValue) -> dict[Key, Value]:
    """Element keys to elements. A real set is guarded as a whole."""
    found = value.entries
    if found is None:
        real, path = value.real, value.path
        if path is None:
            raise AssertionError("a real set without a path")
        elements = list(stored(real))
        for element in elements:
            if not _is_named(element):
                raise domain.graph_break(UNKNOWN_OPERATION, "a set of objects")
        domain.guard_set(path, real)
        found = value.entries = {e: _named(e) for e in elements}
    return found


def _is_named(raw: object) -> bool:
    if type(raw) is tuple:
        return all(map(_is_named, raw))
    return is_atom(raw) or isinstance(raw, _NAMED) or _is_c_function(raw)


def _named(raw: Any) -> Value:
    if is_atom(raw):
        return Const(raw)
    if type(raw) is tuple:
        return TupleValue([_named(e) for e in raw], tuple, raw, Pinned.of(raw, "element"))
    return Known(raw)


_NAMED = (
    type, enum.Enum, types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
"""What is found in a set by its identity, and is the same object whenever it is named."""


def _is_c_function(obj: object) -> bool:
    """A function of a module written in C; a method is a new object each time."""
    return isinstance(obj, types.BuiltinFunctionType) and isinstance(obj.__self__, (types.ModuleType, type(None)))
