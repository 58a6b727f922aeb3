"""What each kind of value does, in slots named as CPython's type slots.

A kind's file in `objects/` registers its slots with one call. The operations (`comparisons`, `operators`, `subscripts` ...)
look the slot of a value's kind up, and hold CPython's own rules once: which operand is asked first, what `NotImplemented`
leads to, the texts of errors, and that methods which a class of the program defines come before the kind's slot.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, final

import attrs

from torchjit_vm.capture.values import Args, Key, Kwargs, Obj, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain
    from torchjit_vm.capture.members import Member
    from torchjit_vm.capture.rebuild import Rebuilder
    from torchjit_vm.frame import Frame

__all__ = ["SLOTS", "Op", "Text", "TypeSlots", "register"]

K = TypeVar("K", bound=Value, contravariant=True)
Op: TypeAlias = "Callable[..., object]"
"""A function of `operator`."""
Text: TypeAlias = "Callable[[object], str]"
"""`repr`, `str` or `ascii`."""
Compare: TypeAlias = "Callable[[CaptureDomain, Op, K, Value], Value | None]"
Binary: TypeAlias = "Callable[[CaptureDomain, Op, K, Value, bool], Value | None]"
Repeat: TypeAlias = "Callable[[CaptureDomain, K, int], Value]"
Part: TypeAlias = "Callable[[Value], Value]"


@final
@attrs.frozen
class TypeSlots(Generic[K]):
    """The behaviour of one kind; a slot that is None is that of the kind's base class.

    Attributes:
        richcompare: `function(self, other)` for a function of `operator`, from `lt` to `ge`; None for NotImplemented. The
            operand may stand on either side: then the function is the reflected one.
        binary: `function(self, other)`, or `function(other, self)` if the last argument is true, for a function of `operator`
            such as `or_`; None for NotImplemented.
        inplace: `function(self, other)` for one such as `ior`, if it changes the object; None leaves it to `binary`.
        concat: `self + other` of a sequence; None where the other one is of no fitting kind.
        repeat: `self * count` of a sequence.
        bool: `bool(self)`; without it a length that is not 0.
        length: `len(self)`; None if it has none.
        iter: `iter(self)`; None if it is not iterable by the kind's own rules.
        contains: `item in self`; None where the items are asked in turn.
        getitem: `self[key]`; None where the kind has no answer.
        setitem, delitem: `self[key] = item`, `del self[key]`.
        getattribute: `self.name`, the whole lookup, perhaps a frame to enter.
        getattr: what a data descriptor of C, or the slot of the kind's own class, gives under a member of its class; None for one
            that the kind does not know.
        call: `self(*args, **kwargs)`, perhaps a frame to enter.
        hash: what dicts and sets find it by (`keys.key_of`).
        text: `repr(self)`, or what `str` gives if that is the function; None for what has no text of the kind's own.
        copy: an object like this one, its parts by a function that copies them if that is asked for. What may hold itself is given
            to the last argument as soon as it is made.
        type_of: `type(self)`, which is relied on.
        raw: what a leaf handler is given for it; without it nothing.
        is_constant: may it be computed with at capture (atoms, identified objects, new or real containers of them)? Without it no.
        constant: the real object of one that is, of its class; without it that of `raw`.
        has_leaf: is it a leaf, or a loaded container with one? Without it no.
        rebuild: the expression in emitted code for an object that the region made.
        write_back: writes the statements that bring a real object to what the region left.
    """

    richcompare: Compare[K] | None = None
    binary: Binary[K] | None = None
    inplace: Compare[K] | None = None
    concat: Callable[[CaptureDomain, K, Value], Value | None] | None = None
    repeat: Repeat[K] | None = None
    bool: Callable[[CaptureDomain, K], builtins.bool] | None = None
    length: Callable[[CaptureDomain, K], int | None] | None = None
    iter: Callable[[CaptureDomain, K], Value | None] | None = None
    contains: Callable[[CaptureDomain, K, Value], Value | None] | None = None
    getitem: Callable[[CaptureDomain, K, Value], Value | None] | None = None
    setitem: Callable[[CaptureDomain, K, Value, Value], None] | None = None
    delitem: Callable[[CaptureDomain, K, Value], None] | None = None
    getattribute: Callable[[CaptureDomain, K, str], Value | Frame[Value]] | None = None
    getattr: Callable[[CaptureDomain, K, Member], Value | None] | None = None
    call: Callable[[CaptureDomain, K, Args, Kwargs], Value | Frame[Value]] | None = None
    hash: Callable[[CaptureDomain, K], Key] | None = None
    text: Callable[[CaptureDomain, K, Text], str | None] | None = None
    copy: Callable[[CaptureDomain, K, Part, Callable[[Value], None]], Obj] | None = None
    type_of: Callable[[CaptureDomain, K], type] | None = None
    raw: Callable[[CaptureDomain, K], object] | None = None
    is_constant: Callable[[CaptureDomain, K], builtins.bool] | None = None
    constant: Callable[[CaptureDomain, K], object] | None = None
    has_leaf: Callable[[K], builtins.bool] | None = None
    rebuild: Callable[[Rebuilder, K], str] | None = None
    write_back: Callable[[Rebuilder, K], None] | None = None


_OWN: dict[type[Value], TypeSlots[Any]] = {}
"""What was registered, without what is inherited."""


@final
class _Table(dict[type[Value], TypeSlots[Any]]):
    """Slots by kind, what is inherited included. A kind without a registration has those of its base classes."""

    def __missing__(self, kind: type[Value]) -> TypeSlots[Any]:
        given: dict[str, Any] = {}
        for base in kind.__mro__:
            own = _OWN.get(base, _NOTHING)
            given |= {
                a.name: slot
                for a in _FIELDS
                if a.name not in given and (slot := builtins.getattr(own, a.name)) is not None
            }
        found = self[kind] = TypeSlots(**given)
        return found


_NOTHING, _FIELDS = TypeSlots[Any](), attrs.fields(TypeSlots)
SLOTS: dict[type[Value], TypeSlots[Any]] = _Table()


def register(kind: type[K], slots: TypeSlots[K]) -> None:
    """Say what a kind does, more of it at each call; what is left out is inherited from the kind's base classes."""
    more = {a.name: slot for a in _FIELDS if (slot := builtins.getattr(slots, a.name)) is not None}
    _OWN[kind] = attrs.evolve(_OWN.get(kind, _NOTHING), **more)
    SLOTS.clear()
