"""Containers: reading real ones lazily, changing them, building new ones, unpacking, matching."""

from __future__ import annotations

import enum
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from torchjit_core.guards import dict_items
from torchjit_core.paths import Pinned
from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import attributes, iteration, members
from torchjit_vm.capture.reading import wrap
from torchjit_vm.capture.reasons import UNHASHABLE, UNKNOWN_OPERATION
from torchjit_vm.capture.types import type_label, type_of
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    BoundMethod,
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
    Ref,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)

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
    """A hashable that compares as the object does.

    Raises:
        Raised: TypeError, unhashable.
        GraphBreak: the object has its own `__hash__` or `__eq__`.
    """
    if type(value) is Const:
        return domain.use(value)
    if type(value) is Known:
        return value.obj
    if isinstance(value, TupleValue):
        return tuple(key_of(domain, v) for v in items(domain, value))
    if type(value) is Leaf:
        if domain.leaves.type_of(value.payload) in (int, float, bool, complex):
            return domain.leaf_constant(value)
        return Ref(value)
    if isinstance(value, FunctionValue):
        return Ref(value)
    if type(value) is IdValue:
        return IdKey(value.target)
    if isinstance(value, SetValue) and issubclass(value.cls, frozenset):
        return frozenset(set_entries(domain, value))
    view = isinstance(value, DictView) and value.kind != "values"
    if view or isinstance(value, (ListValue, DictValue, SetValue, SliceValue)):
        raise domain.error(TypeError, f"unhashable type: '{type_label(type_of(domain, value))}'")
    if type(value) is BoundMethod:
        raise domain.graph_break(UNHASHABLE, "a bound method")
    if isinstance(value, Obj):
        return _object_key(domain, value)
    return Ref(value)


def _object_key(domain: CaptureDomain, value: Obj) -> Any:
    for name in ("__hash__", "__eq__"):
        member = members.find_member(domain, value.cls, name)
        if member.raw is None:
            raise domain.error(TypeError, f"unhashable type: '{value.cls.__name__}'")
        if type(member.raw) is types.FunctionType:
            return _hashed_key(domain, value)
    return Ref(value)


def _hashed_key(domain: CaptureDomain, value: Obj) -> HashKey:
    """The key of an object with its own `__hash__` and `__eq__`, which are interpreted."""
    from torchjit_vm.capture import operators  # noqa: PLC0415  the modules know one another

    member = members.find_member(domain, value.cls, "__hash__")
    if type(member.raw) is types.FunctionType:
        found = domain.vm.call(domain.vm.finish(attributes.bind(domain, member, value)), [])
        if type(found) is not Const:
            raise domain.graph_break(UNHASHABLE, value.cls.__name__)
        number = hash(domain.use(found))
    else:
        number = id(value)
    return HashKey(value, number, lambda a, b: operators.same_or_equal(domain, a, b))


def _real_key(key: Any) -> Any:
    """The key to look up in a real dict; DELETED if no real dict can hold it."""
    if type(key) is Ref:
        real = getattr(key.value, "real", NEW)
        return DELETED if real is NEW else real
    if type(key) is IdKey:
        return DELETED
    if type(key) is HashKey:
        raise GraphBreak(UNHASHABLE, type(key.value).__name__, None)
    if type(key) is tuple:
        parts = tuple(_real_key(k) for k in key)
        return DELETED if DELETED in parts else parts
    return key


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
        found = value.items = [wrap(domain, item, path.item(i)) for i, item in enumerate(real)]
    return found


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
    partial, value.entries = value.entries, {}
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
    if isinstance(raw, (enum.Enum, type)) or _has_own_equality(type(raw)):
        return raw
    value = wrap(domain, raw, Pinned.of(raw, "key"))
    return key_of(domain, value)


def _has_own_equality(cls: Any) -> bool:
    return cls.__eq__ is not object.__eq__


def _key_value(domain: CaptureDomain, raw: Any, key: Any) -> Value:
    if type(key) is Ref:
        return key.value
    return wrap(domain, raw, Pinned.of(raw, "key")) if not _is_atom(raw) else Const(raw)


def _is_atom(raw: Any) -> bool:
    return type(raw) in (str, int, float, bool, bytes, type(None), tuple)


def dict_lookup(domain: CaptureDomain, value: DictValue, key: Any) -> Value | None:
    """The value under a key (of `key_of`), or None."""
    entries = value.entries
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
        real = owner.real.__dict__
        domain.guard_keys(owner.path.attr("__dict__"), tuple(real))
        for name in real:
            attribute = attributes.instance_attr(domain, owner, name)
            if attribute is not None:
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
        for element in real:
            if not (_is_atom(element) or isinstance(element, (type, enum.Enum, types.FunctionType))):
                raise domain.graph_break(UNKNOWN_OPERATION, "a set of objects")
        domain.guard_set(path, real)
        found = value.entries = {e: Const(e) if _is_atom(e) else Known(e) for e in real}
    return found


