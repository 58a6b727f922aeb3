"""bytearray: its content is a constant of the region, its methods are those of C on a copy."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture.atoms import stripped
from torchjit_vm.capture.builtin_table import builtin, method
from torchjit_vm.capture.exceptions import from_real
from torchjit_vm.capture.raw import constant_of, is_constant
from torchjit_vm.capture.reading import constant_object
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.values import ByteArray, Const, SliceValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["byte_operation", "content"]

_Args = list[Value]
_Kwargs = dict[str, Value]


def content(domain: CaptureDomain, value: ByteArray) -> bytearray:
    """What it holds; that of a real one is relied on."""
    if value.data is None:
        path, found = value.path, bytes(value.real)
        if path is not None:
            domain.guard_value(path.computed(bytes), found)
        value.data, value.before = bytearray(found), found
    return value.data


def _real(domain: CaptureDomain, value: Value) -> Any:
    """A real object to compute with.

    Raises:
        GraphBreak: the value is no constant.
    """
    if isinstance(value, ByteArray):
        return content(domain, value)
    if isinstance(value, SliceValue):
        return domain.slice(value)
    if not is_constant(domain, value):
        raise domain.graph_break(UNKNOWN_OPERATION, "an operation of a bytearray and what is no constant")
    return constant_of(domain, stripped(domain, value))


def byte_operation(domain: CaptureDomain, function: Callable[..., Any], *args: Value) -> Value:
    """Call a function of C with byte arrays among its arguments, which may change."""
    arrays = [a for a in args if isinstance(a, ByteArray)]
    real = [_real(domain, a) for a in args]
    before = [bytes(content(domain, a)) for a in arrays]
    try:
        result = function(*real)
    except Exception as error:
        raise domain.raised(from_real(domain, error)) from None
    finally:
        for array, old in zip(arrays, before, strict=True):
            if content(domain, array) != old:
                domain.touch(array)
    for array in arrays:
        if result is array.data:
            return array
    if type(result) is bytearray:
        return ByteArray(result)
    if isinstance(result, (list, tuple)) and any(type(item) is bytearray for item in result):
        return _parts(result)
    return domain.constant(result) if type(result) is bool else constant_object(domain, result)


def _parts(result: Any) -> Value:
    from torchjit_vm.capture.values import ListValue, TupleValue  # noqa: PLC0415  of no use elsewhere here

    made: list[Value] = [ByteArray(item) if type(item) is bytearray else Const(item) for item in result]
    return ListValue(made) if isinstance(result, list) else TupleValue(made)


@builtin(bytearray)
def _make(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if kwargs or not all(isinstance(a, ByteArray) or is_constant(domain, a) for a in args):
        return None
    return byte_operation(domain, bytearray, *args)


_LEFT_OUT = frozenset(
    {"__init__", "__iter__", "__reduce__", "__reduce_ex__", "__getattribute__", "__sizeof__", "__alloc__"}
    | {"__buffer__", "__release_buffer__"}
)


def _method(name: str, raw: Any) -> None:
    def run(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        if kwargs:
            if not all(is_constant(domain, v) for v in kwargs.values()):
                return None
            named = {k: constant_of(domain, v) for k, v in kwargs.items()}
            return byte_operation(domain, lambda *given: raw(*given, **named), *args)
        return byte_operation(domain, raw, *args)

    method(name, bytearray)(run)


for _name, _raw in vars(bytearray).items():
    if isinstance(_raw, (types.MethodDescriptorType, types.WrapperDescriptorType)) and _name not in _LEFT_OUT:
        _method(_name, _raw)
