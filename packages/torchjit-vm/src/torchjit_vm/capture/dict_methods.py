"""Methods of dict, OrderedDict and of `obj.__dict__`."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, cast

from torchjit_vm.capture import (
    attributes,
    collecting,
    construct,
    dicts,
    iteration,
    keys,
    lengths,
    packing,
    stores,
    subscripts,
)
from torchjit_vm.capture.builtin_table import builtin, method, method_of
from torchjit_vm.capture.reading import view_of
from torchjit_vm.capture.values import DELETED, Const, DictValue, DictView, InstanceDict, TupleValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

_Args = list[Value]
_Kwargs = dict[str, Value]


@method("get", dict, types.MappingProxyType)
def _get(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    default = args[2] if len(args) > 2 else Const(None)
    if isinstance(args[0], InstanceDict):
        found = attributes.instance_attr(domain, args[0].owner, domain.use(args[1]))
        return default if found is None else found
    target = cast(DictValue, args[0])
    found = dicts.dict_lookup(domain, target, keys.key_of(domain, args[1]))
    return default if found is None else found


@builtin(types.MappingProxyType)
def _proxy(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    (target,) = args
    if isinstance(target, DictValue) and target.cls in (dict, OrderedDict):
        return view_of(domain, target)
    return None


def _views(kind: str) -> None:
    @method(kind, dict, OrderedDict, types.MappingProxyType)
    def view(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        own = dicts.instance_snapshot(domain, args[0]) if isinstance(args[0], InstanceDict) else args[0]
        return DictView(cast(DictValue, own), kind)


for _kind in ("keys", "values", "items"):
    _views(_kind)


@method("pop", dict, OrderedDict)
def _pop(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    default = args[2] if len(args) > 2 else kwargs.get("default")
    if isinstance(args[0], InstanceDict):
        name = domain.use(args[1])
        found = attributes.instance_attr(domain, args[0].owner, name)
        if found is not None:
            stores.write(domain, args[0].owner, name, DELETED)
    else:
        target = cast(DictValue, args[0])
        key = keys.key_of(domain, args[1])
        found = dicts.dict_lookup(domain, target, key)
        if found is not None:
            dicts.dict_remove(domain, target, key)
    if found is not None:
        return found
    if default is not None:
        return default
    raise domain.raised(subscripts.key_error(domain, args[1]))


@method_of(DictValue, "popitem", dict, OrderedDict)
def _popitem(domain: CaptureDomain, own: DictValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    pairs = dicts.dict_pairs(domain, own)
    if not pairs:
        text = "dictionary is empty" if issubclass(own.cls, OrderedDict) else "popitem(): dictionary is empty"
        raise domain.raised(subscripts.key_error(domain, Const(text)))
    last = args[0] if args else kwargs.get("last", Const(True))
    key, value = pairs[-1 if lengths.truth(domain, last) else 0]
    dicts.dict_remove(domain, own, keys.key_of(domain, key))
    return TupleValue([key, value])


@method("setdefault", dict, OrderedDict)
def _setdefault(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    default = args[2] if len(args) > 2 else kwargs.get("default", Const(None))
    if isinstance(args[0], InstanceDict):
        name = domain.use(args[1])
        found = attributes.instance_attr(domain, args[0].owner, name)
        if found is None:
            stores.write(domain, args[0].owner, name, default)
        return default if found is None else found
    target = cast(DictValue, args[0])
    key = keys.key_of(domain, args[1])
    found = dicts.dict_lookup(domain, target, key)
    if found is None:
        dicts.dict_store(domain, target, key, args[1], default)
        return default
    return found


@method("update", dict, OrderedDict)
def _update(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if len(args) > 2:
        return None
    if isinstance(args[0], InstanceDict):
        pairs = list(packing.mapping_pairs(domain, args[1]) or ()) if len(args) > 1 else []
        for key, value in [*pairs, *((Const(k), v) for k, v in kwargs.items())]:
            stores.write(domain, args[0].owner, domain.use(key), value)
        return Const(None)
    target = cast(DictValue, args[0])
    if len(args) > 1:
        construct.update_from(domain, target, args[1])
    for name, value in kwargs.items():
        dicts.dict_store(domain, target, name, Const(name), value)
    return Const(None)


@method_of(DictValue, "clear", dict, OrderedDict)
def _clear(domain: CaptureDomain, own: DictValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    dicts.dict_pairs(domain, own)  # loads them
    for key in [key for key, entry in own.entries.items() if entry is not None]:
        dicts.dict_remove(domain, own, key)
    return Const(None)


@method("copy", dict, OrderedDict, types.MappingProxyType)
def _copy(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if isinstance(args[0], InstanceDict):
        return dicts.instance_snapshot(domain, args[0])
    made = dicts.copy_dict(domain, cast(DictValue, args[0]))
    if isinstance(args[0], DictValue) and args[0].behind is not None:
        made.cls = args[0].behind.cls
    if made.cls not in (dict, OrderedDict, defaultdict) and not issubclass(made.cls, OrderedDict):
        made.cls = dict
    return made


@method_of(DictValue, "move_to_end", OrderedDict)
def _move_to_end(domain: CaptureDomain, own: DictValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    last = args[1] if len(args) > 1 else kwargs.get("last", Const(True))
    if not lengths.truth(domain, last):
        return _move_to_start(domain, own, args[0])
    key = keys.key_of(domain, args[0])
    value = dicts.dict_lookup(domain, own, key)
    if value is None:
        raise domain.raised(subscripts.key_error(domain, args[0]))
    dicts.dict_remove(domain, own, key)
    dicts.dict_store(domain, own, key, args[0], value)
    return Const(None)


def _move_to_start(domain: CaptureDomain, target: DictValue, key_value: Value) -> Value:
    """`move_to_end(key, last=False)`: every other key comes behind it, so all of them are written again."""
    pairs = dicts.dict_pairs(domain, target)
    first = keys.key_of(domain, key_value)
    if dicts.dict_lookup(domain, target, first) is None:
        raise domain.raised(subscripts.key_error(domain, key_value))
    for key, value in pairs:
        found = keys.key_of(domain, key)
        if found != first:
            dicts.dict_remove(domain, target, found)
            dicts.dict_store(domain, target, found, key, value)
    return Const(None)


@method_of(DictValue, "copy", defaultdict)
def _copy_default(domain: CaptureDomain, own: DictValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    return dicts.copy_dict(domain, own) if own.cls is defaultdict else None


@method("isdisjoint", type({}.keys()), type({}.items()))
def _isdisjoint(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    mine = {keys.key_of(domain, v) for v in iteration.items_of(domain, args[0])}
    return domain.constant(mine.isdisjoint(keys.key_of(domain, v) for v in collecting.each(domain, args[1])))


def _from_keys(cls: type[dict[Any, Any]]) -> None:
    @builtin(cls.fromkeys)
    def make(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        made = DictValue(cls)
        value = args[1] if len(args) > 1 else kwargs.get("value", Const(None))
        for key in collecting.each(domain, args[0]):
            dicts.dict_store(domain, made, keys.key_of(domain, key), key, value)
        return made


_from_keys(dict)
_from_keys(OrderedDict)