def sought_key(domain: CaptureDomain, value: Value) -> object:
    """The key that a set is searched for; a set is taken for the frozenset of its elements."""
    if isinstance(value, SetValue) and not issubclass(value.cls, frozenset):
        value = SetValue(dict(set_entries(domain, value)), frozenset)
    return key_of(domain, value)


def set_items(domain: CaptureDomain, value: SetValue) -> list[Value]:
    """The elements in the order of iteration, which depends on their hashes."""
    entries = set_entries(domain, value)
    if not value.changed and value.real is not NEW:
        return list(entries.values())
    # Elements that are hashed by identity have no order that a program could rely on.
    if any(type(key) is Ref for key in entries):
        return list(entries.values())
    return [entries[key] for key in set(entries)]


def set_change(domain: CaptureDomain, value: SetValue) -> dict[Any, Value]:
    """The elements of a set that is about to change."""
    found = set_entries(domain, value)
    domain.touch(value)
    value.changed = True
    return found


# Instructions.


def build_list(domain: CaptureDomain, values: list[Value]) -> Value:
    return ListValue(values)


def build_tuple(domain: CaptureDomain, values: list[Value]) -> Value:
    return TupleValue(values)


def build_set(domain: CaptureDomain, values: list[Value]) -> Value:
    return SetValue({key_of(domain, v): v for v in values})


def build_map(domain: CaptureDomain, pairs: list[tuple[Value, Value]]) -> Value:
    made = DictValue()
    for key, value in pairs:
        dict_store(domain, made, key_of(domain, key), key, value)
    return made


def build_slice(domain: CaptureDomain, parts: list[Value]) -> Value:
    none: Value = Const(None)
    return SliceValue(parts[0], parts[1], parts[2] if len(parts) > 2 else none)


def build_string(domain: CaptureDomain, parts: list[Value]) -> Value:
    return Const("".join(domain.use(cast(Const, p)) for p in parts))


def list_append(domain: CaptureDomain, target: Value, item: Value) -> None:
    change(domain, cast(ListValue, target)).append(item)


def list_extend(domain: CaptureDomain, target: Value, iterable: Value) -> None:
    if type(iterable) is Const and not any(hasattr(type(iterable.value), n) for n in ("__iter__", "__getitem__")):
        name = type_of(domain, iterable).__name__
        raise domain.error(TypeError, f"Value after * must be an iterable, not {name}")
    new = iteration.items_of(domain, iterable)
    change(domain, cast(ListValue, target)).extend(new)


def list_to_tuple(domain: CaptureDomain, value: Value) -> Value:
    return TupleValue(list(items(domain, cast(ListValue, value))))


def set_add(domain: CaptureDomain, target: Value, item: Value) -> None:
    key = key_of(domain, item)
    set_change(domain, cast(SetValue, target)).setdefault(key, item)


def set_update(domain: CaptureDomain, target: Value, iterable: Value) -> None:
    for item in iteration.items_of(domain, iterable):
        set_add(domain, target, item)


def map_add(domain: CaptureDomain, target: Value, key: Value, value: Value) -> None:
    dict_store(domain, cast(DictValue, target), key_of(domain, key), key, value)


def mapping_pairs(domain: CaptureDomain, other: Value) -> list[tuple[Value, Value]] | None:
    """The pairs of a mapping, or None if it has no keys()."""
    if isinstance(other, DictValue):
        return dict_pairs(domain, other)
    if isinstance(other, InstanceDict):
        return instance_pairs(domain, other)
    keys = attributes.lookup(domain, other, "keys")
    if keys is None:
        return None
    getter = attributes.load_special(domain, other, "__getitem__")
    return [(k, domain.vm.call(getter, [k])) for k in iteration.items_of(domain, domain.vm.call(keys, []))]


def dict_update(domain: CaptureDomain, target: Value, other: Value) -> None:
    pairs = mapping_pairs(domain, other)
    if pairs is None:
        raise domain.error(TypeError, f"'{type_of(domain, other).__name__}' object is not a mapping")
    for key, value in pairs:
        map_add(domain, target, key, value)


def dict_merge(domain: CaptureDomain, target: Value, other: Value, function: Value) -> None:
    pairs = mapping_pairs(domain, other)
    name = call_name(function)
    if pairs is None:
        kind = type_of(domain, other).__name__
        raise domain.error(TypeError, f"{name} argument after ** must be a mapping, not {kind}")
    for key, value in pairs:
        found = key_of(domain, key)
        if type(found) is not str:
            raise domain.error(TypeError, "keywords must be strings")
        if dict_lookup(domain, cast(DictValue, target), found) is not None:
            raise domain.error(TypeError, f"{name} got multiple values for keyword argument '{found}'")
        map_add(domain, target, key, value)


