"""Building, filling, unpacking and matching containers: the instructions that do."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import cast

from torchjit_vm.capture import attributes, collecting, iteration, set_algebra
from torchjit_vm.capture.dicts import dict_lookup, dict_pairs, dict_store, instance_pairs
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.elements import append, items
from torchjit_vm.capture.keys import key_of
from torchjit_vm.capture.made_later import joined, made_later
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.sets import set_insert, set_items
from torchjit_vm.capture.special_methods import defines
from torchjit_vm.capture.types import is_subtype, type_of
from torchjit_vm.capture.values import (
    BoundMethod,
    Const,
    DictValue,
    FunctionValue,
    InstanceDict,
    Known,
    ListValue,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)
from torchjit_vm.type_labels import type_label


def build_list(domain: CaptureDomain, values: list[Value]) -> Value:
    return ListValue(values)


def build_tuple(domain: CaptureDomain, values: list[Value]) -> Value:
    return TupleValue(values)


def build_map(domain: CaptureDomain, pairs: list[tuple[Value, Value]]) -> Value:
    made = DictValue()
    for key, value in pairs:
        dict_store(domain, made, key_of(domain, key), key, value)
    return made


def build_slice(domain: CaptureDomain, parts: list[Value]) -> Value:
    none: Value = Const(None)
    return SliceValue(parts[0], parts[1], parts[2] if len(parts) > 2 else none)


def build_string(domain: CaptureDomain, parts: list[Value]) -> Value:
    later = made_later(domain, joined, TupleValue(parts))
    return later or Const("".join(domain.use(p) for p in parts))


def list_append(domain: CaptureDomain, target: Value, item: Value) -> None:
    append(domain, cast(ListValue, target), [item])


def list_extend(domain: CaptureDomain, target: Value, iterable: Value) -> None:
    if iteration.refuses_iteration(domain, iterable):
        name = type_label(type_of(domain, iterable))
        raise domain.error(TypeError, f"Value after * must be an iterable, not {name}")
    collecting.extend(domain, cast(ListValue, target), iterable)


def list_to_tuple(domain: CaptureDomain, value: Value) -> Value:
    return TupleValue(list(items(domain, cast(ListValue, value))))


def set_add(domain: CaptureDomain, target: Value, item: Value) -> None:
    key = key_of(domain, item)
    set_insert(domain, cast(SetValue, target), key, item)


def set_update(domain: CaptureDomain, target: Value, iterable: Value) -> None:
    # C code takes the elements of another set whatever its `__iter__` says.
    grown = set_algebra.laid_out_union(domain, cast(SetValue, target), iterable)
    known = isinstance(iterable, SetValue)
    for item in set_items(domain, cast(SetValue, iterable)) if known else collecting.each(domain, iterable):
        set_add(domain, target, item)
    if grown is not None:
        cast(SetValue, target).layout = grown


def map_add(domain: CaptureDomain, target: Value, key: Value, value: Value) -> None:
    dict_store(domain, cast(DictValue, target), key_of(domain, key), key, value)


def mapping_pairs(
    domain: CaptureDomain, other: Value, looks_first: bool = False
) -> Iterable[tuple[Value, Value]] | None:
    """The pairs of a mapping, each got when it is asked for, or None if it has no keys().

    `looks_first`: as `dict.update`, which gets `keys` to know whether it is a mapping, and again to call it.
    """
    if isinstance(other, DictValue):
        asked = ("__iter__", "keys", "__getitem__") if issubclass(other.cls, OrderedDict) else ("__iter__",)
        if not any(defines(domain, other, name) for name in asked):  # else C code asks for its keys, as of any mapping
            return dict_pairs(domain, other)
    if isinstance(other, InstanceDict):
        return instance_pairs(domain, other)
    keys = attributes.lookup(domain, other, "keys")
    if keys is not None and looks_first:
        keys = attributes.lookup(domain, other, "keys")
    if keys is None:
        return None
    found = iteration.items_of(domain, domain.vm.call(keys, []))
    getter = attributes.load_special(domain, other, "__getitem__")
    return ((k, domain.vm.call(getter, [k])) for k in found)


def dict_update(domain: CaptureDomain, target: Value, other: Value) -> None:
    pairs = mapping_pairs(domain, other)
    if pairs is None:
        raise domain.error(TypeError, f"'{type_label(type_of(domain, other))}' object is not a mapping")
    for key, value in pairs:
        map_add(domain, target, key, value)


def dict_merge(domain: CaptureDomain, target: Value, other: Value, function: Value) -> None:
    pairs = mapping_pairs(domain, other)
    name = call_name(function)
    if pairs is None:
        kind = type_label(type_of(domain, other))
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
    found: Sequence[Value] | None = iteration.direct_items(domain, value)
    if found is None and type(value) is Const and type(value.value) is tuple:
        found = [Const(v) for v in domain.use(value)]
    if found is None:
        found = _take(domain, value, count)
    if len(found) == count:
        return found
    if len(found) < count:
        raise domain.error(ValueError, f"not enough values to unpack (expected {count}, got {len(found)})")
    raise domain.error(ValueError, f"too many values to unpack (expected {count})")


def _take(domain: CaptureDomain, value: Value, count: int) -> list[Value]:
    cls = type_of(domain, value)
    if iteration.refuses_iteration(domain, value):
        raise domain.error(TypeError, f"cannot unpack non-iterable {cls.__name__} object")
    iterator = iteration.get_iter(domain, value)
    found: list[Value] = []
    while len(found) <= count and (item := iteration.advance(domain, iterator)) is not None:
        found.append(item)
    return found


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
    wanted = iteration.items_of(domain, keys)
    if not isinstance(value, DictValue):
        raise domain.graph_break(UNKNOWN_OPERATION, "match of a mapping that is no dict")
    found = [dict_lookup(domain, value, key_of(domain, k)) for k in wanted]
    present = [v for v in found if v is not None]
    return TupleValue(present) if len(present) == len(found) else None


_MATCHES_ITSELF = 1 << 22  # Py_TPFLAGS_MATCH_SELF, which subclasses inherit


def _is_instance(domain: CaptureDomain, value: Value, cls: Known) -> bool:
    if is_subtype(type_of(domain, value), cls.obj):
        return True
    return type(cls.obj) is not type and domain.truth(domain.vm.call(Known(isinstance), [value, cls]))


def match_class(domain: CaptureDomain, value: Value, cls: Value, count: int, names: Value) -> Value | None:
    if not (isinstance(cls, Known) and isinstance(cls.obj, type)):
        raise domain.error(TypeError, "called match pattern must be a class")
    if not _is_instance(domain, value, cls):
        return None
    positional = _positional(domain, cls, count)
    found: list[Value] = [value] * (positional is None)
    seen = set()
    for given_name in (*(positional or ()), *iteration.items_of(domain, names)):
        if type_of(domain, given_name) is not str:
            kind = type_label(type_of(domain, given_name))
            raise domain.error(TypeError, f"__match_args__ elements must be strings (got {kind})")
        name = domain.use(given_name)
        if name in seen:
            text = f"{cls.obj.__name__}() got multiple sub-patterns for attribute {name!r}"
            raise domain.error(TypeError, text)
        seen.add(name)
        attribute = attributes.lookup(domain, value, name)
        if attribute is None:
            return None
        found.append(attribute)
    return TupleValue(found)


def _positional(domain: CaptureDomain, cls: Known, count: int) -> list[Value] | None:
    """The names of the attributes that positional sub-patterns are for; None if the one is for the object itself."""
    arguments = attributes.lookup(domain, cls, "__match_args__") if count else Const(())
    if arguments is None and cls.obj.__flags__ & _MATCHES_ITSELF:
        known = None
    elif arguments is not None and type_of(domain, arguments) is not tuple:
        given = type_of(domain, arguments).__name__
        raise domain.error(TypeError, f"{cls.obj.__name__}.__match_args__ must be a tuple (got {given})")
    else:
        known = [] if arguments is None else iteration.items_of(domain, arguments)
    allowed = 1 if known is None else len(known)
    if count > allowed:
        s = "" if allowed == 1 else "s"
        text = f"{cls.obj.__name__}() accepts {allowed} positional sub-pattern{s} ({count} given)"
        raise domain.error(TypeError, text)
    return None if known is None else known[:count]
