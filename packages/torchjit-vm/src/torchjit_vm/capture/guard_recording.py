"""What a capture relies on, recorded once each, with the instruction that first did; guards are made of it at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchjit_core.guards import (
    ClassAttrIs,
    DictContains,
    DictKeys,
    Different,
    Guard,
    IdIs,
    InstanceLacks,
    LengthIs,
    MroIs,
    Predicate,
    SameObject,
    TypeIs,
    ValueEquals,
)
from torchjit_core.paths import AccessPath, Pinned
from torchjit_vm.capture import members

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = [
    "guard_class",
    "guard_contains",
    "guard_different",
    "guard_id",
    "guard_keys",
    "guard_lacks",
    "guard_length",
    "guard_mro",
    "guard_same",
    "guard_set",
    "guard_test",
    "guard_type",
    "guard_value",
    "guards",
]


def _record(domain: CaptureDomain, key: tuple[Any, ...], kind: type[Guard], *args: Any) -> None:
    if key not in domain.pending:
        frames = domain.vm.frames
        if frames:
            frame = frames[-1]
            domain.pending[key] = (kind, args, frame.code, frame.pc - 1)
        else:
            domain.pending[key] = (kind, args, None, 0)


def guard_type(domain: CaptureDomain, path: AccessPath, cls: type) -> None:
    _record(domain, ("type", path), TypeIs, path, cls)


def guard_id(domain: CaptureDomain, path: AccessPath, obj: Any) -> None:
    _record(domain, ("id", path), IdIs, path, obj)


def guard_value(domain: CaptureDomain, path: AccessPath, value: Any) -> None:
    _record(domain, ("value", path), ValueEquals, path, value)


def guard_length(domain: CaptureDomain, path: AccessPath, length: int) -> None:
    _record(domain, ("length", path), LengthIs, path, length)


def guard_keys(domain: CaptureDomain, path: AccessPath, keys: tuple[Any, ...]) -> None:
    _record(domain, ("keys", path), DictKeys, path, keys)


def guard_contains(domain: CaptureDomain, path: AccessPath, key: Any, present: bool) -> None:
    _record(domain, ("contains", path, type(key), key), DictContains, path, key, present)


def guard_lacks(domain: CaptureDomain, path: AccessPath, name: str) -> None:
    _record(domain, ("lacks", path, name), InstanceLacks, path, name)


def guard_class(domain: CaptureDomain, cls: type, name: str, obj: Any) -> None:
    if cls in domain.made_classes:
        _guard_bases(domain, cls, name)
        return
    _record(domain, ("class", cls, name), ClassAttrIs, cls, name, obj)


def guard_mro(domain: CaptureDomain, cls: type) -> None:
    """Rely on the classes that a class inherits from; those of one that the region made are new, their bases are not."""
    for owner in cls.__mro__ if cls in domain.made_classes else (cls,):
        if not owner.__flags__ & members.IMMUTABLE_TYPE and owner not in domain.made_classes:
            _record(domain, ("mro", owner), MroIs, owner, owner.__mro__)


def _guard_bases(domain: CaptureDomain, cls: type, name: str) -> None:
    """What a class that the region made has under a name can change through its bases only."""
    for owner in cls.__mro__:
        if owner not in domain.made_classes:
            if not owner.__flags__ & members.IMMUTABLE_TYPE:
                guard_class(domain, owner, name, members.walk(owner.__mro__, name))
        elif name in owner.__dict__:
            return


def guard_same(domain: CaptureDomain, first: AccessPath, second: AccessPath) -> None:
    _record(domain, ("same", first, second), SameObject, first, second)


def guard_different(domain: CaptureDomain, *paths: AccessPath) -> None:
    _record(domain, ("different", *paths), Different, paths)


def guard_test(domain: CaptureDomain, what: object, path: AccessPath, test: Callable[[Any], bool], text: str) -> None:
    """Rely on a test; `what` it says, for leaving out repeats."""
    _record(domain, ("test", what), Predicate, path, test, text)


def guard_set(domain: CaptureDomain, path: AccessPath, real: set[Any] | frozenset[Any]) -> None:
    iterate = frozenset.__iter__ if isinstance(real, frozenset) else set.__iter__  # past a subclass's own
    expected = [(type(element), element) for element in iterate(real)]  # type: ignore[arg-type]

    def same(other: Any) -> bool:
        return [(type(element), element) for element in iterate(other)] == expected  # the order is relied on too

    _record(domain, ("set", path), Predicate, path, same, f"list({path}) == {[element for _, element in expected]!r}")


def guards(domain: CaptureDomain) -> tuple[Guard, ...]:
    """Everything recorded, with source locations."""
    for const in domain.constants_read:
        if not const.used and const.path is not None and type(const.path) is not Pinned:
            guard_type(domain, const.path, type(const.value))
    domain.constants_read.clear()
    _guard_different_keys(domain)
    made: list[Guard] = []
    for kind, args, code, index in domain.pending.values():
        if domain.made_classes and _is_twin(domain, args[0]):
            continue
        location = domain.root_location if code is None else code.location(index)
        made.append(kind(*args, location=location))  # type: ignore[call-arg]
    seen: set[Any] = set()
    for guard in domain.extra_guards:
        key = guard.key()
        if key not in seen:
            seen.add(key)
            made.append(guard)
    return tuple(made)


def _guard_different_keys(domain: CaptureDomain) -> None:
    """Objects that are keys by their identity stay as many objects as they were; those that are guarded singly do."""
    paths = [v.path for v in domain.keys_by_identity]  # type: ignore[attr-defined]
    settled = sum(("id", path) in domain.pending for path in paths)
    if len(paths) > max(1, settled):
        guard_different(domain, *paths)


def _is_twin(domain: CaptureDomain, what: Any) -> bool:
    """Does this path lead into a class that the region made? It will be another one in the next call."""
    if not isinstance(what, AccessPath):
        return False
    root = what.root()
    if type(root) is not Pinned:
        return False
    return id(root.key) in domain.class_parts or id(root.key) in domain.twin_ids
