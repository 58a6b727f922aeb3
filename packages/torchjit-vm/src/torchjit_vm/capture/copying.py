"""copy.copy and copy.deepcopy of values."""

from __future__ import annotations

import copy
import copyreg
import functools
import types
from typing import TYPE_CHECKING, cast

from torchjit_vm.capture import attributes, containers
from torchjit_vm.capture.builtin_table import builtin
from torchjit_vm.capture.operators import leaf_call
from torchjit_vm.capture.reasons import UNKNOWN_CALL
from torchjit_vm.capture.values import (
    DELETED,
    BoundMethod,
    Const,
    DictValue,
    FunctionValue,
    InstanceDict,
    Known,
    Leaf,
    ListValue,
    Obj,
    SetValue,
    TupleValue,
    Value,
)

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

_Memo = dict[Value, Value]
_HOOKS = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
_SHARED = (Const, Known, FunctionValue)


@builtin(copy.copy)
def _copy(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    value = args[0]
    if isinstance(value, (*_SHARED, TupleValue)):
        return value
    if isinstance(value, Obj) and _method(domain, value, "__copy__") is not None:
        return domain.vm.call(cast(Value, _method(domain, value, "__copy__")), [value])
    return _duplicate(domain, value, None)


@builtin(copy.deepcopy)
def _deepcopy(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if len(args) > 1 or kwargs:
        return None
    return _deep(domain, args[0], {})


def _method(domain: CaptureDomain, value: Obj, name: str) -> Value | None:
    member = attributes.find_member(domain, value.cls, name)
    return attributes.member_value(domain, member) if member.kind == attributes.FUNCTION else None


def _deep(domain: CaptureDomain, value: Value, memo: _Memo) -> Value:
    if isinstance(value, _SHARED):
        return value
    found = memo.get(value)
    if found is not None:
        return found
    if type(value) is Leaf:
        return leaf_call(domain, copy.deepcopy, [value])
    if isinstance(value, (Obj, InstanceDict)):
        hook = None if isinstance(value, InstanceDict) else _method(domain, value, "__deepcopy__")
        if hook is not None:
            if memo:
                raise domain.graph_break(UNKNOWN_CALL, "copy.deepcopy with __deepcopy__ inside another object")
            made = domain.vm.call(hook, [value, DictValue()])
        else:
            made = _duplicate(domain, value, memo)
        memo[value] = made
        return made
    if type(value) is BoundMethod:
        return BoundMethod(value.function, _deep(domain, value.self_, memo))
    raise domain.graph_break(UNKNOWN_CALL, "copy.deepcopy")


def _duplicate(domain: CaptureDomain, value: Value, memo: _Memo | None) -> Value:
    """A copy; of the parts too if there is a memo."""
    if isinstance(value, InstanceDict):
        value = containers.instance_snapshot(domain, value)
    if not isinstance(value, Obj) or not _copies_plainly(domain, value):
        raise domain.graph_break(UNKNOWN_CALL, "copy of an object with its own rules")

    def part(item: Value) -> Value:
        return item if memo is None else _deep(domain, item, memo)

    made: Obj
    if isinstance(value, ListValue):
        made = ListValue([], value.cls)
        _remember(memo, value, made)
        made.items = [part(v) for v in containers.items(domain, value)]
    elif isinstance(value, TupleValue):
        made = TupleValue([part(v) for v in containers.items(domain, value)], value.cls)
    elif isinstance(value, DictValue):
        made = DictValue(value.cls)
        _remember(memo, value, made)
        made.factory = value.factory
        for key, item in containers.dict_pairs(domain, value):
            containers.dict_store(domain, made, containers.key_of(domain, key), key, part(item))
    elif isinstance(value, SetValue):
        made = SetValue(dict(containers.set_entries(domain, value)), value.cls)
    else:
        made = Obj(value.cls)
        _remember(memo, value, made)
    if value.cls.__dictoffset__ != 0 and type(value) is not FunctionValue:
        for name, attribute in containers.instance_pairs(domain, InstanceDict(value)):
            made.attrs[cast(Const, name).value] = part(attribute)
    for name in copyreg._slotnames(value.cls):  # type: ignore[attr-defined]  # what copy itself asks
        slot = attributes.lookup(domain, value, name)
        if slot is not None and slot is not DELETED:
            made.attrs[name] = part(slot)
    return made


def _remember(memo: _Memo | None, value: Value, made: Value) -> None:
    if memo is not None:
        memo[value] = made


def _copies_plainly(domain: CaptureDomain, value: Obj) -> bool:
    """Does the copy module copy it by class and attributes?"""
    if value.cls in copyreg.dispatch_table or value.cls in (functools.partial, types.SimpleNamespace):
        return False
    if issubclass(value.cls, BaseException):
        return False
    if not value.cls.__flags__ & (1 << 9) and value.cls is not object and type(value) is Obj:
        return False
    for name in _HOOKS:
        member = attributes.find_member(domain, value.cls, name)
        if member.kind not in (attributes.ABSENT, attributes.CMETHOD):
            return False
    return True
