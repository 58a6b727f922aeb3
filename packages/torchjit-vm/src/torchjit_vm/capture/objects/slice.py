"""`slice` objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchjit_vm.capture.comparisons import compare, compare_methods
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import SliceValue, TupleValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__: list[str] = []


def _richcompare(domain: CaptureDomain, function: Any, self: SliceValue, other: Value) -> Value | None:
    if type(other) is not SliceValue:
        return None
    parts = [TupleValue([s.start, s.stop, s.step]) for s in (self, other)]
    return compare(domain, function, parts[0], parts[1])


register(SliceValue, TypeSlots(richcompare=_richcompare))
compare_methods(slice)
