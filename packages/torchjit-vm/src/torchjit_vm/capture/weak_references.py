"""Weak references, also as keys of dicts (`WeakKeyDictionary`, `WeakValueDictionary` are Python code over them).

And objects that only a variable holds which nothing reads any more, and whose end the program would notice.
"""

from __future__ import annotations

import weakref
from types import GeneratorType
from typing import Any, cast

from torchjit_core.paths import Pinned
from torchjit_vm.capture.builtin_table import builtin
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.effect_barrier import reachable
from torchjit_vm.capture.method_tables import UNKNOWN, methods
from torchjit_vm.capture.reading import wrap
from torchjit_vm.capture.reasons import UNKNOWN_CALL
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    NEW,
    Args,
    BoundMethod,
    Const,
    IdValue,
    Known,
    Kwargs,
    Leaf,
    Obj,
    TupleValue,
    Value,
)
from torchjit_vm.type_labels import type_label

__all__ = ["Finalizers", "dereference", "is_held", "is_new", "is_reference", "referent", "would_be_missed"]


class Finalizers:
    """Objects whose end somebody would notice.

    Attributes:
        watched: what weak references of the region lead to, and those that call something.
        carried: ids of what variables brought into the region that nothing reads any more.
    """

    def __init__(self) -> None:
        self.watched: list[Value] = []
        self.carried: set[int] = set()


def would_be_missed(domain: CaptureDomain, value: Value) -> bool:
    """Could the program tell that an object which only a variable holds, and nothing reads any more, is gone?

    One that the region made may have weak references by the time that the break is over; of others it is known.
    A weak reference that is gone calls nothing.
    """
    if id(value) in domain.of(Finalizers).carried:
        return True
    if domain.of(Finalizers).watched:
        inside = reachable([value], weak=True)
        if any(id(watched) in inside for watched in domain.of(Finalizers).watched):
            return True
    if type(value) is Known:  # a class is among the subclasses of its bases
        return value.obj in domain.made_classes if isinstance(value.obj, type) else False
    if type(value) is not Obj:
        return False
    if value.real is NEW:
        return hasattr(value.cls, "__del__") or hasattr(value.cls, "__weakref__")
    if type(value.real) is GeneratorType:  # which holds its variables, and is closed
        return value.real.gi_frame is not None
    return hasattr(value.cls, "__del__") or (
        hasattr(value.cls, "__weakref__") and weakref.getweakrefcount(value.real) > 0
    )


def is_reference(value: Value) -> bool:
    """Is it a weak reference, of this class or one derived from it?"""
    return isinstance(value, Obj) and issubclass(value.cls, weakref.ReferenceType)


def _make(domain: CaptureDomain, cls: type, args: Args) -> Value | None:
    if not 1 <= len(args) <= 2:
        return None
    target = args[0]
    kind = type_of(domain, target)
    if kind.__weakrefoffset__ == 0 or isinstance(target, (Const, IdValue)):
        raise domain.error(TypeError, f"cannot create weak reference to '{type_label(kind)}' object")
    if isinstance(target, BoundMethod):
        return None  # it goes at once
    made = Obj(cls)
    made.attrs["args"] = TupleValue(list(args))
    domain.of(Finalizers).watched += [made, target] if len(args) == 2 else [target]
    return made


builtin(weakref.ref)(lambda domain, args, kwargs: None if kwargs else _make(domain, weakref.ReferenceType, args))


@builtin(weakref.ReferenceType.__new__)
def _new(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    cls = args[0] if args else None
    if kwargs or not (isinstance(cls, Known) and isinstance(cls.obj, type)):
        return None
    return _make(domain, cls.obj, args[1:])


methods(
    Obj,
    weakref.ReferenceType,
    __init__=lambda domain, own, target, callback=None: None if is_reference(own) else UNKNOWN,
    __call__=lambda domain, own: dereference(domain, own),
)


def referent(domain: CaptureDomain, reference: Obj) -> Value | None:
    """What a weak reference leads to, or led to when the region made it; None if a real one is dead."""
    if reference.real is NEW:
        return cast("list[Value]", cast(TupleValue, reference.attrs["args"]).items)[0]
    target = weakref.ReferenceType.__call__(reference.real)
    if target is None:
        return None
    if reference.path is None:
        raise domain.graph_break(UNKNOWN_CALL, "a weak reference")
    return wrap(domain, target, reference.path.referent())


def dereference(domain: CaptureDomain, reference: Obj) -> Value:
    """Call a weak reference, which nothing here turns into a strong one.

    Raises:
        GraphBreak: nothing that the region knows of holds the object: it may be gone.
    """
    found = referent(domain, reference)
    if found is None:
        path = reference.path
        if path is not None and type(path) is not Pinned:
            domain.guard_test(("dead", path), path, _is_dead, f"{path} is dead")
        return Const(None)
    if is_new(found) and not is_held(domain, found):
        raise domain.graph_break(UNKNOWN_CALL, "a weak reference to an object that may be gone")
    return found


def _is_dead(reference: Any) -> bool:
    return weakref.ReferenceType.__call__(reference) is None


def is_new(value: Value) -> bool:
    """Does the region make the object?"""
    return getattr(value, "real", NEW) is NEW and not isinstance(value, (Known, Leaf))


def is_held(domain: CaptureDomain, value: Value) -> bool:
    """Does something that the program can reach hold an object of the region?"""
    roots: list[object] = [*domain.vm.frames, *domain.touched, domain.vm.handled, domain.vm.inherited]
    return id(value) in reachable(roots, weak=True)
