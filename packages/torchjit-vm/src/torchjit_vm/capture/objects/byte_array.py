"""bytearray."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture.byte_arrays import byte_operation
from torchjit_vm.capture.operators import RICH, is_not_implemented
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import AtomObject, ByteArray, Const, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__: list[str] = []


def _richcompare(domain: CaptureDomain, function: Any, self: ByteArray, other: Value) -> Value | None:
    if not isinstance(other, (Const, AtomObject, ByteArray)):
        return None
    result = byte_operation(domain, getattr(bytearray, RICH[function][0]), self, other)
    return None if is_not_implemented(result) else result


def _binary(domain: CaptureDomain, function: Any, self: ByteArray, other: Value, reflected: bool) -> Value | None:
    return byte_operation(domain, function, self, other) if function is operator.mod and not reflected else None


def _inplace(domain: CaptureDomain, function: Any, self: ByteArray, other: Value) -> Value | None:
    return byte_operation(domain, function, self, other) if function in (operator.iadd, operator.imul) else None


def _concat(domain: CaptureDomain, self: Value, other: Value) -> Value | None:
    return byte_operation(domain, operator.add, self, other)


def _repeat(domain: CaptureDomain, self: ByteArray, count: int) -> Value:
    return byte_operation(domain, operator.mul, self, Const(count))


register(
    ByteArray, TypeSlots(richcompare=_richcompare, binary=_binary, inplace=_inplace, concat=_concat, repeat=_repeat)
)
