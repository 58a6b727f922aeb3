"""Containers: their keys, reading real ones lazily, changing them."""

from __future__ import annotations

import enum
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from torchjit_core.guards import dict_items
from torchjit_core.paths import AccessPath, Pinned, own_attr
from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import attributes, members
from torchjit_vm.capture.atoms import base_of, stripped
from torchjit_vm.capture.reading import wrap
from torchjit_vm.capture.reasons import UNHASHABLE, UNKNOWN_OPERATION
from torchjit_vm.capture.types import type_label, type_of
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    AtomObject,
    BoundMethod,
    ByteArray,
    Const,
    DictValue,
    DictView,
    FunctionValue,
    HashKey,
    IdKey,
    IdValue,
    InstanceDict,
    Known,
    Leaf,
    ListValue,
    Obj,
    RandomState,
    Ref,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
    WeakKey,
)
from torchjit_vm.decode import VERSION

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = [
    "dict_length",
    "dict_lookup",
    "dict_pairs",
    "dict_remove",
    "dict_store",
    "instance_pairs",
    "items",
    "key_of",
    "set_entries",
    "set_items",
    "view_items",
]

# Keys.


def key_of(domain: CaptureDomain, value: Value) -> Any:
    """A hashable that compares as the object does, and equals no key of another object: that is guarded.

    Raises:
        Raised: TypeError, unhashable.
        GraphBreak: the object has its own `__hash__` or `__eq__`.
    """
    if type(value) is Const:
        return domain.use(value)
    if type(value) is Known:
        return value.obj
    if isinstance(value, (TupleValue, ListValue, DictValue, SetValue)):
        own = _own_container_key(domain, value)
        if own is not None:
            return own
    if isinstance(value, TupleValue):
        return tuple(key_of(domain, v) for v in items(domain, value))
    if type(value) is Leaf:
        if domain.leaves.type_of(value.payload) in (int, float, bool, complex):
            return domain.leaf_constant(value)
        return _identity(domain, value)
    if isinstance(value, FunctionValue):
        return _identity(domain, value)
    if type(value) is IdValue and value.function is not id:
        raise domain.graph_break(UNHASHABLE, "the number that hash() gives")
    if type(value) is RandomState:
        raise domain.graph_break(UNHASHABLE, "the state of a random generator")
    if type(value) is ByteArray:
        raise domain.error(TypeError, "unhashable type: 'bytearray'")
    if type(value) is IdValue:
        _identity(domain, value.target)
        return IdKey(value.target)
    if isinstance(value, SetValue) and issubclass(value.cls, frozenset):
        return frozenset(set_entries(domain, value))
    if isinstance(value, SliceValue) and VERSION >= (3, 12):
        raise domain.graph_break(UNHASHABLE, "a slice")
    view = isinstance(value, DictView) and value.kind != "values"
    if view or isinstance(value, (ListValue, DictValue, SetValue, SliceValue)):
        raise domain.error(TypeError, f"unhashable type: '{type_label(type_of(domain, value))}'")
    if type(value) is BoundMethod:
        raise domain.graph_break(UNHASHABLE, "a bound method")
    if isinstance(value, Obj) and issubclass(value.cls, weakref.ReferenceType):
        return _weak_key(domain, value)
    if isinstance(value, Obj):
        return _object_key(domain, value)
    return Ref(value)


def _own_container_key(domain: CaptureDomain, value: TupleValue | ListValue | DictValue | SetValue) -> HashKey | None:
    """The key of a container whose class has its own rules; None for those of C."""
    if value.cls in (tuple, list, dict, set, frozenset):
        return None
    hashes, equals = (members.find_member(domain, value.cls, name) for name in ("__hash__", "__eq__"))
    if hashes.raw is None:
        raise domain.error(TypeError, f"unhashable type: '{type_label(value.cls)}'")
    if hashes.kind == members.FUNCTION:
        return _hashed_key(domain, value)
    if equals.kind == members.FUNCTION or hashes.raw is object.__hash__:
        raise domain.graph_break(UNHASHABLE, value.cls.__name__)
    return None


def _weak_key(domain: CaptureDomain, value: Obj) -> Any:
    """The key of a weak reference: it hashes and compares as what it leads to."""
    from torchjit_vm.capture import weak_references  # noqa: PLC0415  which reads what containers read

    target = weak_references.referent(domain, value)
    if target is None:
        return _identity(domain, value)
    return WeakKey(key_of(domain, target), value)


