"""Dicts, their views and the attributes of instances: read from real ones lazily, changed."""

from __future__ import annotations

import enum
import weakref
from typing import Any, cast

from torchjit_core.guards import dict_items
from torchjit_core.paths import Pinned, own_attr
from torchjit_vm.capture import attributes, members
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.elements import guarded_length, is_atom
from torchjit_vm.capture.keys import is_number, key_of, note_stored, number_among, real_key, settle_key
from torchjit_vm.capture.reading import wrap
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    Const,
    DictValue,
    DictView,
    IdKey,
    InstanceDict,
    Leaf,
    Obj,
    Ref,
    TupleValue,
    Value,
    WeakKey,
)

__all__ = [
    "copy_dict",
    "dict_length",
    "dict_lookup",
    "dict_pairs",
    "dict_remove",
    "dict_store",
    "instance_pairs",
    "instance_snapshot",
    "view_items",
]


_UNREAD: Any = object()
"""Of a key that was not looked for."""


def _load(domain: CaptureDomain, value: DictValue) -> None:
    """Read every key of a real dict, keeping what was stored meanwhile."""
    real, path = value.real, value.path
    if path is None:
        raise AssertionError("a real dict without a path")
    found = dict_items(real)
    domain.guard_keys(path, tuple(key for key, _ in found))
    stored = [key for key, _ in found]
    partial, value.entries = {settle_key(domain, key, stored): entry for key, entry in value.entries.items()}, {}
    for raw, item in found:
        key = _wrap_key(domain, raw)
        if key in partial:
            later = partial[key]
            if later is None or key in value.removed:
                continue
            del partial[key]
            value.entries[key] = (_key_value(domain, raw, key), later[1])
        else:
            value.entries[key] = (_key_value(domain, raw, key), wrap(domain, item, path.item(raw)))
    for key, entry in partial.items():
        if entry is not None:
            value.entries[key] = entry
    value.loaded = True


def _wrap_key(domain: CaptureDomain, raw: object) -> object:
    found = domain.interned.get(id(raw))
    if found is not None and isinstance(found, (Obj, Leaf)) and not isinstance(found, TupleValue):
        return key_of(domain, found)
    if isinstance(raw, (enum.Enum, type)):
        return raw
    if isinstance(raw, tuple) and type(raw).__eq__ is tuple.__eq__:
        return tuple([_wrap_key(domain, part) for part in tuple.__iter__(raw)])  # parts may compare by identity
    path = Pinned.of(raw, "key")
    compared = _has_own_equality(type(raw)) and not isinstance(raw, weakref.ReferenceType)
    if compared and not domain.leaves.wants(raw, path):
        return raw
    return key_of(domain, wrap(domain, raw, path))


def _has_own_equality(cls: Any) -> bool:
    return cls.__eq__ is not object.__eq__


def _key_value(domain: CaptureDomain, raw: object, key: object) -> Value:
    if type(key) is Ref:
        return key.value
    if type(key) is WeakKey:
        return key.reference
    return wrap(domain, raw, Pinned.of(raw, "key")) if not is_atom(raw) else Const(raw)


def dict_lookup(domain: CaptureDomain, value: DictValue, key: object) -> Value | None:
    """The value under a key (of `key_of`), or None."""
    if value.real is not NEW and not value.loaded and type(key) is IdKey and not dict_items(value.real):
        _load(domain, value)  # empty: no number is among its keys
    entries = value.entries
    key = _settled(domain, value, key)
    entry = entries.get(key, _UNREAD)  # one look: it may interpret an `__eq__`
    if entry is not _UNREAD:
        return None if entry is None else entry[1]
    if value.loaded or value.path is None:
        return None
    raw = real_key(key)
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


def _settled(domain: CaptureDomain, value: DictValue, key: object) -> Any:
    """The key as a look at the dict finds it."""
    if value.real is NEW:
        return settle_key(domain, key, value.entries) if domain.has_numbers and is_number(key) else key
    if not value.loaded and key in value.entries:
        return key
    return settle_key(domain, key, value.entries if value.loaded else None)


def dict_store(domain: CaptureDomain, value: DictValue, key: object, key_value: Value, item: Value) -> None:
    """`d[key] = item`."""
    if value.real is not NEW and (value.loaded or number_among(key, value.entries)):
        key = settle_key(domain, key, value.entries)
    old = value.entries.get(key)
    domain.touch(value)
    if value.real is not NEW:
        before = _note_change(value, key)
        if old is None and key in value.removed and value.changed is not None:
            value.changed.pop(key)  # it comes back at the end
            value.entries.pop(key, None)
            value.changed[key] = before
    value.entries[key] = (key_value if old is None else old[0], item)
    note_stored(key)


def _note_change(value: DictValue, key: object) -> Any:
    """Note that a key of a real dict is about to change; what was there before, as in `DictValue.changed`."""
    if value.changed is None:
        value.changed = {}
    if key not in value.changed:
        entry = value.entries.get(key)
        known = value.loaded or key in value.entries
        value.changed[key] = entry[1] if entry is not None else DELETED if known else None
    return value.changed[key]


def dict_remove(domain: CaptureDomain, value: DictValue, key: object) -> None:
    """`del d[key]`, of a key that is there."""
    domain.touch(value)
    key = _settled(domain, value, key)
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
        return guarded_length(domain, value.path, value.real)
    return len(dict_pairs(domain, value))


def view_items(domain: CaptureDomain, view: DictView) -> list[Value]:
    """The items of a dict view."""
    pairs = dict_pairs(domain, view.target)
    if view.kind == "keys":
        return [k for k, _ in pairs]
    if view.kind == "values":
        return [v for _, v in pairs]
    return [TupleValue([k, v]) for k, v in pairs]


class StoredAgain(set[tuple[Obj, str]]):
    """Attributes that were deleted and stored again, and are the last ones now."""


def instance_pairs(domain: CaptureDomain, value: InstanceDict) -> list[tuple[Value, Value]]:
    """All of `vars(obj)`."""
    owner = value.owner
    found: dict[str, Value] = {}
    if owner.real is not NEW and owner.path is not None:
        real = own_attr(owner.real, "__dict__")
        domain.guard_keys(owner.path.attr("__dict__"), tuple(real))
        for name in real:
            attribute = attributes.instance_attr(domain, owner, name)
            if attribute is not None and (owner, name) not in domain.of(StoredAgain):
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


def copy_dict(domain: CaptureDomain, value: DictValue) -> DictValue:
    """A shallow copy."""
    made = DictValue(value.cls)
    dict_pairs(domain, value)
    made.entries = dict(value.entries)
    made.factory = value.factory
    return made
