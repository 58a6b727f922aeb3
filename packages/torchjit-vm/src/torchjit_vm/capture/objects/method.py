"""Bound methods, and `super` objects."""

from __future__ import annotations

import operator
import types
from typing import TYPE_CHECKING

from torchjit_vm.capture.comparisons import is_, same_or_equal
from torchjit_vm.capture.reasons import UNHASHABLE
from torchjit_vm.capture.type_slots import Op, TypeSlots, register
from torchjit_vm.capture.values import BoundMethod, FunctionValue, Key, Known, SuperValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain
    from torchjit_vm.capture.rebuild import Rebuilder

__all__: list[str] = []


def _richcompare(domain: CaptureDomain, function: Op, self: BoundMethod, other: Value) -> Value | None:
    if type(other) is not BoundMethod or function not in (operator.eq, operator.ne):
        return None
    equal = is_(domain, self.self_, other.self_) and same_or_equal(domain, self.function, other.function)
    return domain.constant(equal is (function is operator.eq))


def _hash(domain: CaptureDomain, self: BoundMethod) -> Key:
    raise domain.graph_break(UNHASHABLE, "a bound method")


def _rebuild(out: Rebuilder, self: BoundMethod) -> str:
    function, self_ = out.expr(self.function), out.expr(self.self_)
    if isinstance(self.function, FunctionValue) or hasattr(getattr(self.function, "obj", None), "__get__"):
        # CPython 3.11 crashes when the C methods of some heap types are bound without the type.
        return out.assign(f"{function}.__get__({self_}, type({self_}))")
    return out.assign(f"{out.runtime(types.MethodType)}({function}, {self_})")


def _rebuild_super(out: Rebuilder, self: SuperValue) -> str:
    return out.assign(f"{out.runtime(super)}({out.expr(Known(self.cls))}, {out.expr(self.self_)})")


register(
    BoundMethod,
    TypeSlots(richcompare=_richcompare, hash=_hash, type_of=lambda domain, self: types.MethodType, rebuild=_rebuild),
)
register(SuperValue, TypeSlots(type_of=lambda domain, self: super, rebuild=_rebuild_super))
