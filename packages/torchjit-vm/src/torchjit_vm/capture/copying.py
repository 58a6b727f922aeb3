"""copy.copy and copy.deepcopy of values."""

from __future__ import annotations

import copy
import copyreg
import functools
import types
from collections.abc import Callable
from typing import cast, final

from torchjit_vm.capture import attributes, dicts, elements, iteration, members
from torchjit_vm.capture.builtin_table import builtin
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.operators import leaf_call
from torchjit_vm.capture.reasons import UNKNOWN_CALL
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.values import (
    DELETED,
    Args,
    AtomObject,
    BoundMethod,
    Const,
    DictValue,
    FunctionValue,
    IdKey,
    InstanceDict,
    Known,
    Kwargs,
    Leaf,
    ListValue,
    Obj,
    TupleValue,
    Value,
)


@final
class _Memo(dict[Value, Value]):
    """What has been copied; `seen` is the dict that a `__deepcopy__` is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = DictValue()


_HOOKS = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
_SHARED = (Const, Known, FunctionValue)


class Memos(dict[Value, _Memo]):
    """The dicts that `__deepcopy__` is given, to what they stand for."""


@builtin(copy.copy)
def _copy(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    value = args[0]
    if type(value) is Leaf:
        return leaf_call(domain, copy.copy, [value])
    if isinstance(value, _SHARED) or (isinstance(value, TupleValue) and value.cls is tuple):
        return value
    if isinstance(value, Obj) and _method(domain, value, "__copy__") is not None:
        return domain.vm.call(cast(Value, _method(domain, value, "__copy__")), [value])
    if isinstance(value, TupleValue) and _is_remade_alike(domain, value):
        return value
    return _duplicate(domain, value, None)


def _is_remade_alike(domain: CaptureDomain, value: TupleValue) -> bool:
    """A named tuple, or one of C: a call of its class with its items."""
    if _copies_plainly(domain, value) or _reduces(domain, value):
        return False
    return iteration.direct_items(domain, value) is not None


def _reduces(domain: CaptureDomain, value: Obj) -> bool:
    return any(_method(domain, value, name) is not None for name in ("__reduce_ex__", "__reduce__"))


@builtin(copy.deepcopy)
def _deepcopy(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    shared = args[1] if len(args) > 1 else kwargs.get("memo")
    if shared is None or (type(shared) is Const and shared.value is None):
        return _deep(domain, args[0], _Memo())
    memo = domain.of(Memos).get(shared)
    return None if memo is None else _deep(domain, args[0], memo)


def _method(domain: CaptureDomain, value: Obj, name: str) -> Value | None:
    member = members.find_member(domain, value.cls, name)
    return members.member_value(domain, member) if member.kind == members.FUNCTION else None


def _deep(domain: CaptureDomain, value: Value, memo: _Memo) -> Value:
    if isinstance(value, _SHARED):
        return value
    found = memo.get(value)
    if found is None and memo.seen.entries:
        entry = memo.seen.entries.get(IdKey(value))
        found = None if entry is None else entry[1]
    if found is not None:
        return found
    if type(value) is Leaf:
        made = memo[value] = leaf_call(domain, copy.deepcopy, [value])
        return made
    if isinstance(value, (Obj, InstanceDict)):
        hook = None if isinstance(value, InstanceDict) else _copier(domain, value)
        if hook is not None:
            domain.of(Memos)[memo.seen] = memo
            made = domain.vm.call(hook, [memo.seen])
        else:
            made = _duplicate(domain, value, memo)
        memo[value] = made
        return made
    if type(value) is BoundMethod:
        return BoundMethod(value.function, _deep(domain, value.self_, memo))
    raise domain.graph_break(UNKNOWN_CALL, "copy.deepcopy")


def _copier(domain: CaptureDomain, value: Obj) -> Value | None:
    """`value.__deepcopy__`, which may be what a `__getattr__` answers."""
    own = _method(domain, value, "__deepcopy__")
    if own is not None:
        return BoundMethod(own, value)
    found = attributes.lookup(domain, value, "__deepcopy__") if _answers_names(domain, value) else None
    return None if type(found) is Const and found.value is None else found


def _answers_names(domain: CaptureDomain, value: Obj) -> bool:
    """Does the class have a `__getattr__` of the program's, which the copy module would ask?"""
    asked = members.find_member(domain, value.cls, "__getattr__")
    return members.is_hook(asked) and asked.raw not in domain.policy.substitutes


def _asks_for_setstate(domain: CaptureDomain, value: Obj) -> bool:
    """Would a `__getattr__` be asked for the `__setstate__` of the copy, which has no attributes then?"""
    return (
        _answers_names(domain, value) and members.find_member(domain, value.cls, "__setstate__").kind == members.ABSENT
    )


def _duplicate(domain: CaptureDomain, value: Value, memo: _Memo | None) -> Value:
    """A copy; of the parts too if there is a memo."""
    if isinstance(value, InstanceDict):
        value = dicts.instance_snapshot(domain, value)
    if type(value) is Obj and _keeps_state(domain, value):
        return _copy_by_state(domain, value, memo)
    if isinstance(value, Obj):
        reduced = _reduced(domain, value)
        if reduced is not None:
            return _reconstructed(domain, value, reduced, memo)
    if not isinstance(value, Obj) or not _copies_plainly(domain, value):
        raise domain.graph_break(UNKNOWN_CALL, "copy of an object with its own rules")

    def part(item: Value) -> Value:
        return item if memo is None else _deep(domain, item, memo)

    if _fills_itself(domain, value):
        return _refilled(domain, value, memo, part)
    duplicate = SLOTS[type(value)].copy
    if duplicate is None:
        raise domain.graph_break(UNKNOWN_CALL, "copy of an object with its own rules")
    made = duplicate(domain, value, part, lambda begun: _remember(memo, value, begun))
    state = _state(domain, value, part)
    if state and _asks_for_setstate(domain, value) and attributes.lookup(domain, made, "__setstate__") is not None:
        raise domain.graph_break(UNKNOWN_CALL, "copy of an object with its own rules")
    made.attrs.update(state)
    return made


