"""Keys: what dicts and sets find a value by."""

from __future__ import annotations

import types
import weakref
from collections.abc import Collection, Iterable

from torchjit_core.paths import AccessPath, Arg, Pinned
from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import attributes, members, weak_references
from torchjit_vm.capture.atoms import base_of, stripped
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.elements import is_atom, items
from torchjit_vm.capture.raw import to_raw
from torchjit_vm.capture.reasons import UNHASHABLE, UNKNOWN_OPERATION
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    AtomObject,
    Const,
    DictValue,
    FunctionValue,
    HashKey,
    IdKey,
    IdValue,
    Key,
    Known,
    Leaf,
    ListValue,
    Obj,
    Ref,
    SetValue,
    TupleValue,
    Value,
    WeakKey,
)
from torchjit_vm.type_labels import type_label

__all__ = [
    "as_hash",
    "identity",
    "is_number",
    "key_of",
    "note_stored",
    "number_among",
    "object_key",
    "real_key",
    "refuse_numbers",
    "settle_key",
    "settled_number",
    "unhashable",
]


def key_of(domain: CaptureDomain, value: Value) -> object:
    """A hashable that compares as the object does, and equals no key of another object: that is guarded.

    Raises:
        Raised: TypeError, unhashable.
        GraphBreak: the object has its own `__hash__` or `__eq__`.
    """
    if type(value) is Const:
        return domain.use(value)
    if type(value) is Known:
        return to_raw(domain, value)
    if isinstance(value, (TupleValue, ListValue, DictValue, SetValue)):
        own = _own_container_key(domain, value)
        if own is not None:
            return own
    if type(value) is Leaf:
        if domain.leaves.type_of(value.payload) in (int, float, bool, complex):
            return domain.leaf_constant(value)
        return identity(domain, value)
    slot = SLOTS[type(value)].hash
    return Ref(value) if slot is None else slot(domain, value)


def unhashable(domain: CaptureDomain, value: Value) -> object:
    """The slot of kinds that have no hash."""
    raise domain.error(TypeError, f"unhashable type: '{type_label(type_of(domain, value))}'")


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


def _weak_key(domain: CaptureDomain, value: Obj) -> object:
    """The key of a weak reference: it hashes and compares as what it leads to."""
    target = weak_references.referent(domain, value)
    if target is None:
        return identity(domain, value)
    return WeakKey(key_of(domain, target), value)


def identity(domain: CaptureDomain, value: Value) -> object:
    """The key of what compares by identity. Two of the caller's objects that are keys must stay two objects."""
    path = _outside(value)
    if path is not None and isinstance(value, FunctionValue):
        domain.guard_id(path, value.real)
        return value.real  # as for functions that are known
    if path is not None:
        domain.keys_by_identity[value] = path
    return Ref(value)


def _outside(value: Value) -> AccessPath | None:
    """How an object of the caller is reached; None for what the region made, and for what is the same in every call."""
    path: AccessPath | None = getattr(value, "path", None)
    return None if path is None or type(path) is Pinned or getattr(value, "real", NEW) is NEW else path


def settle_key(domain: CaptureDomain, key: Key, others: Collection[Key] | None = None) -> Key:
    """`key`, which is about to be compared with the keys of a real container: from now on it is this very object.

    Args:
        others: those keys. The number of an object is not looked at where nothing can be equal to it.

    Raises:
        GraphBreak: the number that `id` gives for an argument, mostly another one in each call.
    """
    if others is not None and is_number(key):
        if type(key) is int:
            refuse_numbers(domain, (key,), others)
            return key
        if key in others or not any(_may_be_number(domain, other) for other in others):
            return key
    if type(key) is tuple or type(key) is frozenset:
        return type(key)(settle_key(domain, part) for part in key)
    if type(key) is Ref and (path := _outside(key.value)) is not None:
        domain.guard_id(path, getattr(key.value, "real", NEW))
    if type(key) is WeakKey:
        return WeakKey(settle_key(domain, key.key), key.reference)
    if type(key) is IdKey and (path := _outside(key.value)) is not None:
        return settled_number(domain, key.value, path)
    return key


def settled_number(domain: CaptureDomain, target: Value, path: AccessPath | None = None) -> int | None:
    """`id(target)`, which is relied on; None for what the region made, whose number nobody outside has seen.

    Raises:
        GraphBreak: an argument, mostly another object in each call.
    """
    path = _outside(target) if path is None else path
    if path is None:
        return None
    if type(target) is Leaf and type(path) is Arg:
        raise domain.graph_break(UNKNOWN_OPERATION, "a decision about the number that id() gives for an argument")
    real = getattr(target, "real", NEW)
    domain.guard_id(path, real)
    return id(real)


