"""Constants; instances of classes derived from str, int, float, complex and bytes; objects whose identity is settled."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture.atoms import base_of
from torchjit_vm.capture.byte_arrays import byte_operation
from torchjit_vm.capture.operators import RICH, compute, is_not_implemented
from torchjit_vm.capture.raw import to_raw
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import AtomObject, ByteArray, Const, Known, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__: list[str] = []


def _compare_real(domain: CaptureDomain, function: Any, self: Const | Known, other: Value) -> Value | None:
    if type(other) in (Const, Known):
        return compute(domain, function, to_raw(domain, self), to_raw(domain, other))
    return _compare_plain(domain, function, self, base_of(other)) if type(other) is AtomObject else None


def _compare_atom(domain: CaptureDomain, function: Any, self: AtomObject, other: Value) -> Value | None:
    plain = base_of(other) if type(other) is AtomObject else other
    return _compare_plain(domain, function, base_of(self), plain)


def _compare_plain(domain: CaptureDomain, function: Any, self: Const | Known, other: Value) -> Value | None:
    """By the method of the plain type, which knows nothing of the classes derived from it."""
    if type(other) not in (Const, Known):
        return None
    real = to_raw(domain, self)
    result = compute(domain, getattr(type(real), RICH[function][0]), real, to_raw(domain, other))
    return None if is_not_implemented(result) else result


def _concat(domain: CaptureDomain, self: Const, other: Value) -> Value | None:
    known = type(other) is ByteArray and type(self.value) is bytes
    return byte_operation(domain, operator.add, self, other) if known else None


def _repeat(domain: CaptureDomain, self: Const, count: int) -> Value:
    return compute(domain, operator.mul, domain.use(self), count)


register(Const, TypeSlots(richcompare=_compare_real, concat=_concat, repeat=_repeat))
register(Known, TypeSlots(richcompare=_compare_real))
register(AtomObject, TypeSlots(richcompare=_compare_atom))
