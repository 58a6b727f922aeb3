"""bytearray."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture.byte_arrays import byte_operation, content
from torchjit_vm.capture.iteration import Indexing
from torchjit_vm.capture.keys import unhashable
from torchjit_vm.capture.operators import RICH
from torchjit_vm.capture.special_methods import is_not_implemented
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import AtomObject, BoundMethod, ByteArray, Const, Known, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain
    from torchjit_vm.capture.rebuild import Rebuilder

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


def _iter(domain: CaptureDomain, self: ByteArray) -> Value:
    return Indexing(self, BoundMethod(Known(bytearray.__getitem__), self))


def _setitem(domain: CaptureDomain, self: ByteArray, key: Value, value: Value) -> None:
    byte_operation(domain, operator.setitem, self, key, value)


def _delitem(domain: CaptureDomain, self: ByteArray, key: Value) -> None:
    byte_operation(domain, operator.delitem, self, key)


def _write_back(out: Rebuilder, self: ByteArray) -> None:
    if self.data is not None and bytes(self.data) != self.before:
        out.write(f"{out.expr(self)}[:] = {bytes(self.data)!r}")


register(
    ByteArray,
    TypeSlots(
        richcompare=_richcompare,
        binary=_binary,
        inplace=_inplace,
        concat=_concat,
        repeat=_repeat,
        length=lambda domain, self: len(content(domain, self)),
        iter=_iter,
        contains=lambda domain, self, item: byte_operation(domain, operator.contains, self, item),
        getitem=lambda domain, self, key: byte_operation(domain, operator.getitem, self, key),
        setitem=_setitem,
        delitem=_delitem,
        hash=unhashable,
        text=lambda domain, self, function: repr(content(domain, self)),
        copy=lambda domain, self, part, remember: ByteArray(bytearray(content(domain, self))),
        rebuild=lambda out, self: out.assign(f"bytearray({bytes(self.data or b'')!r})"),
        write_back=_write_back,
    ),
)