def _identity(domain: CaptureDomain, value: Value) -> Any:
    """The key of what compares by identity. Two of the caller's objects that are keys must stay two objects."""
    path = _outside(value)
    if path is not None and isinstance(value, FunctionValue):
        domain.guard_id(path, value.real)
        return value.real  # as for functions that are known
    if path is not None:
        domain.keys_by_identity[value] = None
    return Ref(value)


def _outside(value: Value) -> AccessPath | None:
    """How an object of the caller is reached; None for what the region made, and for what is the same in every call."""
    path: AccessPath | None = getattr(value, "path", None)
    return None if path is None or type(path) is Pinned or getattr(value, "real", NEW) is NEW else path


def settle_key(domain: CaptureDomain, key: Any) -> Any:
    """`key`, which is about to be compared with the keys of a real container: from now on it is this very object."""
    if type(key) in (tuple, frozenset):
        return type(key)(settle_key(domain, part) for part in key)
    if type(key) is Ref and (path := _outside(key.value)) is not None:
        domain.guard_id(path, getattr(key.value, "real", NEW))
    if type(key) is WeakKey:
        return WeakKey(settle_key(domain, key.key), key.reference)
    if type(key) is IdKey and (path := _outside(key.target)) is not None:
        real = getattr(key.target, "real", NEW)
        domain.guard_id(path, real)
        return id(real)
    return key


def _object_key(domain: CaptureDomain, value: Obj) -> Any:
    plain = stripped(domain, value, "__hash__", "__eq__")
    if plain is not value:
        return key_of(domain, plain)
    own = False
    for name, default in _IDENTITY:
        member = members.find_member(domain, value.cls, name)
        if member.raw is None:
            raise domain.error(TypeError, f"unhashable type: '{value.cls.__name__}'")
        if type(member.raw) is types.FunctionType:
            return _hashed_key(domain, value)
        own = own or member.raw is not default
    return _immutable_key(domain, value) if own else _identity(domain, value)


_IDENTITY = (("__hash__", object.__hash__), ("__eq__", object.__eq__))


def _immutable_key(domain: CaptureDomain, value: Obj) -> Any:
    """The key of an object that C code hashes and compares (a date, an instance of a subclass of str): it does so itself."""
    if value.real is NEW or value.path is None:
        raise domain.graph_break(UNHASHABLE, value.cls.__name__)
    if type(value.path) is not Pinned:
        domain.guard_id(value.path, value.real)
    return value.real


def _hashed_key(domain: CaptureDomain, value: Obj) -> HashKey:
    """The key of an object with its own `__hash__` and `__eq__`, which are interpreted."""
    member = members.find_member(domain, value.cls, "__hash__")
    if type(member.raw) is types.FunctionType:
        found = domain.vm.call(domain.vm.finish(attributes.bind(domain, member, value)), [])
        if type(found) is IdValue:  # of another object, or of a tuple of them: numbers that are only compared
            number = hash(key_of(domain, found.target)) if found.function is hash else id(found.target)
        elif type(found) is Const and isinstance(found.value, int):
            number = as_hash(domain.use(found))
        elif issubclass(type_of(domain, found), int):
            raise domain.graph_break(UNHASHABLE, value.cls.__name__)
        else:
            raise domain.error(TypeError, "__hash__ method should return an integer")
    elif type(value) is AtomObject:
        number = hash(domain.use(base_of(value)))
    elif isinstance(value, TupleValue) and member.raw is tuple.__hash__:
        number = hash(tuple(key_of(domain, v) for v in items(domain, value)))
    else:
        number = id(value)
    return HashKey(value, number, lambda key, mine: _equal_keys(domain, key, mine))


def as_hash(answer: int) -> int:
    """The hash that `__hash__` gave: what fits is taken as it is. Source: slot_tp_hash in CPython's Objects/typeobject.c."""
    if not -(1 << 63) <= answer < 1 << 63:
        return hash(answer)
    return -2 if answer == -1 else int(answer)


def _equal_keys(domain: CaptureDomain, key: Any, mine: Value) -> bool:
    """Does a key of the same hash belong to an object that is equal to this one?"""
    from torchjit_vm.capture import comparisons  # noqa: PLC0415  the modules know one another

    if type(key) in (HashKey, Ref):
        return comparisons.same_or_equal(domain, key.value, mine)
    if not _is_atom(key) or type(key) is tuple:
        raise domain.graph_break(UNHASHABLE, type(key).__name__)
    return comparisons.same_or_equal(domain, Const(key), mine)


