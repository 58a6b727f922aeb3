"""Slots of instances, and fields of C objects that merely hold an object, such as those of exceptions."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from torchjit_core.guards import Predicate
from torchjit_core.paths import own_attr
from torchjit_vm.capture.members import walk
from torchjit_vm.capture.reading import wrap
from torchjit_vm.capture.reasons import UNKNOWN_ATTRIBUTE
from torchjit_vm.capture.values import DELETED, NEW, Const, Obj, TracebackValue, TupleValue, Value
from torchjit_vm.decode import VERSION
from torchjit_vm.type_labels import type_label

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["is_exception_field", "slot"]

_EXCEPTION_FIELDS = frozenset({"args", "__cause__", "__context__", "__suppress_context__", "__traceback__", "value"})


def is_exception_field(value: Obj, name: str) -> bool:
    return issubclass(value.cls, BaseException) and name in _EXCEPTION_FIELDS


def slot(domain: CaptureDomain, value: Obj, name: str) -> Value:
    """A slot of an instance, or a field of a C object that merely holds an object."""
    found = value.attrs.get(name)
    if found is not None and found is not DELETED:
        return found
    if found is None and value.real is not NEW and value.path is not None:
        try:
            real = own_attr(value.real, name)
        except AttributeError:
            _guard_empty(domain, value, name)
            value.attrs[name] = DELETED
            raise _empty(domain, value.cls, name) from None
        result = wrap(domain, real, value.path.attr(name))
        value.attrs[name] = result
        return result
    if type(value) is TupleValue:  # structseq
        names: tuple[str, ...] = getattr(value.cls, "__match_args__", ())
        if name in names and value.items is not None:
            return value.items[names.index(name)]
    if issubclass(value.cls, BaseException) and name == "__traceback__" and value in domain.thrown:
        return TracebackValue(value, domain.vm.depth(value))
    if issubclass(value.cls, BaseException) and name != "args":
        return Const(False if name == "__suppress_context__" else None)
    raise _empty(domain, value.cls, name)


def _empty(domain: CaptureDomain, cls: type, name: str) -> Exception:
    """The error for a slot that holds nothing; since 3.13 it gives the class with its module."""
    label = type_label(cls)
    if VERSION >= (3, 13):
        label = (
            cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"
        )
    return domain.error(AttributeError, f"'{label}' object has no attribute '{name}'")


def _guard_empty(domain: CaptureDomain, value: Obj, name: str) -> None:
    """Rely on a slot to be empty."""
    descriptor = walk(value.cls.__mro__, name)
    if type(descriptor) is not types.MemberDescriptorType or value.path is None:
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"empty slot {name}")

    def empty(other: object) -> bool:
        try:
            descriptor.__get__(other, type(other))
        except AttributeError:
            return True
        return False

    domain.guard(Predicate(value.path, empty, f"not hasattr({value.path}, {name!r})", domain.location()))
