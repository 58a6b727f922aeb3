"""What C tells apart in classes: what is under a name, and what an instance is a value of."""

from __future__ import annotations

import enum
import functools
import types
from typing import TYPE_CHECKING, Any, final

from torchjit_core.guards import MISSING

if TYPE_CHECKING:
    from torchjit_vm.capture.values import Value

__all__ = [
    "ABSENT",
    "CLASS",
    "CMETHOD",
    "DESCRIPTOR",
    "FUNCTION",
    "GETSET",
    "HEAP_TYPE",
    "IMMUTABLE_TYPE",
    "PLAIN",
    "PROPERTY",
    "SLOT",
    "STATIC",
    "Member",
    "c_base",
    "is_atom_class",
    "is_hook",
    "plain_value",
    "walk",
]

ABSENT, FUNCTION, STATIC, CLASS, PROPERTY, SLOT, GETSET, CMETHOD, DESCRIPTOR, PLAIN = range(10)
HEAP_TYPE, IMMUTABLE_TYPE = 1 << 9, 1 << 8
_METHOD_DESCRIPTOR = 1 << 17
"""Source: `Py_TPFLAGS_METHOD_DESCRIPTOR`; types of C have it whose objects bind as functions do (a compiled method)."""


@final
class Member:
    """What a class has under a name: `kind`, the raw object, whether it is a data descriptor, and whether stores go to it."""

    __slots__ = ("cls", "data", "kind", "name", "raw", "takes_stores", "value")

    def __init__(self, cls: type, name: str, raw: Any) -> None:
        self.cls, self.name, self.raw = cls, name, raw
        self.value: Value | None = None
        t = type(raw)
        self.kind = _KINDS.get(t, PLAIN)
        if raw is MISSING:
            self.kind = ABSENT
        elif self.kind == PLAIN:
            if isinstance(raw, property):
                self.kind = PROPERTY
            elif isinstance(raw, classmethod):
                self.kind = CLASS
            elif isinstance(raw, staticmethod):
                self.kind = STATIC
            elif t.__flags__ & _METHOD_DESCRIPTOR and type(raw.__get__(self, Member)) is types.MethodType:
                self.kind = FUNCTION
            elif getattr(t, "__get__", None) is not None:
                self.kind = DESCRIPTOR
        takes = raw is not MISSING and (hasattr(t, "__set__") or hasattr(t, "__delete__"))
        self.data = self.kind in (PROPERTY, SLOT, GETSET) or (self.kind == DESCRIPTOR and takes)
        self.takes_stores = self.data or (self.kind == PLAIN and takes)  # without a `__get__`, reads are plain


_KINDS = {
    types.FunctionType: FUNCTION,
    staticmethod: STATIC,
    classmethod: CLASS,
    property: PROPERTY,
    types.MemberDescriptorType: SLOT,
    types.GetSetDescriptorType: GETSET,
    types.MethodDescriptorType: CMETHOD,
    types.WrapperDescriptorType: CMETHOD,
    functools._lru_cache_wrapper: CMETHOD,  # binds as C functions do
    types.ClassMethodDescriptorType: DESCRIPTOR,
    types.BuiltinFunctionType: PLAIN,
}


def is_hook(member: Member) -> bool:
    """Is this `__getattr__`, `__setattr__` or `__delattr__` the program's own: a function, or a C method of another name?"""
    return member.kind == FUNCTION or (
        member.kind == CMETHOD and type(member.raw) in _OF_C and member.raw.__name__ != member.name
    )


_OF_C = (types.MethodDescriptorType, types.WrapperDescriptorType)
"""`__getattr__ = dict.get` in a class below dict."""


def walk(mro: tuple[type, ...], name: str) -> Any:
    for owner in mro:
        if name in owner.__dict__:
            return owner.__dict__[name]
    return MISSING


_PLAIN: dict[type, Any] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    bytes: bytes.__bytes__,
}


def c_base(cls: type) -> type | None:
    """The type of C that an instance of the class is a value of."""
    for owner in cls.__mro__:
        if owner in _PLAIN:
            return owner
    return None


def is_atom_class(cls: type) -> bool:
    """Is this a class of Python's, or of the program's, whose instances are values of a type of C with a class of their own?"""
    heap = cls.__flags__ & HEAP_TYPE and not cls.__flags__ & IMMUTABLE_TYPE
    return bool(heap) and c_base(cls) is not None and not issubclass(cls, enum.Enum)


def plain_value(obj: Any) -> Any:
    """The str, int, float, complex or bytes that an instance of a subclass is."""
    base = c_base(type(obj))
    if base is None:
        raise TypeError(f"{type(obj).__name__} is no subclass of str, int, float, complex or bytes")
    return _PLAIN[base](obj)
