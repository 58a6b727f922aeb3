"""Tensors made of data in which numbers vary: `torch.tensor(n)`, `torch.tensor([n, 2])`, `x.new_tensor(x.shape)`.

PyTorch fixes such a number to its value when it fills the memory, and cuts it to 32 bits. So the graph has a `torch.full` of each number
that varies, beside the constants, and stays right for other numbers.
"""

from __future__ import annotations

import itertools

import torch

from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import map_raw, marker_items
from torchjit_fx.leaves import Raw, RawKwargs, SymLeaf
from torchjit_fx.modes import DEFAULT_DTYPE

__all__: list[str] = []

_MOST_NUMBERS = 64
"""That vary: each is an operation. In data with more of them they are fixed."""


@call_rule(torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)
def _make(call: Call) -> Raw:
    of_tensor = call.function is torch.Tensor.new_tensor
    data = call.args[of_tensor] if len(call.args) > of_tensor else call.kwargs.get("data", call.kwargs.get("obj"))
    varying = [n for n in _numbers(data) if isinstance(n, SymLeaf)]
    if not varying:
        return NotImplemented
    options = {name: value for name, value in call.kwargs.items() if name not in ("data", "obj")}
    shape = _shape(data)
    plain = len(call.args) <= of_tensor + 1 and options.keys() <= {"dtype", "device"}
    general = shape is not None and len(varying) <= _MOST_NUMBERS
    if not plain or not general:
        return _of_fixed_numbers(call)
    numbers = list(_numbers(data))
    if options.get("dtype") is None:
        options["dtype"] = call.args[0].record.dtype if of_tensor else _dtype(call.domain, numbers)
    if of_tensor and options.get("device") is None:
        options["device"] = call.args[0].record.device
    if not shape:
        return call.do(torch.full, ((), numbers[0]), options)
    flat = _flat(call, numbers, options)
    return flat if len(shape) == 1 else call.do(torch.reshape, (flat, tuple(shape)))


def _of_fixed_numbers(call: Call) -> Raw:
    def fixed(leaf: Raw) -> Raw:
        return call.domain.concrete(leaf, call.capture) if isinstance(leaf, SymLeaf) else leaf

    return call.do(call.function, *map_raw((call.args, call.kwargs), fixed))


def _flat(call: Call, numbers: list[Raw], options: RawKwargs) -> Raw:
    """A tensor of one dimension: `torch.full` of each number that varies, and the constants between them."""
    pieces: list[Raw] = []
    for varies, group in itertools.groupby(numbers, lambda n: isinstance(n, SymLeaf)):
        if varies:
            pieces += [call.do(torch.full, ((1,), n), options) for n in group]
        else:
            pieces.append(call.do(torch.tensor, (list(group),), options))
    return call.do(torch.cat, (pieces,)) if len(pieces) > 1 else pieces[0]


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
        number = type(data) in (bool, int, float, SymLeaf)
        return [] if number and not (type(data) is SymLeaf and isinstance(data.value, torch.SymBool)) else None
    if not items:
        return [0]
    shapes = [_shape(item) for item in items]
    first = shapes[0]
    return None if first is None or any(shape != first for shape in shapes) else [len(items), *first]


def _dtype(domain: CallDomain, numbers: list[Raw]) -> torch.dtype:
    """What PyTorch infers for numbers of which one varies, and is no truth value."""
    if any(type(n) is float or (isinstance(n, SymLeaf) and isinstance(n.value, torch.SymFloat)) for n in numbers):
        default: torch.dtype = domain.modes.read(DEFAULT_DTYPE)
        return default
    return torch.int64
