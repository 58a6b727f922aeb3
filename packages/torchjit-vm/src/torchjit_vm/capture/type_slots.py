"""What each kind of value does, in slots named as CPython's type slots.

A kind's file in `objects/` registers its slots with one call. The operations (`comparisons`, `operators`, `subscripts` ...)
look the slot of a value's kind up, and hold CPython's own rules once: which operand is asked first, what `NotImplemented`
leads to, the texts of errors, and that methods which a class of the program defines come before the kind's slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, final

import attrs

from torchjit_vm.capture.values import Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["SLOTS", "TypeSlots", "register"]

RichCompare: TypeAlias = "Callable[[CaptureDomain, Callable[..., Any], Any, Value], Value | None]"
Binary: TypeAlias = "Callable[[CaptureDomain, Callable[..., Any], Any, Value, bool], Value | None]"
Inplace: TypeAlias = "Callable[[CaptureDomain, Callable[..., Any], Any, Value], Value | None]"
Concat: TypeAlias = "Callable[[CaptureDomain, Any, Value], Value | None]"
Repeat: TypeAlias = "Callable[[CaptureDomain, Any, int], Value]"


@final
@attrs.frozen
class TypeSlots:
    """The behaviour of one kind; a slot that is None is that of the kind's base class.

    Attributes:
        richcompare: `function(self, other)` for a function of `operator`, from `lt` to `ge`; None for NotImplemented. The
            operand may stand on either side: then the function is the reflected one.
        binary: `function(self, other)`, or `function(other, self)` if the last argument is true, for a function of `operator`
            such as `or_`; None for NotImplemented.
        inplace: `function(self, other)` for one such as `ior`, if it changes the object; None leaves it to `binary`.
        concat: `self + other` of a sequence; None where the other one is of no fitting kind.
        repeat: `self * count` of a sequence.
    """

    richcompare: RichCompare | None = None
    binary: Binary | None = None
    inplace: Inplace | None = None
    concat: Concat | None = None
    repeat: Repeat | None = None


@final
class _Table(dict[type[Value], TypeSlots]):
    """Slots by kind. A kind without a registration has those of its base class."""

    def __missing__(self, kind: type[Value]) -> TypeSlots:
        found = self[kind] = next((self[base] for base in kind.__mro__[1:] if base in self), TypeSlots())
        return found


SLOTS: dict[type[Value], TypeSlots] = _Table()


def register(kind: type[Value], slots: TypeSlots) -> None:
    """Say what a kind does; what is left out is inherited from the kind's base class."""
    inherited = next((SLOTS[base] for base in kind.__mro__[1:] if base in SLOTS), None)
    if inherited is not None:
        given = {a.name: getattr(slots, a.name) for a in attrs.fields(TypeSlots)}
        slots = attrs.evolve(inherited, **{name: slot for name, slot in given.items() if slot is not None})
    SLOTS[kind] = slots
