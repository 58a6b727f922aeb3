"""Bound methods."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture.comparisons import is_, same_or_equal
from torchjit_vm.capture.reasons import UNHASHABLE
from torchjit_vm.capture.rebuild_functions import method_expr
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import BoundMethod, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__: list[str] = []


def _richcompare(domain: CaptureDomain, function: Any, self: BoundMethod, other: Value) -> Value | None:
    if type(other) is not BoundMethod or function not in (operator.eq, operator.ne):
        return None
    equal = is_(domain, self.self_, other.self_) and same_or_equal(domain, self.function, other.function)
    return domain.constant(equal is (function is operator.eq))


def _hash(domain: CaptureDomain, self: BoundMethod) -> Any:
    raise domain.graph_break(UNHASHABLE, "a bound method")


register(BoundMethod, TypeSlots(richcompare=_richcompare, hash=_hash, rebuild=method_expr))