def call_name(function: Value | None) -> str:
    if isinstance(function, FunctionValue):
        return f"{function.globals.get('__name__', '?')}.{function.qualname}()"
    if isinstance(function, BoundMethod):
        return call_name(function.function)
    obj = getattr(function, "obj", None)
    name = getattr(obj, "__qualname__", None)
    if name is None:
        return "function"
    module = getattr(obj, "__module__", None)
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


def unpack(domain: CaptureDomain, value: Value, count: int) -> Sequence[Value]:
    if isinstance(value, (ListValue, TupleValue)):
        found = items(domain, value)
    elif type(value) is Const and type(value.value) is tuple:
        found = [Const(v) for v in domain.use(value)]
    else:
        found = _take(domain, value, count)
    if len(found) == count:
        return found
    if len(found) < count:
        raise domain.error(ValueError, f"not enough values to unpack (expected {count}, got {len(found)})")
    raise domain.error(ValueError, f"too many values to unpack (expected {count})")


def _take(domain: CaptureDomain, value: Value, count: int) -> list[Value]:
    cls = type_of(domain, value)
    if type(value) is Const and not isinstance(value.value, (str, bytes, range, tuple)):
        raise domain.error(TypeError, f"cannot unpack non-iterable {cls.__name__} object")
    iterator = iteration.get_iter(domain, value)
    found: list[Value] = []
    while len(found) <= count and (item := iteration.advance(domain, iterator)) is not None:
        found.append(item)
    return found


def unpack_all(domain: CaptureDomain, value: Value) -> list[Value]:
    """All items of a tuple or list, constant or not."""
    return iteration.items_of(domain, value)


def unpack_ex(domain: CaptureDomain, value: Value, before: int, after: int) -> Sequence[Value]:
    found = iteration.items_of(domain, value)
    if len(found) < before + after:
        raise domain.error(
            ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(found)})"
        )
    middle = ListValue(found[before : len(found) - after])
    return [*found[:before], middle, *found[len(found) - after :]]


# Pattern matching.

_SEQUENCE, _MAPPING = 1 << 5, 1 << 6


def match_sequence(domain: CaptureDomain, value: Value) -> bool:
    return bool(type_of(domain, value).__flags__ & _SEQUENCE)


def match_mapping(domain: CaptureDomain, value: Value) -> bool:
    return bool(type_of(domain, value).__flags__ & _MAPPING)


def match_keys(domain: CaptureDomain, value: Value, keys: Value) -> Value | None:
    wanted = unpack_all(domain, keys)
    if not isinstance(value, DictValue):
        raise domain.graph_break(UNKNOWN_OPERATION, "match of a mapping that is no dict")
    found = [dict_lookup(domain, value, key_of(domain, k)) for k in wanted]
    present = [v for v in found if v is not None]
    return TupleValue(present) if len(present) == len(found) else None


_SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def match_class(domain: CaptureDomain, value: Value, cls: Value, count: int, names: Value) -> Value | None:
    if not (isinstance(cls, Known) and isinstance(cls.obj, type)):
        raise domain.error(TypeError, "called match pattern must be a class")
    if not issubclass(type_of(domain, value), cls.obj):
        return None
    found: list[Value] = []
    wanted = [domain.use(cast(Const, n)) for n in unpack_all(domain, names)]
    if count:
        arguments = attributes.lookup(domain, cls, "__match_args__")
        if arguments is None and issubclass(cls.obj, _SELF_MATCHING) and count == 1:
            found.append(value)
        else:
            known = [] if arguments is None else unpack_all(domain, arguments)
            if count > len(known):
                s = "" if len(known) == 1 else "s"
                kind = cls.obj.__name__
                text = f"{kind}() accepts {len(known)} positional sub-pattern{s} ({count} given)"
                raise domain.error(TypeError, text)
            wanted = [domain.use(cast(Const, n)) for n in known[:count]] + wanted
    for name in wanted:
        attribute = attributes.lookup(domain, value, name)
        if attribute is None:
            return None
        found.append(attribute)
    return TupleValue(found)


def copy_dict(domain: CaptureDomain, value: DictValue) -> DictValue:
    """A shallow copy."""
    made = DictValue(value.cls)
    dict_pairs(domain, value)
    made.entries = dict(value.entries)
    made.factory = value.factory
    return made


def is_plain_dict_type(cls: type) -> bool:
    """Is the class one whose C code the VM knows?"""
    return cls in (dict, OrderedDict, defaultdict)
