"""Instances of subclasses of str, int, float, complex and bytes: what they are without their class.

C code works on that, as it does in CPython: results of operators and methods that the class does not define are of the plain type.
"""

from __future__ import annotations

from typing import Any

from torchjit_core.paths import Pinned
from torchjit_vm.capture import members
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.members import HEAP_TYPE, IMMUTABLE_TYPE, c_base, is_atom_class, plain_value
from torchjit_vm.capture.values import NEW, AtomObject, Const, Obj, Value

__all__ = ["base_of", "c_base", "is_atom_class", "is_plain", "new_atom", "plain_value", "real_of", "stripped"]


def base_of(value: AtomObject) -> Const:
    """What the object is without its class; relied on when it is used."""
    if value.base is None:
        path = value.path
        pinned = path is None or type(path.root()) is Pinned
        where = None if pinned or path is None else path.computed(plain_value)
        value.base = Const(plain_value(value.real), where)
    return value.base


def stripped(domain: CaptureDomain, value: Value, *names: str) -> Value:
    """The plain value, unless the class defines one of these methods in Python; other values as they are."""
    if type(value) is not AtomObject:
        return value
    for name in names:
        member = members.find_member(domain, value.cls, name)
        if member.kind not in (members.CMETHOD, members.ABSENT):
            return value
    return base_of(value)


def real_of(domain: CaptureDomain, value: Value) -> Any:
    """A real object to compute with, of which the class matters for no more than its name."""
    if type(value) is not AtomObject:
        return domain.use(value)
    plain = domain.use(base_of(value))
    return type(plain).__new__(value.cls, plain)


_HARMLESS = frozenset({
    "__init__", "__new__", "__module__", "__doc__", "__slots__", "__dict__", "__weakref__",
    "__qualname__", "__annotations__", "__init_subclass__", "__set_name__", "__class_getitem__", "__match_args__", "__getattr__",
    "__setattr__", "__delattr__", "__orig_bases__", "__parameters__", "__static_attributes__", "__firstlineno__", "__copy__",
    "__deepcopy__", "__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__", "__getstate__", "__setstate__",
    "__abstractmethods__",
})  # fmt: skip
"""Members that C code does not ask for when it works on a value."""


def _speaks(cls: type) -> bool:
    """Does the class define something that C code asks for: a text, an order, a hash ...?"""
    for owner in cls.__mro__:
        if not owner.__flags__ & HEAP_TYPE or owner.__flags__ & IMMUTABLE_TYPE:
            return False
        if any(n[:2] == "__" and n not in _HARMLESS for n in owner.__dict__):
            return True
    return False


def is_plain(domain: CaptureDomain, value: Obj) -> bool:
    """May C code be given the plain value, or a container with the same items, in the place of this object?"""
    cls = value.cls
    if not cls.__flags__ & HEAP_TYPE or cls.__flags__ & IMMUTABLE_TYPE:
        return True
    found = _speaks(cls)
    if cls not in domain.made_classes:
        path = Pinned.of(cls, cls.__qualname__)
        text = f"{cls.__qualname__} {'has' if found else 'has no'} operators of its own"
        domain.guard_test(("atoms", cls), path, lambda c: _speaks(c) is found, text)
    return not found


def new_atom(cls: type, base: Const) -> AtomObject:
    """An instance that the region makes."""
    return AtomObject(base, cls, NEW)