def _real_key(key: Any) -> Any:
    """The key to look up in a real dict; DELETED if no real dict can hold it."""
    if type(key) is Ref:
        real = getattr(key.value, "real", NEW)
        return DELETED if real is NEW else real
    if type(key) is IdKey:
        return DELETED
    if type(key) is WeakKey:
        below = _real_key(key.key)
        return DELETED if below is DELETED else _real_reference(key.reference, below)
    if type(key) is HashKey:
        raise GraphBreak(UNHASHABLE, getattr(key.value, "cls", type(key.value)).__name__, None)
    if type(key) is tuple:
        parts = tuple(_real_key(k) for k in key)
        return DELETED if DELETED in parts else parts
    return key


def _real_reference(reference: Obj, target: Any) -> Any:
    """A weak reference that finds those to an object among the keys of a dict."""
    return weakref.ref(target) if reference.real is NEW else reference.real


# Sequences.


def items(domain: CaptureDomain, value: ListValue | TupleValue) -> list[Value]:
    """The items of a list or tuple, read and guarded at the first call. Do not change the result."""
    found = value.items
    if found is None:
        real, path = value.real, value.path
        if path is None:
            raise AssertionError("a real container without a path")
        if type(path) is not Pinned or not isinstance(real, tuple):
            domain.guard_length(path, len(real))
        if isinstance(real, deque):
            domain.guard_value(path.attr("maxlen"), real.maxlen)
        found = value.items = [wrap(domain, item, path.item(i)) for i, item in enumerate(stored(real))]
    return found


def stored(real: Any) -> Iterator[Any]:
    """The items of a sequence or set, past a subclass's own `__iter__`."""
    for base in _ITERATED:
        if isinstance(real, base):
            found: Iterator[Any] = base.__iter__(real)
            return found
    return iter(real)


_ITERATED: tuple[Any, ...] = (list, tuple, deque, set, frozenset)


def maximum(value: ListValue) -> int | None:
    """`maxlen` of a deque."""
    if value.limit is not None or value.real is NEW:
        return value.limit
    found: int | None = getattr(value.real, "maxlen", None)
    return found


def trim(domain: CaptureDomain, value: ListValue, *, left: bool) -> None:
    """Drop what is too much for a bounded deque, at the left or the right end."""
    limit = maximum(value)
    if limit is not None and value.items is not None and len(value.items) > limit:
        excess = len(value.items) - limit
        if left:
            del value.items[:excess]
        else:
            del value.items[limit:]


def change(domain: CaptureDomain, value: ListValue) -> list[Value]:
    """The items of a list that is about to change."""
    found = items(domain, value)
    domain.touch(value)
    if value.before is None and value.real is not NEW:
        value.before = list(found)
    return found


# Dicts.


def _load(domain: CaptureDomain, value: DictValue) -> None:
    """Read every key of a real dict, keeping what was stored meanwhile."""
    real, path = value.real, value.path
    if path is None:
        raise AssertionError("a real dict without a path")
    found = dict_items(real)
    domain.guard_keys(path, tuple(key for key, _ in found))
    partial, value.entries = {settle_key(domain, key): entry for key, entry in value.entries.items()}, {}
    for raw, item in found:
        key = _wrap_key(domain, raw)
        if key in partial:
            stored = partial[key]
            if stored is None or key in value.removed:
                continue
            del partial[key]
            value.entries[key] = (_key_value(domain, raw, key), stored[1])
        else:
            value.entries[key] = (_key_value(domain, raw, key), wrap(domain, item, path.item(raw)))
    for key, entry in partial.items():
        if entry is not None:
            value.entries[key] = entry
    value.loaded = True


def _wrap_key(domain: CaptureDomain, raw: Any) -> Any:
    found = domain.interned.get(id(raw))
    if found is not None and isinstance(found, (Obj, Leaf)) and not isinstance(found, TupleValue):
        return key_of(domain, found)
    if isinstance(raw, (enum.Enum, type)):
        return raw
    if _has_own_equality(type(raw)) and not isinstance(raw, weakref.ReferenceType):
        return raw
    value = wrap(domain, raw, Pinned.of(raw, "key"))
    return key_of(domain, value)


def _has_own_equality(cls: Any) -> bool:
    return cls.__eq__ is not object.__eq__


