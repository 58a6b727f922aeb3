"""`type(value)` for every kind of value."""

from __future__ import annotations

import inspect
import itertools
import types
from typing import TYPE_CHECKING

from torchjit_vm.capture.values import (
    BoundMethod,
    CellValue,
    Const,
    DictView,
    GeneratorValue,
    IdValue,
    InstanceDict,
    Known,
    Leaf,
    Obj,
    SliceValue,
    SuperValue,
    TracebackValue,
    Value,
)

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["is_subtype", "type_of"]

_VIEWS = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}
_FIXED: dict[type, type] = {
    BoundMethod: types.MethodType,
    CellValue: types.CellType,
    GeneratorValue: types.GeneratorType,
    IdValue: int,
    TracebackValue: types.TracebackType,
    InstanceDict: dict,
    SliceValue: slice,
    SuperValue: super,
}


def type_of(domain: CaptureDomain, value: Value) -> type:
    """The Python type of the object that a value stands for; the type is guarded, the value is not."""
    if isinstance(value, Obj):
        return value.cls
    if type(value) is Const:
        if not value.used and value.path is not None:
            domain.guard_type(value.path, type(value.value))
        return type(value.value)
    if type(value) is Known:
        return type(value.obj)
    if type(value) is Leaf:
        return domain.leaves.type_of(value.payload)
    if type(value) is DictView:
        return _VIEWS[value.kind]
    if type(value) is GeneratorValue and value.original is not None:
        original = value.original[0]
        return original if isinstance(original, type) else type(iter(int, 1))
    if type(value) is GeneratorValue and value.frame.code.code.co_flags & inspect.CO_COROUTINE:
        return types.CoroutineType
    if getattr(value, "repeated", None) is not None:
        return itertools.repeat
    found = _FIXED.get(type(value))
    if found is None:
        found = getattr(type(value), "python_type")  # noqa: B009  iterators declare theirs
    return found


def is_subtype(cls: type, of: type) -> bool:
    """`PyType_IsSubtype`: what metaclasses say to `issubclass` does not count."""
    return of in cls.__mro__
