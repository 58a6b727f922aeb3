"""Tensors made of data in which numbers vary: `torch.tensor(n)`, `torch.tensor([n, 2])`, `x.new_tensor(x.shape)`, `torch.tensor([loss, 0.5])`.

PyTorch fixes such a number to its value when it fills the memory, and cuts it to 32 bits. So the graph has a `torch.full` of each number
that varies, beside the constants, and stays right for other numbers. Tensors in the data it reads as numbers: the graph joins them instead.
"""

from __future__ import annotations

import functools
import itertools

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import map_raw, marker_items
from torchjit_fx.leaves import Raw, RawKwargs, SymLeaf, TensorLeaf
from torchjit_fx.modes import DEFAULT_DTYPE
from torchjit_fx.records import TensorRecord

__all__: list[str] = []

_MOST_NUMBERS = 64
"""That vary: each is an operation. In data with more of them they are fixed."""


@call_rule(torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)
def _make(call: Call) -> Raw:
    of_tensor = call.function is torch.Tensor.new_tensor
    data = call.args[of_tensor] if len(call.args) > of_tensor else call.kwargs.get("data", call.kwargs.get("obj"))
    varying = [n for n in _numbers(data) if isinstance(n, SymLeaf | TensorLeaf)]
    if not varying or isinstance(data, TensorLeaf):
        return NotImplemented
    tensors = [n for n in varying if isinstance(n, TensorLeaf)]
    known = _of_known_tensors(call) if tensors else NotImplemented
    if known is not NotImplemented:
        return known
    numbers, shape = list(_numbers(data)), _shape(data)
    if shape is not None and len(varying) <= _MOST_NUMBERS:
        options = _options_of_parts(call, of_tensor, numbers)
        if options is not None and all(_can_be_joined(t.record, options) for t in tensors):
            return _joined(call, numbers, shape, options)
    if tensors:
        raise call.broken(breaks.DATA_DEPENDENT, f"{call.name}() of a list with tensors")
    return _of_fixed_numbers(call)


def _options_of_parts(call: Call, of_tensor: bool, numbers: list[Raw]) -> RawKwargs | None:
    """Dtype and device with which each part of the result is made; None where the call has options beside these."""
    options = {name: value for name, value in call.kwargs.items() if name not in ("data", "obj")}
    if len(call.args) > of_tensor + 1 or not options.keys() <= {"dtype", "device"}:
        return None
    if options.get("dtype") is None:
        options["dtype"] = call.args[0].record.dtype if of_tensor else _dtype(call.domain, numbers)
    if of_tensor and options.get("device") is None:
        options["device"] = call.args[0].record.device
    return options


def _of_known_tensors(call: Call) -> Raw:
    """What the call gives if the numbers in its tensors are known at capture, else NotImplemented."""
    try:
        return call.record(call.function, call.args, call.kwargs)
    except GraphBreak as stop:
        if stop.reason is not breaks.META_FAILED:
            raise
        return NotImplemented


def _can_be_joined(record: TensorRecord, options: RawKwargs) -> bool:
    """Is the tensor a number that a cast to the result's dtype gives as Python's number gives it?

    Of a float that becomes an integer PyTorch raises, and it never asks where the tensor lies.
    """
    dtype, device = options["dtype"], options.get("device")
    single = record.sizes == () and record.wrapping is None
    whole = dtype is torch.int64 and record.dtype in _WHOLE
    near = record.device.type == "cpu" if device is None else torch.device(device) == record.device
    return single and near and (whole or (dtype in _FLOATS and record.dtype in _WHOLE | _FLOATS))


_WHOLE = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


def _joined(call: Call, numbers: list[Raw], shape: list[int], options: RawKwargs) -> Raw:
    if not shape:
        return call.do(torch.full, ((), numbers[0]), options)  # a tensor alone is no data
    flat = _flat(call, numbers, options)
    return flat if len(shape) == 1 else call.do(torch.reshape, (flat, tuple(shape)))


def _of_fixed_numbers(call: Call) -> Raw:
    def fixed(leaf: Raw) -> Raw:
        return call.domain.concrete(leaf, call.capture) if isinstance(leaf, SymLeaf) else leaf

    return call.do(call.function, *map_raw((call.args, call.kwargs), fixed))


def _flat(call: Call, numbers: list[Raw], options: RawKwargs) -> Raw:
    """A tensor of one dimension: `torch.full` of each number that varies, the tensors, and the constants between them."""
    pieces: list[Raw] = []
    for varies, group in itertools.groupby(numbers, lambda n: isinstance(n, SymLeaf | TensorLeaf)):
        if varies:
            pieces += [_piece(call, n, options) for n in group]
        else:
            pieces.append(call.do(torch.tensor, (list(group),), options))
    alone = len(pieces) == 1 and not isinstance(numbers[0], TensorLeaf)  # which is copied
    return pieces[0] if alone else call.do(torch.cat, (pieces,))


def _piece(call: Call, number: Raw, options: RawKwargs) -> Raw:
    if isinstance(number, SymLeaf):
        return call.do(torch.full, ((1,), number), options)
    dtype, made = options["dtype"], call.do(torch.Tensor.detach, (number,))
    if number.record.dtype in _WHOLE and dtype in _FLOATS:
        made = call.do(torch.Tensor.to, (made, torch.float64))  # by way of Python's float
    return call.do(torch.Tensor.reshape, (call.do(torch.Tensor.to, (made, dtype)), (1,)))


def _items(data: Raw) -> Raw:
    """Of a sequence, else None."""
    return data if type(data) in (list, tuple) else marker_items(data)


def _numbers(data: Raw) -> Raw:
    items = _items(data)
    if items is None:
        yield data
    else:
        for item in items:
            yield from _numbers(item)


def _shape(data: Raw) -> list[int] | None:
    """Of nested sequences of plain numbers and numbers that vary; None if it is something else, as a truth value that varies."""
    items = _items(data)
    if items is None:
        number = type(data) in (bool, int, float, SymLeaf) or isinstance(data, TensorLeaf)
        return [] if number and not (type(data) is SymLeaf and isinstance(data.value, torch.SymBool)) else None
    if not items:
        return [0]
    shapes = [_shape(item) for item in items]
    first = shapes[0]
    return None if first is None or any(shape != first for shape in shapes) else [len(items), *first]


def _dtype(domain: CallDomain, numbers: list[Raw]) -> torch.dtype:
    """What PyTorch infers for numbers of which one varies, and is no truth value."""
    if any(isinstance(n, TensorLeaf) for n in numbers):
        return functools.reduce(torch.promote_types, [_dtype_of(domain, n) for n in numbers])
    if any(type(n) is float or (isinstance(n, SymLeaf) and isinstance(n.value, torch.SymFloat)) for n in numbers):
        default: torch.dtype = domain.modes.read(DEFAULT_DTYPE)
        return default
    return torch.int64


def _dtype_of(domain: CallDomain, number: Raw) -> torch.dtype:
    """What PyTorch infers for one of several of which one is a tensor."""
    if isinstance(number, TensorLeaf):
        return number.record.dtype
    return torch.bool if type(number) is bool else _dtype(domain, [number])
