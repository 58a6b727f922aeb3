"""The border to the leaf handler: values to raw objects and back."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any, cast

from torchjit_core.paths import Pinned
from torchjit_vm.capture.atoms import base_of, is_plain
from torchjit_vm.capture.policy import NewObject
from torchjit_vm.capture.reading import MADE_ATOMS, pinned
from torchjit_vm.capture.reasons import OPAQUE_OBJECT
from torchjit_vm.capture.values import (
    NEW,
    AtomObject,
    Const,
    DictValue,
    DictView,
    Known,
    Leaf,
    ListValue,
    Obj,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["constant_of", "from_raw", "has_leaf", "is_constant", "to_raw"]


def to_raw(domain: CaptureDomain, value: Value) -> Any:
    """Constants as themselves, leaves as payloads, containers rebuilt.

    Raises:
        GraphBreak: the value has no raw form.
    """
    t = type(value)
    if t is Leaf:
        return value.payload  # type: ignore[attr-defined]  # t is Leaf
    if t is Const:
        return domain.use(value)
    if t is Known:
        return value.obj  # type: ignore[attr-defined]
    if isinstance(value, TupleValue):
        return _raw_tuple(domain, value)
    if isinstance(value, ListValue) and value.cls is not None:
        return [to_raw(domain, v) for v in domain.unpack_all(value)]
    if isinstance(value, DictValue):
        pairs = domain.pairs(value)
        return {to_raw(domain, k): to_raw(domain, v) for k, v in pairs}
    if isinstance(value, SetValue):
        elements = [to_raw(domain, v) for v in domain.unpack_all(value)]
        return frozenset(elements) if issubclass(value.cls, frozenset) else set(elements)
    if isinstance(value, SliceValue):
        return slice(to_raw(domain, value.start), to_raw(domain, value.stop), to_raw(domain, value.step))
    if type(value) is AtomObject and (value.real is NEW or type(value.path) is not Pinned):
        return domain.use(base_of(value))
    if (
        isinstance(value, Obj)
        and value.real is not NEW
        and value.path is not None
        and not value.written
        and value not in domain.touched
    ):
        if type(value.path) is not Pinned:
            domain.guard_id(value.path, value.real)
        return value.real
    if isinstance(value, DictView) or hasattr(type(value), "advance"):
        return [to_raw(domain, v) for v in domain.unpack_all(value)]
    raise domain.graph_break(OPAQUE_OBJECT, getattr(value, "cls", type(value)).__name__)


def _raw_tuple(domain: CaptureDomain, value: TupleValue) -> Any:
    return _tuple_of(value.cls, tuple(to_raw(domain, v) for v in domain.unpack_all(value)))


def _tuple_of(cls: type, items: tuple[Any, ...]) -> Any:
    if cls is tuple:
        return items
    try:
        return tuple.__new__(cls, items)
    except TypeError:  # a tuple of C makes its own instances
        pass
    try:
        return cls.__new__(cls, items)
    except TypeError:  # such as a torch.Size over leaves: the class may decide what a call does
        return NewObject(cls, items)


def from_raw(domain: CaptureDomain, raw: Any) -> Value:
    """Wrap what the leaf handler gave back."""
    t = type(raw)
    if t in domain.leaves.leaf_types:
        found = domain.payloads.get(id(raw))
        if found is None:
            found = domain.payloads[id(raw)] = Leaf(raw)
        return found
    if t in MADE_ATOMS or t in domain.policy.value_types:
        return Const(raw)
    if t is NewObject:
        items = [from_raw(domain, r) for r in raw.items]
        if issubclass(raw.type, tuple):
            return TupleValue(items, raw.type)
        return ListValue(items, raw.type)
    if isinstance(raw, tuple):
        return TupleValue([from_raw(domain, r) for r in raw], t)
    if isinstance(raw, list):
        return ListValue([from_raw(domain, r) for r in raw], t)
    if isinstance(raw, dict):
        made = DictValue(t)
        for key, item in raw.items():
            made.entries[key] = (from_raw(domain, key), from_raw(domain, item))
        return made
    if isinstance(raw, (set, frozenset)):
        return SetValue({r: from_raw(domain, r) for r in raw}, t)
    if isinstance(raw, slice):
        return SliceValue(*(from_raw(domain, r) for r in (raw.start, raw.stop, raw.step)))
    return pinned(domain, raw, getattr(raw, "__name__", t.__name__))


def has_leaf(value: Value) -> bool:
    """Is the value a leaf, or a loaded container with one?"""
    if type(value) is Leaf:
        return True
    if type(value) is Const:
        return value.made is not None and not value.used
    if isinstance(value, ListValue) and value.items is None:
        return any(map(has_leaf, value.added))
    if isinstance(value, (ListValue, TupleValue)):
        return any(has_leaf(v) for v in value.items or ())
    if isinstance(value, DictValue):
        return any(e is not None and has_leaf(e[1]) for e in value.entries.values())
    return isinstance(value, SliceValue) and any(map(has_leaf, (value.start, value.stop, value.step)))


def is_constant(domain: CaptureDomain, value: Value) -> bool:
    """Can the value be computed with at capture (atoms, identified objects, new or real containers of them)?"""
    if isinstance(value, (Const, Known)):
        return True
    if type(value) is AtomObject:
        return is_plain(domain, value)
    if isinstance(value, TupleValue):
        return all(is_constant(domain, v) for v in domain.unpack_all(value))
    if isinstance(value, (ListValue, SetValue)):
        return is_plain(domain, value) and all(is_constant(domain, v) for v in domain.unpack_all(value))
    if isinstance(value, DictValue):
        if not is_plain(domain, value) or not (value.factory is None or isinstance(value.factory, (Const, Known))):
            return False
        return all(is_constant(domain, k) and is_constant(domain, v) for k, v in domain.pairs(value))
    return isinstance(value, SliceValue) and all(is_constant(domain, v) for v in (value.start, value.stop, value.step))


def constant_of(domain: CaptureDomain, value: Value) -> Any:
    """The real object of a constant (see `is_constant`), containers rebuilt, each of its class."""
    if isinstance(value, ListValue):
        return _filled_list(value, [constant_of(domain, v) for v in domain.unpack_all(value)])
    if isinstance(value, DictValue):
        pairs = {constant_of(domain, k): constant_of(domain, v) for k, v in domain.pairs(value)}
        return _filled_dict(domain, value, pairs)
    if isinstance(value, SetValue):
        elements = [constant_of(domain, v) for v in domain.unpack_all(value)]
        if issubclass(value.cls, frozenset):
            return frozenset.__new__(value.cls, elements)
        made_set: set[Any] = set.__new__(cast(Any, value.cls))
        set.update(made_set, elements)
        return made_set
    if isinstance(value, TupleValue):
        return _tuple_of(value.cls, tuple(constant_of(domain, v) for v in domain.unpack_all(value)))
    return to_raw(domain, value)


def _filled_list(value: ListValue, items: list[Any]) -> Any:
    if issubclass(value.cls, deque):
        made: deque[Any] = deque.__new__(value.cls)
        limit = value.limit if value.real is NEW else deque.maxlen.__get__(value.real)
        deque.__init__(made, items, limit)
        return made
    if value.cls is list:
        return items
    made_list: list[Any] = list.__new__(cast(Any, value.cls))
    list.extend(made_list, items)
    return made_list


def _filled_dict(domain: CaptureDomain, value: DictValue, pairs: dict[Any, Any]) -> Any:
    cls: Any = value.cls
    if cls is dict:
        return pairs
    if cls is types.MappingProxyType:
        return types.MappingProxyType(pairs)
    if issubclass(cls, OrderedDict):
        ordered: OrderedDict[Any, Any] = OrderedDict.__new__(cls)
        for key, item in pairs.items():
            OrderedDict.__setitem__(ordered, key, item)
        return ordered
    made: dict[Any, Any] = dict.__new__(cls)
    if issubclass(cls, defaultdict):
        factory = value.factory
        defaultdict.__init__(cast("defaultdict[Any, Any]", made), None if factory is None else to_raw(domain, factory))
    dict.update(made, pairs)
    return made
