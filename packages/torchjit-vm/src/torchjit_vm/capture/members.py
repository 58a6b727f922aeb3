"""What a class has under a name, guarded; and what C tells apart in classes."""

from __future__ import annotations

import enum
import functools
import types
from typing import TYPE_CHECKING, Any, final

from torchjit_core.guards import MISSING
from torchjit_core.paths import AccessPath, Pinned
from torchjit_vm.capture.class_making import is_library

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain
    from torchjit_vm.capture.values import Value

__all__ = [
    "Member",
    "c_base",
    "find_member",
    "has_own_methods",
    "is_atom_class",
    "is_hook",
    "member_value",
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
        self.kind: int = _KINDS.get(t, PLAIN)
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


def has_own_methods(cls: type) -> bool:
    """Has a class special methods of the program's, which operators and functions of C ask for?"""
    if not cls.__flags__ & HEAP_TYPE:
        return False
    own = [c for c in cls.__mro__ if c.__flags__ & HEAP_TYPE and not is_library(c)]
    return any(type(raw) is types.FunctionType and name in _ASKED for c in own for name, raw in vars(c).items())


_ASKED = frozenset({
    "__bool__", "__len__", "__hash__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__iter__", "__next__",
    "__reversed__", "__getitem__", "__repr__", "__str__", "__format__", "__bytes__", "__int__", "__float__", "__complex__", "__index__", "__abs__",
    "__neg__", "__pos__", "__invert__", "__round__", "__trunc__", "__floor__", "__ceil__", "__dir__", "__length_hint__", "__fspath__", "__sizeof__",
    *(f"__{prefix}{name}__" for prefix in ("", "r") for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift",
    )),
})  # fmt: skip
"""Methods that C code may call when it is handed an object: without those that make, change, call or look into one."""


def plain_value(obj: object) -> object:
    """The str, int, float, complex or bytes that an instance of a subclass is."""
    base = c_base(type(obj))
    if base is None:
        raise TypeError(f"{type(obj).__name__} is no subclass of str, int, float, complex or bytes")
    return _PLAIN[base](obj)


def find_member(domain: CaptureDomain, cls: type, name: str) -> Member:
    """Look a name up along the mro, guarded."""
    found = domain.members.get((cls, name))
    if found is None:
        if domain.class_stores:
            stored = _stored(domain, cls, name)
            if stored is not None:
                domain.members[cls, name] = stored
                return stored
        found = domain.members[cls, name] = Member(cls, name, walk(cls.__mro__, name))
        if not cls.__flags__ & IMMUTABLE_TYPE:
            path = _number_path(domain, found)
            if path is not None:
                found.value = domain.wrap(found.raw, path)
                return found
            domain.guard_class(cls, name, found.raw)
            if found.kind in (DESCRIPTOR, PLAIN):
                _guard_protocol(domain, type(found.raw))
    return found


def _number_path(domain: CaptureDomain, member: Member) -> AccessPath | None:
    """Where a number of a class lies: it is read as one of an object is, so that one that varies becomes an input."""
    cls = member.cls
    if type(member.raw) not in (int, float) or cls in domain.made_classes:
        return None
    meta: type = type(cls)
    above = meta.__mro__
    if walk(above, "__getattribute__") is not type.__getattribute__ or walk(above, member.name) is not MISSING:
        return None  # the metaclass answers
    return Pinned.of(cls, cls.__qualname__).attr(member.name)


def _guard_protocol(domain: CaptureDomain, cls: type) -> None:
    """What a class attribute does when it is looked up is up to its own class, which may be patched."""
    if not cls.__flags__ & IMMUTABLE_TYPE:
        for name in ("__get__", "__set__", "__delete__"):
            domain.guard_class(cls, name, walk(cls.__mro__, name))


def store_class_attribute(domain: CaptureDomain, cls: type, name: str, content: Value) -> None:
    """Note that the region stored data on a class: lookups through it and its subclasses find it from now on."""
    for known, attribute in list(domain.members):
        if attribute == name and cls in known.__mro__:
            find_member(domain, known, name)  # what was relied on before is guarded
            del domain.members[known, attribute]
    domain.class_stores[cls, name] = content


def _stored(domain: CaptureDomain, cls: type, name: str) -> Member | None:
    """The member that the region stored, unless a class before it in the mro has the name."""
    for owner in cls.__mro__:
        content = domain.class_stores.get((owner, name))
        if content is not None:
            made = Member(cls, name, None)
            made.value = content
            return made
        if name in owner.__dict__:
            return None
    return None


def member_value(domain: CaptureDomain, member: Member) -> Value:
    """The raw object of a member as a value."""
    if member.value is None:
        raw = member.raw
        if member.kind in (STATIC, CLASS):
            raw = raw.__func__
        member.value = domain.pinned(raw, f"{member.cls.__qualname__}.{member.name}")
    return member.value
