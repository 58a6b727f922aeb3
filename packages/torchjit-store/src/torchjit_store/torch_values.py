"""Values of torch that documents hold by what they are: dtypes, devices, layouts, sizes, key sets, operators, small constant tensors.

A value is a tag and text or numbers. Imported only where torch is loaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable
from torchjit_store.document import Data, FormatError, text_of
from torchjit_store.stale import Stale

__all__ = ["build", "describe", "is_tensor", "tensor_bytes"]

TENSOR = reason(
    "TJ-STORE-002",
    "a tensor in a compiled entry",
    "The entry holds a tensor that is no argument of the region and that no name of the program leads to, so that another process has none.",
    "Make the tensor a buffer or parameter of a module, or a global variable.",
)
_MOST_BYTES = 4 << 20
"""Of one constant: masks and position encodings that a graph has computed once are as large as that."""
_EXACT: dict[type, Callable[[Any], tuple[str, Data] | None]] = {}
_OF_CUSTOM_OPERATORS = "_PyObjectDispatchFunc"
"""The class of `_op` of those that Python defines, since torch 2.15; no module has it."""
_handles: dict[int, tuple[object, object]] = {}
"""Operators' C++ entries, by id, with the operator."""


def describe(obj: object) -> tuple[str, Data] | None:
    """A tag and JSON-able data for a value of torch; None where it is no such value."""
    exact = _EXACT.get(type(obj))
    if exact is not None:
        return exact(obj)
    if type(obj).__name__ == _OF_CUSTOM_OPERATORS and type(obj).__module__ == "torch._C":
        return _listed_handle(obj)
    if isinstance(obj, torch._ops.HigherOrderOperator):
        name = obj._name
        return ("higher-order", name) if getattr(torch.ops.higher_order, name, None) is obj else None
    return None


def _operator(op: Any) -> tuple[str, Data] | None:
    name = str(op)
    return ("operator", name) if _find_operator(name) is op else None


def _handle(function: Any) -> tuple[str, Data] | None:
    """An operator's `_op`, if it may be one."""
    return _listed_handle(function) if "torch._ops" in str(getattr(function, "__module__", "")) else None


def _listed_handle(function: Any) -> tuple[str, Data] | None:
    """An operator's `_op`. It does not say whose it is: all that torch has made are looked through."""
    found = _handles.get(id(function))
    if found is None or found[0] is not function:
        _list_handles()
        found = _handles.get(id(function))
    return ("handle", str(found[1])) if found is not None and found[0] is function else None


def _list_handles() -> None:
    everything: Any = vars(torch.ops)
    for namespace in list(everything.values()):
        if not isinstance(namespace, torch._ops._OpNamespace):
            continue
        for packet in list(vars(namespace).values()):
            if not isinstance(packet, torch._ops.OpOverloadPacket):
                continue
            ops: list[Any] = [packet, *(o for o in vars(packet).values() if isinstance(o, torch._ops.OpOverload))]
            for op in ops:
                _handles[id(op._op)] = (op._op, op)


_EXACT |= {
    torch.dtype: lambda value: ("dtype", str(value).removeprefix("torch.")),
    torch.device: lambda value: ("device", str(value)),
    torch.layout: lambda value: ("layout", str(value).removeprefix("torch.")),
    torch.memory_format: lambda value: ("memory_format", str(value).removeprefix("torch.")),
    torch.Size: lambda value: ("Size", list(value)) if all(type(n) is int for n in value) else None,
    torch._C.DispatchKeySet: lambda value: ("keys", value.raw_repr()),
    torch._ops.OpOverload: _operator,
    torch._ops.OpOverloadPacket: _operator,
    type(len): _handle,
}


def is_tensor(obj: object) -> bool:
    """Is it a tensor, of any class?"""
    return issubclass(type(obj), torch.Tensor)


def tensor_bytes(tensor: torch.Tensor) -> tuple[Data, bytes]:
    """A constant: dtype, sizes, strides and offset, and the bytes of its memory.

    Raises:
        NotStorable: it is large, of a subclass, on another device, has a history, or shares memory.
    """
    if (
        type(tensor) is not torch.Tensor
        or tensor.device.type != "cpu"
        or tensor.layout is not torch.strided
        or tensor.requires_grad
        or tensor.is_inference()
        or tensor.is_quantized
        or tensor._is_view()
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        raise NotStorable(TENSOR, f"{type(tensor).__name__} on {tensor.device}")
    storage = tensor.untyped_storage()
    if storage.nbytes() > _MOST_BYTES:
        raise NotStorable(TENSOR, f"{storage.nbytes()} bytes")
    data = [
        str(tensor.dtype).removeprefix("torch."),
        list(tensor.shape),
        list(tensor.stride()),
        tensor.storage_offset(),
    ]
    return data, ctypes.string_at(storage.data_ptr(), storage.nbytes())


def build(tag: str, data: Data, blobs: tuple[bytes, ...]) -> object:
    """The value that `describe` has described, or the tensor of `tensor_bytes` with the place of its bytes behind its data.

    Raises:
        FormatError: it is none.
        Stale: there is no such operator.
    """
    if tag in _TYPES:
        found = vars(torch).get(data)
        if not isinstance(found, _TYPES[tag]):
            raise FormatError(f"{data!r} is no {tag}")
        return found
    if tag == "device":
        return torch.device(text_of(data))
    if tag == "Size":
        return torch.Size(data)
    if tag == "keys":
        return torch._C.DispatchKeySet.from_raw_repr(data)
    if tag == "tensor":
        return _tensor(data, blobs)
    op = _find_higher_order(text_of(data)) if tag == "higher-order" else _find_operator(text_of(data))
    if op is None:
        raise Stale(f"there is no operator {data}")
    if tag == "handle":
        return op._op
    if tag not in ("operator", "higher-order"):
        raise FormatError(f"unknown kind of value {tag!r}")
    return op


_TYPES: dict[str, type] = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}


def _tensor(data: Data, blobs: tuple[bytes, ...]) -> torch.Tensor:
    dtype, sizes, strides, offset, place = data
    if type(place) is not int or not 0 <= place < len(blobs):
        raise FormatError("a tensor without bytes")
    kind = build("dtype", dtype, ())
    memory = torch.empty(len(blobs[place]), dtype=torch.uint8)
    if blobs[place]:
        memory.copy_(torch.frombuffer(bytearray(blobs[place]), dtype=torch.uint8))
    made: torch.Tensor = torch.empty(0, dtype=kind)  # type: ignore[call-overload]  # `build` has checked that it is a dtype
    with torch.no_grad():
        made.set_(memory.untyped_storage(), offset, sizes, strides)
    if memory.untyped_storage().nbytes() != len(blobs[place]):  # it grows where the sizes want more
        raise FormatError("a tensor with fewer bytes than elements")
    return made


def _find_operator(name: str) -> Any:
    """`aten.add.Tensor` or `aten.add`; None where nobody has registered it."""
    parts = name.split(".")
    if len(parts) not in (2, 3):
        return None
    found: Any = torch.ops
    for part, kind in zip(
        parts, (torch._ops._OpNamespace, torch._ops.OpOverloadPacket, torch._ops.OpOverload), strict=False
    ):
        if not part.isidentifier():
            return None
        try:
            found = getattr(found, part)
        except (AttributeError, RuntimeError):
            return None
        if not isinstance(found, kind):
            return None
    return found


def _find_higher_order(name: str) -> Any:
    found = vars(torch.ops.higher_order).get(name)
    if found is None and name.isidentifier():
        found = getattr(torch.ops.higher_order, name, None)
    return found if isinstance(found, torch._ops.HigherOrderOperator) else None
