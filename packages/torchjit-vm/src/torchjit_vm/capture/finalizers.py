"""Objects that only a variable holds which nothing reads any more, and whose end the program would notice."""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING
from weakref import getweakrefcount

from torchjit_vm.capture.effect_barrier import reachable
from torchjit_vm.capture.values import NEW, Known, Obj, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["Finalizers", "would_be_missed"]


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
    return hasattr(value.cls, "__del__") or (hasattr(value.cls, "__weakref__") and getweakrefcount(value.real) > 0)
