"""Exceptions in emitted code: made by their class of C, with the traceback of where the region raised them."""

from __future__ import annotations

import types

from torchjit_vm.capture import runtime
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.source import places_of, raised_in
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import Known, Obj, TracebackValue, TupleValue

__all__ = ["new_exception", "write_traceback"]


def new_exception(out: Rebuilder, self: Obj) -> str:
    """The name of an exception of the class, with its arguments and no other attributes."""
    cls = self.cls
    arguments = out.domain.unpack_all(self.attrs.get("args", TupleValue([])))
    known = out.expr(Known(cls))
    given = "".join(", " + out.expr(a) for a in arguments)
    base = next(c for c in cls.__mro__ if isinstance(c.__dict__.get("__new__"), types.BuiltinFunctionType))
    # A `__new__` of the program has run, and may take other arguments than those that it has left in `args`.
    own = not isinstance(cls.__new__, types.BuiltinFunctionType)
    make = f"{out.runtime(runtime.new)}({out.expr(Known(base))}, {known}" if own else f"{known}.__new__({known}"
    return out.assign(f"{make}{given})")


def write_traceback(out: Rebuilder, self: Obj, name: str) -> None:
    """Write what gives an exception that was raised in the region its traceback."""
    frames = tuple(places_of(out.domain, self))
    if frames and "__traceback__" not in self.attrs:
        raiser = raised_in(frames)
        out.write(f"{out.runtime(runtime.trace)}({name}, {out.constant(raiser, 'raise_')})")


# Now: a break may add to it.
register(
    TracebackValue,
    TypeSlots(
        type_of=lambda domain, self: types.TracebackType,
        rebuild=lambda out, self: out.assign(f"{out.expr(self.exception)}.__traceback__"),
    ),
)