def _key_value(domain: CaptureDomain, raw: Any, key: Any) -> Value:
    if type(key) is Ref:
        return key.value
    if type(key) is WeakKey:
        return key.reference
    return wrap(domain, raw, Pinned.of(raw, "key")) if not _is_atom(raw) else Const(raw)


def _is_atom(raw: Any) -> bool:
    return type(raw) in (str, int, float, bool, bytes, type(None), tuple)


def dict_lookup(domain: CaptureDomain, value: DictValue, key: Any) -> Value | None:
    """The value under a key (of `key_of`), or None."""
    entries = value.entries
    if value.real is not NEW and (value.loaded or key not in entries):
        key = settle_key(domain, key)
    if key in entries:
        entry = entries[key]
        return None if entry is None else entry[1]
    if value.loaded or value.path is None:
        return None
    raw = _real_key(key)
    if raw is DELETED:
        return None
    if dict.__contains__(value.real, raw):
        domain.guard_contains(value.path, raw, True)
        found = wrap(domain, dict.__getitem__(value.real, raw), value.path.item(raw))
        entries[key] = (_key_value(domain, raw, key), found)
        return found
    domain.guard_contains(value.path, raw, False)
    entries[key] = None
    return None


def dict_store(domain: CaptureDomain, value: DictValue, key: Any, key_value: Value, item: Value) -> None:
    """`d[key] = item`."""
    if value.real is not NEW and value.loaded:
        key = settle_key(domain, key)
    old = value.entries.get(key)
    domain.touch(value)
    if value.real is not NEW:
        before = _note_change(value, key)
        if old is None and key in value.removed and value.changed is not None:
            value.changed.pop(key)  # it comes back at the end
            value.entries.pop(key, None)
            value.changed[key] = before
    value.entries[key] = (key_value if old is None else old[0], item)


def _note_change(value: DictValue, key: Any) -> Any:
    """Note that a key of a real dict is about to change; what was there before, as in `DictValue.changed`."""
    if value.changed is None:
        value.changed = {}
    if key not in value.changed:
        entry = value.entries.get(key)
        known = value.loaded or key in value.entries
        value.changed[key] = entry[1] if entry is not None else DELETED if known else None
    return value.changed[key]


def dict_remove(domain: CaptureDomain, value: DictValue, key: Any) -> None:
    """`del d[key]`, of a key that is there."""
    domain.touch(value)
    if value.real is NEW:
        del value.entries[key]
        return
    _note_change(value, key)
    value.removed.add(key)
    if value.loaded:
        del value.entries[key]
    else:
        value.entries[key] = None


def dict_pairs(domain: CaptureDomain, value: DictValue) -> list[tuple[Value, Value]]:
    """All keys and values in order."""
    if not value.loaded:
        _load(domain, value)
    return [entry for entry in value.entries.values() if entry is not None]


def dict_length(domain: CaptureDomain, value: DictValue) -> int:
    """`len(d)`; of an unchanged real dict only the length is guarded."""
    if value.loaded:
        return len(value.entries)
    if value.changed is None and value.path is not None:
        domain.guard_length(value.path, len(value.real))
        return len(value.real)
    return len(dict_pairs(domain, value))


def view_items(domain: CaptureDomain, view: DictView) -> list[Value]:
    """The items of a dict view."""
    pairs = dict_pairs(domain, view.target)
    if view.kind == "keys":
        return [k for k, _ in pairs]
    if view.kind == "values":
        return [v for _, v in pairs]
    return [TupleValue([k, v]) for k, v in pairs]


def instance_pairs(domain: CaptureDomain, value: InstanceDict) -> list[tuple[Value, Value]]:
    """All of `vars(obj)`."""
    owner = value.owner
    found: dict[str, Value] = {}
    if owner.real is not NEW and owner.path is not None:
        real = own_attr(owner.real, "__dict__")
        domain.guard_keys(owner.path.attr("__dict__"), tuple(real))
        for name in real:
            attribute = attributes.instance_attr(domain, owner, name)
            if attribute is not None and (owner, name) not in domain.restored:
                found[name] = attribute
    for name, attribute in owner.attrs.items():
        member = members.find_member(domain, owner.cls, name)
        if attribute is not DELETED and member.kind not in (members.SLOT, members.GETSET):
            found[name] = attribute
    return [(Const(k), v) for k, v in found.items()]


