"""Calls that read a number in a tensor, done without reading it: the graph computes with the tensor.

`torch.full(size, t)` fills its memory with the tensor; `x[t]` takes a copy of the row, see `selections`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from torchjit_fx.data_errors import CaughtErrors
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import TensorLeaf
from torchjit_fx.modes import DEFAULT_DTYPE

__all__ = ["fill", "select"]

_ITEMS = frozenset({operator.getitem, torch.Tensor.__getitem__})

_EMPTY: dict[Any, tuple[Any, int]] = {
    torch.full: (torch.empty, 1),
    torch.full_like: (torch.empty_like, 1),
    torch.Tensor.new_full: (torch.Tensor.new_empty, 2),
}
"""To the function that makes the memory, and the place of the number among the arguments."""


def fill(domain: CallDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], capture: Any) -> Any:
    """The call, where the number cannot be out of the range of the result's type; NotImplemented for all else."""
    if fn not in _EMPTY or kwargs.get("out") is not None or kwargs.get("requires_grad"):
        return NotImplemented
    make, place = _EMPTY[fn]
    value = kwargs.get("fill_value") if len(args) <= place else args[place]
    if not isinstance(value, TensorLeaf) or value.record.sizes != () or value.record.requires_grad:
        return NotImplemented  # of one that requires a gradient, reading the number warns
    given = value.record.dtype
    wanted = kwargs.get("dtype")
    if wanted is None:
        wanted = args[0].record.dtype if fn is not torch.full else _dtype_of_number(domain, given)
    if torch.promote_types(given, wanted) is not wanted or wanted.is_complex:
        return NotImplemented
    options = {name: option for name, option in kwargs.items() if name != "fill_value"}
    made = domain.call(make, args[:place], options | {"dtype": wanted}, capture)
    return domain.call(torch.Tensor.fill_, (made, value), {}, capture)


def _dtype_of_number(domain: CallDomain, dtype: torch.dtype) -> Any:
    """Of what `torch.full` makes of a Python number that was read from a tensor of this type."""
    if dtype is torch.bool:
        return dtype
    return domain.modes.read(DEFAULT_DTYPE) if dtype.is_floating_point else torch.int64


def select(domain: CallDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], capture: Any) -> Any:
    """`x[t]` for a contiguous `x` and an integer `t` that is not known at capture; NotImplemented for all else."""
    if fn not in _ITEMS or len(args) != 2 or kwargs:
        return NotImplemented
    base, index = args
    recorder = domain.recorder
    if not (isinstance(base, TensorLeaf) and isinstance(index, TensorLeaf)) or recorder.scope is not None:
        return NotImplemented
    b, i = base.record, index.record
    if capture.may_catch() and not domain.of(CaughtErrors).tested:  # an index out of range
        return NotImplemented
    if i.sizes != () or i.dtype not in (torch.int64, torch.int32) or i.device != b.device or recorder.checkpointed:
        return NotImplemented
    if not b.sizes or not all(type(n) is int for n in (*b.sizes, *b.strides)) or b.strides != _contiguous(b.sizes):
        return NotImplemented
    mark = capture.mark()
    rows = recorder.call(
        operator.getitem, (base, recorder.call(torch.reshape, (index, (1,)), {}, capture)), {}, capture
    )
    row = recorder.call(torch.squeeze, (rows, 0), {}, capture)
    recorder.selections.add(base, row, mark)
    return row


def _contiguous(sizes: Sequence[Any]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(sizes):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))
