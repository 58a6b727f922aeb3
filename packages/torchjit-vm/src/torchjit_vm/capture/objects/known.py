"""Objects whose identity is settled: classes, modules, functions, members of enums."""

from __future__ import annotations

import enum
import operator
import types
from typing import TYPE_CHECKING, Any, cast

from torchjit_core.showing import shown
from torchjit_vm.capture import attributes, elements, members
from torchjit_vm.capture.iteration import ListIterator
from torchjit_vm.capture.objects.constant import compare_real
from torchjit_vm.capture.raw import constant_of, is_constant, to_raw
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import compute
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import NEW, BoundMethod, Const, Known, ListValue, Obj, TupleValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__: list[str] = []


def _length(domain: CaptureDomain, self: Known) -> int | None:
    if type(self.obj) is not enum.EnumType:
        return None
    length: Any = compute(domain, len, self.obj)
    return int(length.value)


def _iter(domain: CaptureDomain, self: Known) -> Value | None:
    if not isinstance(self.obj, enum.EnumType):
        return None
    # Does the metaclass leave it to `enum` to say which members are iterated over?
    if type(self.obj).__iter__ is not enum.EnumType.__iter__:
        return None
    return ListIterator([Known(m) for m in cast(Any, self.obj)])


def _contains(domain: CaptureDomain, self: Known, item: Value) -> Value | None:
    if not isinstance(self.obj, type) or not isinstance(item, (Const, Known)):
        return None
    if members.find_member(domain, type(self.obj), "__contains__").kind == members.ABSENT:
        return None
    return compute(domain, operator.contains, self.obj, to_raw(domain, item))


def _getitem(domain: CaptureDomain, self: Known, key: Value) -> Value:
    if isinstance(self.obj, type):
        above = members.find_member(domain, type(self.obj), "__getitem__")
        if above.kind in (members.FUNCTION, members.STATIC, members.PLAIN) and not isinstance(self.obj, enum.EnumType):
            return domain.vm.call(domain.vm.finish(attributes.bind(domain, above, self)), [key])
    if isinstance(self.obj, type) and _settled(domain, key):
        member = members.find_member(domain, self.obj, "__class_getitem__")
        if type(getattr(member.raw, "__func__", member.raw)) is types.FunctionType:
            return domain.vm.call(BoundMethod(members.member_value(domain, member), self), [key])
        return compute(domain, operator.getitem, self.obj, constant_of(domain, key))
    raise domain.graph_break(UNKNOWN_OPERATION, f"subscript of {shown(self.obj)}")


def _settled(domain: CaptureDomain, key: Value) -> bool:
    """What a class may be subscripted with: constants and objects of the program (type variables ...), which do not change it."""
    if isinstance(key, (ListValue, TupleValue)):
        return all(_settled(domain, v) for v in elements.items(domain, key))
    if is_constant(domain, key):
        return True
    return isinstance(key, Obj) and key.real is not NEW and key.path is not None and not key.written


register(
    Known,
    TypeSlots(
        richcompare=compare_real,
        bool=lambda domain, self: bool(self.obj),
        length=_length,
        iter=_iter,
        contains=_contains,
        getitem=_getitem,
        type_of=lambda domain, self: type(self.obj),
        raw=lambda domain, self: self.obj,
        is_constant=lambda domain, self: True,
    ),
)
