"""What is known of an object by its address only: numbers that `id` gave."""

from __future__ import annotations

import operator
from typing import Any, cast

from torchjit_vm.capture import keys
from torchjit_vm.capture.atoms import stripped
from torchjit_vm.capture.comparisons import compare, is_
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reasons import UNHASHABLE, UNKNOWN_OPERATION
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.type_slots import Op, TypeSlots, register
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import Const, IdKey, IdValue, Key, Known, Leaf, Value

__all__: list[str] = []


def _compare_id(domain: CaptureDomain, function: Op, self: IdValue, other: Value) -> Value | None:
    equality = function in (operator.eq, operator.ne)
    other = stripped(domain, other)
    if equality and type(other) in (Const, Leaf) and type_of(domain, other) is int:
        found = _compare_number(domain, function, self, other)
        if found is not None:
            return found
    if type(other) is Leaf or not issubclass(type_of(domain, other), (int, float)):
        return None
    if equality and type(other) is IdValue and other.function is self.function:
        same = is_(domain, self.target, other.target)
        if same or self.function is not hash:
            return domain.constant(same is (function is operator.eq))
    elif equality and self.function is not hash and type(other) is not IdValue:
        return domain.constant(function is operator.ne)
    raise domain.graph_break(UNKNOWN_OPERATION, "a decision about the number of an id() or hash()")


def _compare_number(domain: CaptureDomain, function: Op, self: IdValue, other: Value) -> Value | None:
    """`id(object) == number`, which an earlier `id` may have given: for what is outside, it is compared. None for the rest."""
    if self.function not in (id, hash):
        return None
    number = keys.settled_number(domain, self.target)
    if number is None:
        return domain.constant(function is operator.ne) if self.function is id else None
    real: Any = cast(Any, self.target).real
    return compare(domain, function, Const(self.function(real)), other)


def _hash_id(domain: CaptureDomain, self: IdValue) -> Key:
    if self.function is hash:
        raise domain.graph_break(UNHASHABLE, "the number that hash() gives")
    domain.has_numbers = True
    keys.identity(domain, self.target)
    return IdKey(self.target)


def _rebuild_id(out: Rebuilder, self: IdValue) -> str:
    if type(self.target) is Known:  # not an object's: the thread's
        return out.assign(f"{out.runtime(self.target.obj)}()")
    return out.assign(f"{out.runtime(self.function)}({out.expr(self.target)})")


register(
    IdValue, TypeSlots(richcompare=_compare_id, hash=_hash_id, type_of=lambda domain, self: int, rebuild=_rebuild_id)
)