def refuse_numbers(domain: CaptureDomain, keys: Iterable[object], others: Iterable[object]) -> None:
    """Break where numbers are looked for among those of objects that have one outside."""
    if not any(type(other) is IdKey and _outside(other.value) is not None for other in others):
        return
    if any(_may_be_number(domain, key) for key in keys):
        raise domain.graph_break(UNKNOWN_OPERATION, "a decision about the number that id() gives for an argument")


def is_number(key: object) -> bool:
    """May this be equal to a number that `id` gave?"""
    return type(key) is int or _has_number(key)


def number_among(key: object, keys: Collection[object]) -> bool:
    """Is the number of an object among these keys, where it was settled?"""
    return type(key) is IdKey and _outside(key.value) is not None and id(getattr(key.value, "real", NEW)) in keys


def _has_number(key: Key) -> bool:
    return type(key) is IdKey or ((type(key) is tuple or type(key) is frozenset) and any(map(_has_number, key)))


def _may_be_number(domain: CaptureDomain, key: object) -> bool:
    """May this be equal to the number of a tensor? Those that `id` gave for other objects are not."""
    return key not in domain.object_numbers if type(key) is int else type(key) not in _NO_NUMBERS


_NO_NUMBERS = (str, bytes, type(None), IdKey, Ref)


def object_key(domain: CaptureDomain, value: Obj) -> object:
    """The key of an instance: by the rules of its class."""
    if issubclass(value.cls, weakref.ReferenceType):
        return _weak_key(domain, value)
    plain = stripped(domain, value, "__hash__", "__eq__")
    if plain is not value:
        return key_of(domain, plain)
    own = False
    for name, default in _IDENTITY:
        member = members.find_member(domain, value.cls, name)
        if member.raw is None:
            raise domain.error(TypeError, f"unhashable type: '{type_label(value.cls)}'")
        if type(member.raw) is types.FunctionType:
            return _hashed_key(domain, value)
        own = own or member.raw is not default
    return _immutable_key(domain, value) if own else identity(domain, value)


_IDENTITY = (("__hash__", object.__hash__), ("__eq__", object.__eq__))


def _immutable_key(domain: CaptureDomain, value: Obj) -> object:
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
    return HashKey(value, number, lambda key, mine, first: _equal_keys(domain, key, mine, first))


def note_stored(key: object) -> None:
    """A container has this key now: from now on each comparison asks `__eq__`."""
    if type(key) is HashKey:
        key.answers = None


def as_hash(answer: int) -> int:
    """The hash that `__hash__` gave: what fits is taken as it is. Source: slot_tp_hash in CPython's Objects/typeobject.c."""
    if not -(1 << 63) <= answer < 1 << 63:
        return hash(answer)
    return -2 if answer == -1 else int(answer)


def _equal_keys(domain: CaptureDomain, key: Key, mine: Value, mine_first: bool) -> bool:
    """Does a key of the same hash belong to an object that is equal to this one?"""
    if type(key) not in (HashKey, Ref) and (not is_atom(key) or type(key) is tuple):
        raise domain.graph_break(UNHASHABLE, type(key).__name__)
    other = key.value if isinstance(key, (HashKey, Ref)) else Const(key)
    return domain.same_or_equal(mine, other) if mine_first else domain.same_or_equal(other, mine)


def real_key(key: object) -> object:
    """The key to look up in a real dict; DELETED if no real dict can hold it."""
    if type(key) is Ref:
        real = getattr(key.value, "real", NEW)
        return DELETED if real is NEW else real
    if type(key) is IdKey:
        return DELETED
    if type(key) is WeakKey:
        below = real_key(key.key)
        return DELETED if below is DELETED else _real_reference(key.reference, below)
    if type(key) is HashKey:
        raise GraphBreak(UNHASHABLE, getattr(key.value, "cls", type(key.value)).__name__, None)
    if type(key) is tuple:
        parts = tuple(real_key(k) for k in key)
        return DELETED if DELETED in parts else parts
    return key


def _real_reference(reference: Obj, target: object) -> object:
    """A weak reference that finds those to an object among the keys of a dict."""
    return weakref.ref(target) if reference.real is NEW else reference.real