def _state(domain: CaptureDomain, value: Obj, part: Callable[[Value], Value]) -> dict[str, Value]:
    """Copies of what its `__dict__` and its slots hold."""
    state: dict[str, Value] = {}
    if value.cls.__dictoffset__ != 0 and type(value) is not FunctionValue:
        for name, attribute in dicts.instance_pairs(domain, InstanceDict(value)):
            state[cast(Const, name).value] = part(attribute)
    for name in copyreg._slotnames(value.cls):  # type: ignore[attr-defined]  # what copy itself asks
        slot = attributes.lookup(domain, value, name)
        if slot is not None and slot is not DELETED:
            state[name] = part(slot)
    return state


def _reduced(domain: CaptureDomain, value: Obj) -> Value | None:
    """What `__reduce_ex__` or `__reduce__` in Python says; None if the class has neither."""
    if value.cls in copyreg.dispatch_table:
        return None
    by_protocol, plainly = (_method(domain, value, n) for n in ("__reduce_ex__", "__reduce__"))
    if by_protocol is not None:
        return domain.vm.call(by_protocol, [value, Const(4)])
    return None if plainly is None else domain.vm.call(plainly, [value])


def _reconstructed(domain: CaptureDomain, value: Obj, reduced: Value, memo: _Memo | None) -> Value:
    """A copy by what the object said of itself, as the copy module's own code makes it."""
    if type(reduced) is Const and isinstance(reduced.value, str):
        return value
    shared: Value = Const(None)
    if memo is not None:
        domain.of(Memos)[memo.seen] = memo
        shared = memo.seen
    function = Known(copy._reconstruct)  # type: ignore[attr-defined]
    return domain.vm.call(function, [value, shared, *domain.unpack_all(reduced)])


def _fills_itself(domain: CaptureDomain, value: Obj) -> bool:
    """Is it a list or dict whose class has a say in what a copy is filled with?"""
    if isinstance(value, ListValue):
        return any(_method(domain, value, name) is not None for name in ("append", "__iter__"))
    return isinstance(value, DictValue) and _method(domain, value, "__setitem__") is not None


def _refilled(domain: CaptureDomain, value: Obj, memo: _Memo | None, part: Callable[[Value], Value]) -> Value:
    """A copy of a list or dict made as the copy module makes it: attributes first, then item by item.

    Source: _reconstruct in CPython's Lib/copy.py.
    """
    made = ListValue([], value.cls) if isinstance(value, ListValue) else DictValue(value.cls)
    if isinstance(made, ListValue) and isinstance(value, ListValue):
        made.limit = elements.maximum(value)
    if isinstance(made, DictValue) and isinstance(value, DictValue):
        made.factory = value.factory
    _remember(memo, value, made)
    made.attrs.update(_state(domain, value, part))
    if isinstance(value, ListValue):
        for item in iteration.items_of(domain, value):
            domain.vm.call(domain.vm.finish(domain.load_attr(made, "append")), [part(item)])
        return made
    pairs = domain.vm.call(domain.vm.finish(domain.load_attr(value, "items")), [])
    for pair in iteration.items_of(domain, pairs):
        key, item = domain.unpack(pair, 2)
        domain.setitem(made, part(key), part(item))
    return made


def _keeps_state(domain: CaptureDomain, value: Obj) -> bool:
    """Is it an ordinary object that only has `__getstate__` or `__setstate__` in Python?"""
    rules = [_method(domain, value, name) is not None for name in _HOOKS if not name.endswith("state__")]
    state = [_method(domain, value, name) is not None for name in ("__getstate__", "__setstate__")]
    plain_new = members.find_member(domain, value.cls, "__new__").raw is object.__dict__["__new__"]
    return any(state) and not any(rules) and plain_new and value.cls not in copyreg.dispatch_table


def _copy_by_state(domain: CaptureDomain, value: Obj, memo: _Memo | None) -> Value:
    made = Obj(value.cls)
    _remember(memo, value, made)
    getter = _method(domain, value, "__getstate__")
    state: Value = dicts.instance_snapshot(domain, InstanceDict(value))
    if getter is not None:
        state = domain.vm.call(getter, [value])
    if memo is not None:
        state = _deep(domain, state, memo)
    setter = _method(domain, value, "__setstate__")
    if setter is not None:
        domain.vm.call(setter, [made, state])
    elif isinstance(state, DictValue) and not _answers_names(domain, value):
        for key, item in dicts.dict_pairs(domain, state):
            made.attrs[domain.use(key)] = item
    else:
        raise domain.graph_break(UNKNOWN_CALL, "copy of an object with its own rules")
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
    own_new = members.find_member(domain, value.cls, "__new__").kind in (members.STATIC, members.FUNCTION)
    if isinstance(value, AtomObject) and own_new:
        return False
    for name in _HOOKS:
        member = members.find_member(domain, value.cls, name)
        if member.kind not in (members.ABSENT, members.CMETHOD):
            return False
    return True