def instance_snapshot(domain: CaptureDomain, value: InstanceDict) -> DictValue:
    """A new dict with what `vars(obj)` holds now."""
    made = DictValue()
    made.entries = {cast(Const, k).value: (k, v) for k, v in instance_pairs(domain, value)}
    return made


# Sets.


def set_entries(domain: CaptureDomain, value: SetValue) -> dict[Any, Value]:
    """Element keys to elements. A real set is guarded as a whole."""
    found = value.entries
    if found is None:
        real, path = value.real, value.path
        if path is None:
            raise AssertionError("a real set without a path")
        elements = list(stored(real))
        for element in elements:
            if not (_is_atom(element) or isinstance(element, _NAMED) or _is_c_function(element)):
                raise domain.graph_break(UNKNOWN_OPERATION, "a set of objects")
        domain.guard_set(path, real)
        found = value.entries = {e: Const(e) if _is_atom(e) else Known(e) for e in elements}
    return found


_NAMED = (
    type, enum.Enum, types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
"""What is found in a set by its identity, and is the same object whenever it is named."""


def _is_c_function(obj: object) -> bool:
    """A function of a module written in C; a method is a new object each time."""
    return isinstance(obj, types.BuiltinFunctionType) and isinstance(obj.__self__, (types.ModuleType, type(None)))


def sought_key(domain: CaptureDomain, value: Value, container: SetValue | None) -> object:
    """The key that a set (None: a constant one) is searched for; a set is taken for the frozenset of its elements."""
    if isinstance(value, SetValue) and not issubclass(value.cls, frozenset):
        value = SetValue(dict(set_entries(domain, value)), frozenset)
    key = key_of(domain, value)
    return settle_key(domain, key) if container is None or container.real is not NEW else key


def set_items(domain: CaptureDomain, value: SetValue) -> list[Value]:
    """The elements in the order of iteration, which depends on their hashes."""
    entries = set_entries(domain, value)
    if not value.changed and value.real is not NEW:
        return list(entries.values())
    layout = layout_of(domain, value)
    return list(entries.values()) if layout is None else [entries[key] for key in layout]


def is_ordered(keys: Iterable[Any]) -> bool:
    """Is the order of a set of these keys settled? What is hashed by its identity has none that a program could rely on."""
    return not any(type(key) in (Ref, HashKey, IdKey, WeakKey) for key in keys)


def layout_of(domain: CaptureDomain, value: SetValue) -> set[Any] | None:
    """A set of the keys that iterates as the set does, if there is one (`is_ordered`)."""
    if value.layout is None:
        entries = set_entries(domain, value)
        if not is_ordered(entries):
            return None
        return set(iter(entries))  # one by one: a dict as a whole would be given room first
    return value.layout


def set_change(domain: CaptureDomain, value: SetValue) -> dict[Any, Value]:
    """The elements of a set that is about to change. What changes them keeps `layout` up to it, or drops it."""
    found = set_entries(domain, value)
    domain.touch(value)
    value.changed = True
    return found


def new_set(domain: CaptureDomain, values: Iterable[Value], cls: type = set) -> SetValue:
    """A set of these elements: of equal ones the first."""
    made: dict[Any, Value] = {}
    for value in values:
        made.setdefault(key_of(domain, value), value)
    return SetValue(made, cls)


def set_insert(domain: CaptureDomain, value: SetValue, key: Any, element: Value) -> None:
    """Add an element."""
    set_change(domain, value).setdefault(key, element)
    if value.layout is not None:
        if is_ordered((key,)):
            value.layout.add(key)
        else:
            value.layout = None


def set_remove(domain: CaptureDomain, value: SetValue, key: Any) -> None:
    """Take an element out; its place stays taken for those that come later."""
    if value.layout is None:
        value.layout = layout_of(domain, value)
    set_change(domain, value).pop(key, None)
    if value.layout is not None:
        value.layout.discard(key)


def set_replace(domain: CaptureDomain, value: SetValue, result: SetValue) -> None:
    """Give a set the elements of another one that nobody else has."""
    found, kept = set_change(domain, value), dict(result.entries or {})
    found.clear()
    found.update(kept)
    value.layout = result.layout


def copy_dict(domain: CaptureDomain, value: DictValue) -> DictValue:
    """A shallow copy."""
    made = DictValue(value.cls)
    dict_pairs(domain, value)
    made.entries = dict(value.entries)
    made.factory = value.factory
    return made
