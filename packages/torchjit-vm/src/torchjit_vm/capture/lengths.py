"""Truth and length of values: `bool(value)`, `len(value)`, and the methods that Python asks for them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from torchjit_vm.capture import byte_arrays, dicts, elements, members, slot_results
from torchjit_vm.capture.assertions import current_assertion
from torchjit_vm.capture.atoms import base_of, stripped
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import compute, defines, special_call
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    AtomObject,
    ByteArray,
    Const,
    DictValue,
    DictView,
    InstanceDict,
    Known,
    Leaf,
    ListValue,
    Obj,
    SetValue,
    TupleValue,
    Value,
)
from torchjit_vm.type_labels import type_label

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["length", "size", "truth"]


def truth(domain: CaptureDomain, value: Value) -> bool:
    t = type(value)
    if t is Const:
        return bool(domain.use(value))  # type: ignore[arg-type]
    if t is Leaf:
        return _leaf_truth(domain, value)  # type: ignore[arg-type]
    if t is Known:
        return bool(value.obj)  # type: ignore[attr-defined]
    if isinstance(value, Obj):
        return _object_truth(domain, value)
    if isinstance(value, DictView):
        return dicts.dict_length(domain, value.target) > 0
    if isinstance(value, InstanceDict):
        return bool(dicts.instance_pairs(domain, value))
    return True


def _leaf_truth(domain: CaptureDomain, value: Leaf) -> bool:
    found = current_assertion(domain)
    if found is not None and domain.leaves.assume(
        value.payload, found.expected, found.message, domain, in_place=found.in_place
    ):
        return found.expected
    return domain.leaves.truth(value.payload, domain)


def _object_truth(domain: CaptureDomain, value: Obj) -> bool:
    if value.cls.__flags__ & (1 << 9):  # a heap type, which may define either
        for name in ("__bool__", "__len__"):
            if defines(domain, value, name):
                found = special_call(domain, value, name, [])
                if found is None:
                    return False
                if name == "__bool__":
                    return truth(domain, slot_results.checked(domain, value, name, found, bool, bool))
                return truth(domain, _counted(domain, value, found))
    if isinstance(value, (ListValue, TupleValue, DictValue, SetValue)):
        return size(domain, value) > 0
    if type(value) is AtomObject:
        return truth(domain, base_of(value))
    if type(value) is ByteArray:
        return bool(byte_arrays.content(domain, value))
    for name in ("__bool__", "__len__"):
        if members.find_member(domain, value.cls, name).kind != members.ABSENT:
            raise domain.graph_break(UNKNOWN_OPERATION, f"truth of {value.cls.__name__}")
    return True


def size(domain: CaptureDomain, value: ListValue | TupleValue | DictValue | SetValue) -> int:
    """The length of a built-in container; of an unread real one only the length is guarded."""
    if isinstance(value, DictValue):
        return dicts.dict_length(domain, value)
    if isinstance(value, SetValue):
        return len(elements.set_entries(domain, value))
    if value.items is None and value.path is not None and not (isinstance(value, ListValue) and value.added):
        domain.guard_length(value.path, len(value.real))
        return len(value.real)
    return len(elements.items(domain, value))


def length(domain: CaptureDomain, value: Value) -> Value:
    """`len(value)`."""
    value = stripped(domain, value, "__len__")
    if type(value) is ByteArray:
        return Const(len(byte_arrays.content(domain, value)))
    if type(value) is Const:
        return compute(domain, len, domain.use(value))
    if type(value) is Leaf:
        return domain.leaf_call(len, [value])
    if isinstance(value, (ListValue, TupleValue, DictValue, SetValue)) and not defines(domain, value, "__len__"):
        return Const(size(domain, value))
    if isinstance(value, DictView):
        return Const(dicts.dict_length(domain, value.target))
    if isinstance(value, InstanceDict):
        return Const(len(dicts.instance_pairs(domain, value)))
    if type(value) is Known and type(value.obj) is enum.EnumType:
        return compute(domain, len, value.obj)
    found = special_call(domain, value, "__len__", [])
    if found is None:
        raise domain.error(TypeError, f"object of type '{type_label(type_of(domain, value))}' has no len()")
    return _counted(domain, value, found)


def _counted(domain: CaptureDomain, value: Value, found: Value) -> Value:
    """What `__len__` gave."""
    if type(found) is Const and type(found.value) is int and domain.use(found) >= 0:
        return found
    indexes = type(found) is Leaf and hasattr(domain.leaves.type_of(found.payload), "__index__")
    if indexes or (isinstance(found, Obj) and defines(domain, found, "__index__")):
        return _counted(domain, value, Const(domain.index(found)))
    if type(found) is Const and type(found.value) is bool:
        return Const(int(domain.use(found)))
    negative = type(found) is Const and isinstance(found.value, int) and domain.use(found) < 0
    return slot_results.checked(domain, value, "__len__", found, () if negative else int, len)
