"""Dicts, their views and read-only windows, and the attributes of instances."""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, cast

from torchjit_core.paths import own_attr
from torchjit_vm.capture import (
    attributes,
    collecting,
    construct,
    dicts,
    iteration,
    keys,
    lengths,
    members,
    packing,
    runtime,
    stores,
)
from torchjit_vm.capture.atoms import is_plain
from torchjit_vm.capture.builtin_table import Builtin, builtin
from torchjit_vm.capture.comparisons import contains, same_or_equal
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.effects import unchanged
from torchjit_vm.capture.iteration import ListIterator
from torchjit_vm.capture.keys import real_key
from torchjit_vm.capture.method_tables import UNKNOWN, Method, methods
from torchjit_vm.capture.objects.set import combine_sets, compare_sets
from torchjit_vm.capture.raw import constant_of, has_leaf, is_constant, to_raw
from torchjit_vm.capture.reading import view_of
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.rebuild import Rebuilder, made_early, write_attributes
from torchjit_vm.capture.set_algebra import is_set_view
from torchjit_vm.capture.slot_wrappers import slot_methods
from torchjit_vm.capture.special_methods import has_method, special_call
from torchjit_vm.capture.subscripts import key_error
from torchjit_vm.capture.texts import guarded, joined_texts, shown_text, str_text
from torchjit_vm.capture.type_slots import Op, Part, Text, TypeSlots, register
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    DELETED,
    Const,
    DictValue,
    DictView,
    InstanceDict,
    Key,
    Known,
    Obj,
    Ref,
    TupleValue,
    Value,
)

__all__ = ["equal_dicts", "storage_class"]


_Dict = DictValue | InstanceDict
_NONE, _TRUE = Const(None), Const(True)


def _richcompare(domain: CaptureDomain, function: Op, self: _Dict, other: Value) -> Value | None:
    if function not in (operator.eq, operator.ne) or not isinstance(other, (DictValue, InstanceDict)):
        return None
    return domain.constant(equal_dicts(domain, self, other) is (function is operator.eq))


def equal_dicts(domain: CaptureDomain, left: _Dict, right: _Dict) -> bool:
    """`left == right` by the rules of the C classes."""
    left, right = (dicts.instance_snapshot(domain, v) if type(v) is InstanceDict else v for v in (left, right))
    if not (isinstance(left, DictValue) and isinstance(right, DictValue)):
        raise AssertionError("no dicts")
    if dicts.dict_length(domain, left) != dicts.dict_length(domain, right):
        return False
    for key, value in dicts.dict_pairs(domain, left):
        other = dicts.dict_lookup(domain, right, keys.key_of(domain, key))
        if other is None or not same_or_equal(domain, value, other):
            return False
    if issubclass(left.cls, OrderedDict) and issubclass(right.cls, OrderedDict):
        orders = [[keys.key_of(domain, k) for k, _ in dicts.dict_pairs(domain, d)] for d in (left, right)]
        return orders[0] == orders[1]
    return True


_MERGING = (OrderedDict, defaultdict)
"""Classes whose union with a dict is of the class, whichever stands on the left."""


def _binary(domain: CaptureDomain, function: Op, self: DictValue, other: Value, reflected: bool) -> Value | None:
    if function is not operator.or_ or not isinstance(other, DictValue):
        return None
    left, right = (other, self) if reflected else (self, other)
    named = left if issubclass(left.cls, _MERGING) else right
    if issubclass(named.cls, _MERGING) and named.cls not in _MERGING:
        raise domain.graph_break(UNKNOWN_OPERATION, f"{left.cls.__name__} | {right.cls.__name__}")
    made = dicts.copy_dict(domain, left)
    made.cls = named.cls if named.cls in _MERGING else dict
    made.factory = named.factory
    packing.dict_update(domain, made, right)
    return made


def _inplace(domain: CaptureDomain, function: Op, self: DictValue, other: Value) -> Value | None:
    if function is not operator.ior or self.cls is types.MappingProxyType:
        return None
    domain.vm.call(Known(dict.update), [self, other])
    return self


def _view_binary(domain: CaptureDomain, function: Op, self: DictView, other: Value, reflected: bool) -> Value | None:
    return combine_sets(domain, function, self, other, reflected) if is_set_view(self) else None


def _iter(domain: CaptureDomain, self: DictValue) -> Value:
    return ListIterator([k for k, _ in dicts.dict_pairs(domain, self)], self)


