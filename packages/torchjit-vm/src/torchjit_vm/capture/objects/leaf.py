"""Values that only the leaf handler knows."""

from __future__ import annotations

from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import Leaf

__all__: list[str] = []

register(
    Leaf,
    TypeSlots(
        type_of=lambda domain, self: domain.leaves.type_of(self.payload),
        raw=lambda domain, self: self.payload,
        has_leaf=lambda self: True,
    ),
)
