"""What a class may have under a name, as the attribute lookup of C tells it apart."""

from __future__ import annotations

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
    "IMMUTABLE_TYPE",
    "PLAIN",
    "PROPERTY",
    "SLOT",
    "STATIC",
    "Member",
    "is_hook",
    "walk",
]

ABSENT, FUNCTION, STATIC, CLASS, PROPERTY, SLOT, GETSET, CMETHOD, DESCRIPTOR, PLAIN = range(10)
IMMUTABLE_TYPE = 1 << 8
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