def _key(domain: CaptureDomain, self: _Dict, key: Value) -> Any:
    """What an item is found by: asked once, for it may interpret a `__hash__`."""
    if isinstance(self, DictValue):
        return keys.key_of(domain, key)
    if type(key) is not Const:
        raise domain.graph_break(UNKNOWN_OPERATION, "an item of the attributes of an object")
    return domain.use(key)


def _find(domain: CaptureDomain, self: _Dict, key: Any) -> Value | None:
    if isinstance(self, DictValue):
        return dicts.dict_lookup(domain, self, key)
    return attributes.instance_attr(domain, self.owner, key)


def _drop(domain: CaptureDomain, self: _Dict, key: Any) -> None:
    if isinstance(self, DictValue):
        dicts.dict_remove(domain, self, key)
    else:
        stores.write(domain, self.owner, key, DELETED)


def _store(domain: CaptureDomain, self: _Dict, key: Any, named: Value, item: Value) -> None:
    if isinstance(self, DictValue):
        dicts.dict_store(domain, self, key, named, item)
    else:
        stores.write(domain, self.owner, key, item)


def _or_missing(domain: CaptureDomain, found: Value | None, key: Value) -> Value:
    if found is None:
        raise domain.raised(key_error(domain, key))
    return found


def _contains(domain: CaptureDomain, self: _Dict, item: Value) -> Value:
    return domain.constant(_find(domain, self, _key(domain, self, item)) is not None)


def _dict_item(domain: CaptureDomain, container: DictValue, key: Value) -> Value:
    """`container[key]` by the rules of the C classes."""
    found = dicts.dict_lookup(domain, container, keys.key_of(domain, key))
    if found is not None:
        return found
    missing = members.find_member(domain, container.cls, "__missing__")
    if type(missing.raw) is types.FunctionType:
        result = special_call(domain, container, "__missing__", [key])
        if result is not None:
            return result
    if container.factory is not None and not (type(container.factory) is Const and container.factory.value is None):
        made = domain.vm.call(container.factory, [])
        dicts.dict_store(domain, container, keys.key_of(domain, key), key, made)
        return made
    raise domain.raised(key_error(domain, key))


def _setitem(domain: CaptureDomain, self: _Dict, key: Value, value: Value) -> None:
    if _is_proxy(self):
        raise domain.error(TypeError, "'mappingproxy' object does not support item assignment")
    _store(domain, self, _key(domain, self, key), key, value)


def _is_proxy(self: _Dict) -> bool:
    return isinstance(self, DictValue) and self.cls is types.MappingProxyType


def _delitem(domain: CaptureDomain, self: _Dict, key: Value) -> None:
    if _is_proxy(self):
        verb = "doesn't" if has_method(domain, key, "__index__") else "does not"
        raise domain.error(TypeError, f"'mappingproxy' object {verb} support item deletion")
    found = _key(domain, self, key)
    _or_missing(domain, _find(domain, self, found), key)
    _drop(domain, self, found)


_LISTED = OrderedDict(a=1).__repr__() != "OrderedDict({'a': 1})"
"""Does an OrderedDict show a list of pairs?"""


def _dict_text(domain: CaptureDomain, value: DictValue) -> str:
    """`dict.__repr__`."""
    pairs = dicts.dict_pairs(domain, value)
    return "{" + ", ".join(f"{shown_text(domain, k)}: {shown_text(domain, v)}" for k, v in pairs) + "}"


def _proxy_text(domain: CaptureDomain, value: DictValue) -> str:
    return f"mappingproxy({_dict_text(domain, value)})"


def _ordered_text(domain: CaptureDomain, value: DictValue) -> str:
    pairs = dicts.dict_pairs(domain, value)
    if not pairs:
        return f"{value.cls.__name__}()"
    listed = ", ".join(f"({shown_text(domain, k)}, {shown_text(domain, v)})" for k, v in pairs)
    return f"{value.cls.__name__}({f'[{listed}]' if _LISTED else _dict_text(domain, value)})"


def _default_text(domain: CaptureDomain, value: DictValue) -> str:
    factory = "None" if value.factory is None else shown_text(domain, value.factory)
    inside = guarded(domain, value, "{...}", lambda: _dict_text(domain, value))
    return f"{value.cls.__name__}({factory}, {inside})"


