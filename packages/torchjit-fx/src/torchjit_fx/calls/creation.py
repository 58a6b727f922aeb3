"""Tensors made of data in which numbers vary: `torch.tensor(n)`, `torch.tensor([n, 2])`, `x.new_tensor(x.shape)`.

PyTorch fixes such a number to its value when it fills the memory, and cuts it to 32 bits. So the graph has a `torch.full` of each number
that varies, beside the constants, and stays right for other numbers.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import map_raw, marker_items
from torchjit_fx.leaves import SymLeaf
from torchjit_fx.modes import DEFAULT_DTYPE

__all__ = ["DATA_CALLS"]

_MOST_NUMBERS = 64
"""That vary: each is an operation. In data with more of them they are fixed."""


def _make(domain: CallDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], capture: Any) -> Any:
    of_tensor = fn is torch.Tensor.new_tensor
    place = int(of_tensor)
    data = args[place] if len(args) > place else kwargs.get("data", kwargs.get("obj"))
    varying = _varying(data)
    if not varying:
        return NotImplemented
    options = {name: value for name, value in kwargs.items() if name not in ("data", "obj")}
    shape = _shape(data)
    plain = len(args) <= place + 1 and options.keys() <= {"dtype", "device"}
    general = shape is not None and len(varying) <= _MOST_NUMBERS
    if not plain or not general or any(isinstance(n.value, torch.SymBool) for n in varying):

        def fixed(leaf: Any) -> Any:
            return domain.concrete(leaf, capture) if isinstance(leaf, SymLeaf) else leaf

        return domain.call(fn, map_raw(args, fixed), {name: map_raw(v, fixed) for name, v in kwargs.items()}, capture)
    numbers = list(_numbers(data))
    if options.get("dtype") is None:
        options["dtype"] = args[0].record.dtype if of_tensor else _dtype(domain, numbers)
    if of_tensor and options.get("device") is None:
        options["device"] = args[0].record.device
    if not shape:
        return domain.call(torch.full, ((), numbers[0]), options, capture)
    pieces: list[Any] = []
    for varies, group in itertools.groupby(numbers, lambda n: isinstance(n, SymLeaf)):
        if varies:
            pieces += [domain.call(torch.full, ((1,), n), options, capture) for n in group]
        else:
            pieces.append(domain.call(torch.tensor, (list(group),), options, capture))
    flat = domain.call(torch.cat, (pieces,), {}, capture) if len(pieces) > 1 else pieces[0]
    return flat if len(shape) == 1 else domain.call(torch.reshape, (flat, tuple(shape)), {}, capture)


def _items(data: Any) -> Any:
    """Of a sequence, else None."""
    return data if type(data) in (list, tuple) else marker_items(data)


def _varying(data: Any) -> list[SymLeaf]:
    items = _items(data)
    if items is None:
        return [data] if isinstance(data, SymLeaf) else []
    return [leaf for item in items for leaf in _varying(item)]


def _numbers(data: Any) -> Any:
    items = _items(data)
    if items is None:
        yield data
    else:
        for item in items:
            yield from _numbers(item)


def _shape(data: Any) -> list[int] | None:
    """Of nested sequences of plain numbers and numbers that vary; None if it is something else."""
    items = _items(data)
    if items is None:
        return [] if type(data) in (bool, int, float, SymLeaf) else None
    if not items:
        return [0]
    shapes = [_shape(item) for item in items]
    first = shapes[0]
    return None if first is None or any(shape != first for shape in shapes) else [len(items), *first]


def _dtype(domain: CallDomain, numbers: list[Any]) -> torch.dtype:
    """What PyTorch infers for numbers of which one varies, and is no truth value."""
    if any(type(n) is float or (isinstance(n, SymLeaf) and isinstance(n.value, torch.SymFloat)) for n in numbers):
        default: torch.dtype = domain.modes.read(DEFAULT_DTYPE)
        return default
    return torch.int64


DATA_CALLS: dict[Any, Any] = dict.fromkeys(
    (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor), _make
)
"""Callable -> handler, as in `special_calls`."""
