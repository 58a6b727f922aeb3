"""What a class has under a name, guarded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.capture.member_kinds import (
    ABSENT,
    CLASS,
    CMETHOD,
    DESCRIPTOR,
    FUNCTION,
    GETSET,
    IMMUTABLE_TYPE,
    PLAIN,
    PROPERTY,
    SLOT,
    STATIC,
    Member,
    is_hook,
    walk,
)
from torchjit_vm.capture.reading import pinned
from torchjit_vm.capture.values import Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

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
    "find_member",
    "is_hook",
    "member_value",
    "walk",
]


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
            domain.guard_class(cls, name, found.raw)
            if found.kind in (DESCRIPTOR, PLAIN):
                _guard_protocol(domain, type(found.raw))
    return found


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
        member.value = pinned(domain, raw, f"{member.cls.__qualname__}.{member.name}")
    return member.value