_TEXTS: dict[object, tuple[str | None, Callable[[CaptureDomain, DictValue], str]]] = {
    dict.__repr__: ("{...}", _dict_text),
    OrderedDict.__repr__: ("...", _ordered_text),
    defaultdict.__repr__: (None, _default_text),
    types.MappingProxyType.__repr__: ("mappingproxy({...})", _proxy_text),
}
"""What a dict shows for itself, and its text. Source: the `*_repr` functions of CPython's Objects and Modules."""


def _text(domain: CaptureDomain, self: DictValue, function: Text) -> str | None:
    if function is str and self.cls is types.MappingProxyType:
        return _dict_text(domain, self) if self.behind is None else str_text(domain, self.behind)
    found = _TEXTS.get(members.find_member(domain, self.cls, "__repr__").raw)
    if found is None:
        return None
    again, text = found
    return text(domain, self) if again is None else guarded(domain, self, again, lambda: text(domain, self))


def _copy(domain: CaptureDomain, self: DictValue, part: Part, remember: Callable[[Value], None]) -> Obj:
    made = DictValue(self.cls)
    remember(made)
    made.factory = self.factory
    for key, item in dicts.dict_pairs(domain, self):
        dicts.dict_store(domain, made, keys.key_of(domain, key), key, part(item))
    return made


_BASES = (OrderedDict, defaultdict, dict, list, set, frozenset, tuple)


def storage_class(cls: type) -> type:
    """The C class that stores the items of a container class."""
    for owner in cls.__mro__:
        if owner in _BASES:
            return owner
    return object


def _rebuild(out: Rebuilder, self: DictValue) -> str:
    pairs = [e for e in self.entries.values() if e is not None]
    if self.cls is dict:
        early = made_early(out, self, "{}", lambda name: _fill_dict(out, name, self))
        return early or out.assign("{" + ", ".join(f"{out.expr(k)}: {out.expr(v)}" for k, v in pairs) + "}")
    if self.behind is not None:
        return out.assign(f"{out.runtime(types.MappingProxyType)}({out.expr(self.behind)})")
    if self.cls is defaultdict:
        factory = "None" if self.factory is None else out.expr(self.factory)
        name = out.assign(f"{out.runtime(defaultdict)}({factory})")
    elif self.cls is OrderedDict:
        name = out.assign(f"{out.runtime(OrderedDict)}()")
    else:
        base = storage_class(self.cls)
        name = out.assign(f"{out.runtime(runtime.new)}({out.runtime(base)}, {out.expr(Known(self.cls))})")
        if self.factory is not None:
            out.write(f"{name}.default_factory = {out.expr(self.factory)}")
    out.name(self, name)
    _fill_dict(out, name, self)
    write_attributes(out, self, name)
    return name


def _fill_dict(out: Rebuilder, name: str, self: DictValue) -> None:
    pairs = [e for e in self.entries.values() if e is not None]
    if pairs:
        text = ", ".join(f"({out.expr(k)}, {out.expr(v)})" for k, v in pairs)
        out.write(f"{out.runtime(runtime.fill_dict)}({out.runtime(storage_class(self.cls))}, {name}, [{text}])")


def _constant(domain: CaptureDomain, self: DictValue) -> Any:
    pairs = {constant_of(domain, k): constant_of(domain, v) for k, v in domain.pairs(self)}
    cls: Any = self.cls
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
        factory = self.factory
        defaultdict.__init__(cast("defaultdict[Any, Any]", made), None if factory is None else to_raw(domain, factory))
    dict.update(made, pairs)
    return made


def _is_constant(domain: CaptureDomain, self: DictValue) -> bool:
    if not is_plain(domain, self) or not isinstance(self.factory, (Const, Known, types.NoneType)):
        return False
    return all(is_constant(domain, k) and is_constant(domain, v) for k, v in domain.pairs(self))


def _write_back(out: Rebuilder, self: DictValue) -> None:
    base = storage_class(self.cls)
    owner = "dict" if base is dict else out.runtime(base)
    for key, before in (self.changed or {}).items():
        entry = self.entries.get(key)
        raw = real_key(key)
        if entry is None:
            if before is None and raw is not DELETED:  # there, or not: the region did not look
                out.write(f"{owner}.pop({out.expr(self)}, {out.literal(raw)}, None)")
            elif before is not DELETED and raw is not DELETED:
                out.write(f"{owner}.__delitem__({out.expr(self)}, {out.literal(raw)})")
            continue
        moved = key in self.removed and before is not DELETED and raw is not DELETED
        if not moved and unchanged(entry[1], before):
            continue
        item = out.expr(entry[1])
        if moved:
            out.write(f"{owner}.pop({out.expr(self)}, {out.literal(raw)}, None)")
        out.write(f"{owner}.__setitem__({out.expr(self)}, {out.expr(entry[0])}, {item})")


