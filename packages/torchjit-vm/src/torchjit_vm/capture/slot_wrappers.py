"""Methods of classes of C that call a slot: `list.__len__`, `dict.__or__` ... do what the kind's slot does.

Source: slotdefs in CPython's Objects/typeobject.c.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from torchjit_vm.capture.builtin_table import Builtin, method
from torchjit_vm.capture.comparisons import search
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.lengths import size
from torchjit_vm.capture.operators import DUNDERS, INPLACE, RICH, as_tuple
from torchjit_vm.capture.type_slots import SLOTS, Op
from torchjit_vm.capture.values import Args, Const, Kwargs, Value

__all__ = ["slot_methods"]


def slot_methods(*classes: type, without: Collection[str] = ()) -> None:
    """Let these methods of classes of C be the slots of the kind that stands for their instances."""
    for cls in classes:
        for name, wrapper in _WRAPPERS.items():
            if name in vars(cls) and name not in without:
                method(name, cls)(wrapper)


def _call(name: str, *, stores: bool = False) -> Builtin:
    """A method that hands its arguments on to a slot."""

    def run(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        self = as_tuple(args[0])
        slot = getattr(SLOTS[type(self)], name)
        if slot is None:
            return None
        result: Value | None = slot(domain, self, *args[1:])
        return domain.constant(None) if stores else result

    return run


def _operator(name: str, function: Op, *reflected: bool) -> Builtin:
    """The method of an operator: the slot takes the operator, too."""

    def run(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        self = as_tuple(args[0])
        slots = SLOTS[type(self)]
        slot = getattr(slots, name)
        answer: Value | None = None if slot is None else slot(domain, function, self, as_tuple(args[1]), *reflected)
        if answer is None and name == "inplace" and slots.concat is not None:
            return None  # sequences have other errors
        return Const(NotImplemented) if answer is None else answer

    return run


def _length(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    known = size(domain, as_tuple(args[0]))
    return None if known is None else Const(known)


def _contains(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    answer = _call("contains")(domain, args, kwargs)
    iterator = _call("iter")(domain, args[:1], kwargs) if answer is None else None
    return search(domain, iterator, args[1]) if isinstance(iterator, Value) else cast("Value | None", answer)


def _concat(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    self = as_tuple(args[0])
    slot = SLOTS[type(self)].concat
    return None if slot is None else slot(domain, self, as_tuple(args[1]))


def _repeat(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    self = as_tuple(args[0])
    slot = SLOTS[type(self)].repeat
    return None if slot is None else slot(domain, self, domain.index(args[1]))


_WRAPPERS: dict[str, Builtin] = {
    **{
        names[reflected]: _operator("binary", f, bool(reflected))
        for f, names in DUNDERS.items()
        for reflected in (0, 1)
    },
    **{name: _operator("inplace", function) for function, (name, _) in INPLACE.items()},
    **{name: _operator("richcompare", function) for function, (name, _, _) in RICH.items()},
    "__len__": _length,
    "__iter__": _call("iter"),
    "__contains__": _contains,
    "__getitem__": _call("getitem"),
    "__setitem__": _call("setitem", stores=True),
    "__delitem__": _call("delitem", stores=True),
    "__mul__": _repeat,
    "__rmul__": _repeat,
    "__add__": _concat,
}
