"""Truth and length of values: `bool(value)`, `len(value)`, and the methods that Python asks for them."""

from __future__ import annotations

from torchjit_vm.capture import members
from torchjit_vm.capture.assertions import current_assertion
from torchjit_vm.capture.atoms import stripped
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import checked, compute, defines, special_call
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import Const, Known, Leaf, Obj, Value
from torchjit_vm.type_labels import type_label

__all__ = ["length", "size", "truth"]


def truth(domain: CaptureDomain, value: Value) -> bool:
    t = type(value)
    if t is Const:
        return bool(domain.use(value))
    if t is Leaf:
        return _leaf_truth(domain, value)  # type: ignore[arg-type]
    if (isinstance(value, Obj) and value.cls.__flags__ & _HEAP) or (
        t is Known and members.has_own_methods(type_of(domain, value))
    ):
        own = _own_truth(domain, value)
        if own is not None:
            return own
    slots = SLOTS[t]
    if slots.bool is not None:
        return slots.bool(domain, value)
    if slots.length is not None:
        return bool(slots.length(domain, value))
    if isinstance(value, Obj):
        names = ("__bool__", "__len__")
        if any(members.find_member(domain, value.cls, name).kind != members.ABSENT for name in names):
            raise domain.graph_break(UNKNOWN_OPERATION, f"truth of {value.cls.__name__}")
    return True


_HEAP = 1 << 9
"""A class of Python's, which may define `__bool__` or `__len__`."""


def _leaf_truth(domain: CaptureDomain, value: Leaf) -> bool:
    found = current_assertion(domain)
    if found is not None and domain.leaves.assume(
        value.payload, found.expected, found.message, domain, in_place=found.in_place
    ):
        return found.expected
    return domain.leaves.truth(value.payload, domain)


def _own_truth(domain: CaptureDomain, value: Value) -> bool | None:
    """By a method of the program; None if the class has none."""
    for name in ("__bool__", "__len__"):
        if defines(domain, value, name):
            found = special_call(domain, value, name, [])
            if found is None:
                return False
            if name == "__bool__":
                return truth(domain, checked(domain, value, name, found, bool, bool))
            return truth(domain, _counted(domain, value, found))
    return None


def size(domain: CaptureDomain, value: Value) -> int | None:
    """The length by the kind's own rules; None if it has none."""
    slot = SLOTS[type(value)].length
    return None if slot is None else slot(domain, value)


def length(domain: CaptureDomain, value: Value) -> Value:
    """`len(value)`."""
    value = stripped(domain, value, "__len__")
    if type(value) is Const:
        return compute(domain, len, domain.use(value))
    if type(value) is Leaf:
        return domain.leaf_call(len, [value])
    if not (isinstance(value, Obj) and defines(domain, value, "__len__")):
        known = size(domain, value)
        if known is not None:
            return Const(known)
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
    return checked(domain, value, "__len__", found, () if negative else int, len)