_VIEWS: dict[str, type] = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}


def _view_contains(domain: CaptureDomain, self: DictView, item: Value) -> Value | None:
    return contains(domain, self.target, item) if self.kind == "keys" else None


def _view_hash(domain: CaptureDomain, self: DictView) -> Key:
    return Ref(self) if self.kind == "values" else keys.unhashable(domain, self)


def _view_text(domain: CaptureDomain, self: DictView, function: Text) -> str:
    label = type_of(domain, self).__name__
    return guarded(domain, self, "...", lambda: f"{label}([{joined_texts(domain, dicts.view_items(domain, self))}])")


def _rebuild_view(out: Rebuilder, self: DictView) -> str:
    target, cls = out.expr(self.target), self.target.cls
    if cls.__flags__ & (1 << 9) and cls is not OrderedDict:  # a class may have a method of that name
        return out.assign(f"{out.runtime(OrderedDict if issubclass(cls, OrderedDict) else dict)}.{self.kind}({target})")
    return out.assign(f"{target}.{self.kind}()")


# Methods of dicts, ordered dicts and windows.


def _get(domain: CaptureDomain, self: _Dict, key: Value, default: Value = _NONE) -> Value:
    return _find(domain, self, _key(domain, self, key)) or default


def _pop(domain: CaptureDomain, self: _Dict, key: Value, default: Value | None = None) -> Value:
    sought = _key(domain, self, key)
    found = _find(domain, self, sought)
    if found is not None:
        _drop(domain, self, sought)
    return _or_missing(domain, found or default, key)


def _set_default(domain: CaptureDomain, self: _Dict, key: Value, default: Value = _NONE) -> Value:
    sought = _key(domain, self, key)
    found = _find(domain, self, sought)
    if found is None:
        _store(domain, self, sought, key, default)
    return found or default


def _pop_item(domain: CaptureDomain, self: DictValue) -> Value:
    return _pop_at(domain, self, -1, "popitem(): dictionary is empty")


def _pop_end(domain: CaptureDomain, self: DictValue, last: Value = _TRUE) -> Value:
    return _pop_at(domain, self, -1 if lengths.truth(domain, last) else 0, "dictionary is empty")


def _pop_at(domain: CaptureDomain, self: DictValue, at: int, empty: str) -> Value:
    pairs = dicts.dict_pairs(domain, self)
    if not pairs:
        raise domain.raised(key_error(domain, Const(empty)))
    key, value = pairs[at]
    dicts.dict_remove(domain, self, keys.key_of(domain, key))
    return TupleValue([key, value])


def _update(domain: CaptureDomain, self: _Dict, other: Value | None = None, /, **named: Value) -> None:
    if other is not None and isinstance(self, DictValue):
        construct.update_from(domain, self, other)
    elif other is not None:
        for key, item in list(packing.mapping_pairs(domain, other) or ()):
            _setitem(domain, self, key, item)
    for name, item in named.items():
        _store(domain, self, name, Const(name), item)


def _clear(domain: CaptureDomain, self: DictValue) -> None:
    dicts.dict_pairs(domain, self)  # loads them
    for key in [key for key, entry in self.entries.items() if entry is not None]:
        dicts.dict_remove(domain, self, key)


def _copied(domain: CaptureDomain, self: DictValue) -> Value:
    made = dicts.copy_dict(domain, self)
    if self.behind is not None:
        made.cls = self.behind.cls
    if made.cls not in (dict, OrderedDict, defaultdict) and not issubclass(made.cls, OrderedDict):
        made.cls = dict
    return made


def _move_to_end(domain: CaptureDomain, self: DictValue, key: Value, last: Value = _TRUE) -> None:
    """With `last=False` every other key comes behind it, so all of them are written again."""
    behind = lengths.truth(domain, last)
    sought = keys.key_of(domain, key)
    _or_missing(domain, dicts.dict_lookup(domain, self, sought), key)
    for moved, value in dicts.dict_pairs(domain, self):
        found = keys.key_of(domain, moved)
        if (found == sought) is behind:
            dicts.dict_remove(domain, self, found)
            dicts.dict_store(domain, self, found, moved, value)


