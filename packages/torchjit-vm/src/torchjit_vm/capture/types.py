"""`type(value)` for every kind of value."""

from __future__ import annotations

from collections.abc import Sequence

from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.values import Known, Obj, Value

__all__ = ["classes_of", "is_subtype", "type_of"]


def type_of(domain: CaptureDomain, value: Value) -> type:
    """The Python type of the object that a value stands for; the type is guarded, the value is not."""
    if isinstance(value, Obj):
        return value.cls
    slot = SLOTS[type(value)].type_of
    if slot is None:
        raise TypeError(f"{type(value).__name__} does not say its type")
    return slot(domain, value)


def classes_of(values: Sequence[Value]) -> tuple[type, ...] | None:
    """The classes that values stand for; None if one of them is none."""
    classes = tuple(v.obj for v in values if type(v) is Known and isinstance(v.obj, type))
    return classes if len(classes) == len(values) else None


def is_subtype(cls: type, of: type) -> bool:
    """`PyType_IsSubtype`: what metaclasses say to `issubclass` does not count."""
    return of in cls.__mro__
