"""Values that only the leaf handler knows."""

from __future__ import annotations

import types
from typing import Any

from torchjit_core.guards import MISSING
from torchjit_vm.capture import interception
from torchjit_vm.capture.attributes import bind, missing
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.members import CLASS, PLAIN, PROPERTY, STATIC, find_member, member_value
from torchjit_vm.capture.raw import from_raw
from torchjit_vm.capture.reading import wrap
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import BoundMethod, Const, Known, Leaf, Value
from torchjit_vm.frame import Frame

__all__: list[str] = []

_OBJECT: Any = object

_OF_PROGRAMS = (STATIC, CLASS, PROPERTY, PLAIN)
"""Members that a class of the program gives leaves."""


def _getattribute(domain: CaptureDomain, self: Leaf, name: str) -> Value | Frame[Value]:
    cls = domain.leaves.type_of(self.payload)
    if name == "__class__":
        return Known(cls)
    member = domain.members.get((cls, name)) or find_member(domain, cls, name)
    raw = member.raw
    if type(raw) in (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType):
        shadowing = _shadowing(domain, self, cls, name)
        return BoundMethod(member_value(domain, member), self) if shadowing is None else shadowing
    if raw is MISSING and cls in (int, float, bool):
        raise missing(domain, cls, name)
    if self.attrs is not None and name in self.attrs:
        return self.attrs[name]
    if domain.overrides and member.kind in _OF_PROGRAMS and interception.defined_by_program(domain, self, name):
        return bind(domain, member, self)
    return _read(domain, self, name, raw) or _asked(
        domain, self, name, overridden=domain.overrides and raw is not MISSING
    )


def _shadowing(domain: CaptureDomain, self: Leaf, cls: type, name: str) -> Value | None:
    """What the program has put on the very object under a method's name, if it has."""
    if self.attrs is not None and name in self.attrs:
        return self.attrs[name]
    own = None if self.path is None else getattr(self.real, "__dict__", None)
    if own is None or self.path is None or cls.__getattribute__ is not _OBJECT.__getattribute__:
        return None
    if name in own:
        return wrap(domain, own[name], self.path.attr(name))
    domain.guard_lacks(self.path, name)
    return None


def _read(domain: CaptureDomain, self: Leaf, name: str, raw: object) -> Value | None:
    """An attribute that Python keeps for a leaf that was there before; None for what the handler is to say."""
    if self.path is None or not _lies_in_python(self, name, raw) or domain.leaves.owns_attribute(self.payload, name):
        return None
    return wrap(domain, getattr(self.real, name), self.path.attr(name))


def _lies_in_python(self: Leaf, name: str, raw: object) -> bool:
    """Is it in the `__dict__`, or a field of C? What is public says something about the leaf."""
    if raw is MISSING:
        return name in getattr(self.real, "__dict__", ())
    return name[:1] == "_" and type(raw) is types.GetSetDescriptorType


def _asked(domain: CaptureDomain, self: Leaf, name: str, overridden: bool) -> Value:
    """An attribute that those say who see calls of the handler, else the handler."""
    answer = interception.intercept(domain, getattr, [self, Const(name)], {}) if domain.interceptors else None
    if answer is None and overridden:
        answer = interception.override(domain, getattr, [self, Const(name)], {})
    if answer is not None:
        return answer
    try:
        result = domain.leaves.getattr(self.payload, name, domain)
    except AttributeError as error:
        raise domain.error(AttributeError, str(error)) from None
    return from_raw(domain, result)


register(
    Leaf,
    TypeSlots(
        getattribute=_getattribute,
        type_of=lambda domain, self: domain.leaves.type_of(self.payload),
        raw=lambda domain, self: self.payload,
        has_leaf=lambda self: True,
    ),
)
