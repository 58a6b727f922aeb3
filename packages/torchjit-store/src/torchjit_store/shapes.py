"""What instances of a class are made of: slots and `__dict__`. No code of the class runs to read or to write them."""

from __future__ import annotations

import abc
import functools
import typing
from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any, Final, final

import attrs

from torchjit_store.ours import is_ours

__all__ = ["ClassShape", "class_shape"]

_HARMLESS: Final = frozenset({object, abc.ABC, typing.Generic, typing.Protocol})
"""Bases that add nothing to instances."""


@final
@attrs.frozen(repr=False)
class ClassShape:
    """Slots of a class and of those above it, by name, and whether its instances have a `__dict__`."""

    slots: dict[str, Any]
    has_dict: bool

    def state(self, obj: object) -> tuple[tuple[str, ...], list[Any]]:
        """Names and values of what is set."""
        names, values = [], []
        for name, slot in self.slots.items():
            try:
                values.append(slot.__get__(obj))
            except AttributeError:
                continue
            names.append(name)
        if self.has_dict:
            members = object.__getattribute__(obj, "__dict__")
            names.extend(members)
            values.extend(members.values())
        return tuple(names), values

    def setter(self, name: str) -> Callable[[Any, Any], None]:
        """Sets one attribute of an instance.

        Raises:
            LookupError: instances have no such attribute.
        """
        slot = self.slots.get(name)
        if slot is not None:
            return slot.__set__  # type: ignore[no-any-return]
        if not self.has_dict:
            raise LookupError(name)

        def put(obj: object, value: object) -> None:
            object.__getattribute__(obj, "__dict__")[name] = value

        return put


@functools.cache
def class_shape(cls: Any) -> ClassShape | None:
    """The shape of a class of torchjit's; None where a base of somebody else's, or one in C, may hold more."""
    if not all(base in _HARMLESS or is_ours(base.__module__) for base in cls.__mro__):
        return None
    try:
        object.__new__(cls)
    except TypeError:  # a class in C has a `__new__` of its own, and members that nobody outside can write
        return None
    slots: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        slots.update((n, d) for n, d in base.__dict__.items() if isinstance(d, MemberDescriptorType))
    return ClassShape(slots, cls.__dictoffset__ != 0)