def _is_disjoint(domain: CaptureDomain, self: DictView, other: Value) -> Value:
    mine = {keys.key_of(domain, v) for v in iteration.items_of(domain, self)}
    return domain.constant(mine.isdisjoint(keys.key_of(domain, v) for v in collecting.each(domain, other)))


def _view(kind: str) -> Method:
    def view(domain: CaptureDomain, self: _Dict) -> Value:
        return DictView(self if isinstance(self, DictValue) else dicts.instance_snapshot(domain, self), kind)

    return view


def _from_keys(cls: type) -> Builtin:
    def make(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        made = DictValue(cls)
        value = args[1] if len(args) > 1 else kwargs.get("value", _NONE)
        for key in collecting.each(domain, args[0]):
            dicts.dict_store(domain, made, keys.key_of(domain, key), key, value)
        return made

    return make


@builtin(types.MappingProxyType)
def _proxy(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    (target,) = args
    if isinstance(target, DictValue) and target.cls in (dict, OrderedDict):
        return view_of(domain, target)
    return None


builtin(dict.fromkeys)(_from_keys(dict))
builtin(OrderedDict.fromkeys)(_from_keys(OrderedDict))
_VIEWING: dict[str, Method] = {kind: _view(kind) for kind in _VIEWS}
_CHANGING: dict[str, Method] = {"pop": _pop, "setdefault": _set_default, "update": _update}
methods(DictValue, dict, **_VIEWING, **_CHANGING, get=_get, popitem=_pop_item, clear=_clear, copy=_copied)
methods(DictValue, OrderedDict, **_VIEWING, clear=_clear, copy=_copied)
methods(DictValue, OrderedDict, True, **_CHANGING, popitem=_pop_end, move_to_end=_move_to_end)
methods(DictValue, types.MappingProxyType, **_VIEWING, get=_get, copy=_copied)
methods(InstanceDict, dict, **_VIEWING, **_CHANGING, get=_get, copy=dicts.instance_snapshot)
methods(DictValue, defaultdict, copy=lambda domain, self: _copied(domain, self) if self.cls is defaultdict else UNKNOWN)
methods(DictView, _VIEWS["keys"], isdisjoint=_is_disjoint)
methods(DictView, _VIEWS["items"], isdisjoint=_is_disjoint)
register(
    DictValue,
    TypeSlots(
        getattr=lambda domain, self, member: self.factory if member.name == "default_factory" else None,
        richcompare=_richcompare,
        binary=_binary,
        inplace=_inplace,
        length=dicts.dict_length,
        iter=_iter,
        contains=_contains,
        getitem=_dict_item,
        setitem=_setitem,
        delitem=_delitem,
        hash=keys.unhashable,
        text=_text,
        copy=_copy,
        raw=lambda domain, self: {to_raw(domain, k): to_raw(domain, v) for k, v in domain.pairs(self)},
        is_constant=_is_constant,
        constant=_constant,
        has_leaf=lambda self: any(e is not None and has_leaf(e[1]) for e in self.entries.values()),
        rebuild=_rebuild,
        write_back=_write_back,
    ),
)
register(
    InstanceDict,
    TypeSlots(
        richcompare=_richcompare,
        length=lambda domain, self: len(dicts.instance_pairs(domain, self)),
        iter=lambda domain, self: ListIterator([k for k, _ in dicts.instance_pairs(domain, self)]),
        contains=_contains,
        getitem=lambda domain, self, key: _or_missing(domain, _find(domain, self, _key(domain, self, key)), key),
        setitem=_setitem,
        delitem=_delitem,
        hash=keys.unhashable,
        type_of=lambda domain, self: dict,
        text=lambda domain, self, function: _text(domain, dicts.instance_snapshot(domain, self), function),
        rebuild=lambda out, self: f"{out.runtime(own_attr)}({out.expr(self.owner)}, '__dict__')",
    ),
)
register(
    DictView,
    TypeSlots(
        richcompare=compare_sets,
        binary=_view_binary,
        length=lambda domain, self: dicts.dict_length(domain, self.target),
        iter=lambda domain, self: ListIterator(dicts.view_items(domain, self), self.target, self.kind),
        contains=_view_contains,
        hash=_view_hash,
        text=_view_text,
        type_of=lambda domain, self: _VIEWS[self.kind],
        raw=lambda domain, self: [to_raw(domain, v) for v in domain.unpack_all(self)],
        rebuild=_rebuild_view,
    ),
)
slot_methods(dict, defaultdict, *_VIEWS.values())
slot_methods(OrderedDict, without=("__ior__",))  # which says other errors
