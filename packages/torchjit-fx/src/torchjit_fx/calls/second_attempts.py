"""What is done about calls that the recorder refuses for what only the run knows, by the reason: without reading it, or with what is known of it.

Of numbers in tensors the graph computes with the tensor: `torch.full(size, t)` fills its memory with it; `x[t]` takes a copy of the row, see
`selections`. A shape may be known, of lengths, masks and repeats made of constants.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from torchjit_core.reasons import Reason
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, CallRule
from torchjit_fx.data_errors import CaughtErrors
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import Raw, TensorLeaf
from torchjit_fx.modes import DEFAULT_DTYPE
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.records import TensorRecord
from torchjit_torch.layouts import contiguous_strides

__all__ = ["SECOND_ATTEMPTS"]

_REPEATS = frozenset({torch.repeat_interleave, torch.Tensor.repeat_interleave})

_ITEMS = frozenset({operator.getitem, torch.Tensor.__getitem__})

_EMPTY: dict[Any, tuple[Any, int]] = {
    torch.full: (torch.empty, 1),
    torch.full_like: (torch.empty_like, 1),
    torch.Tensor.new_full: (torch.Tensor.new_empty, 2),
}
"""To the function that makes the memory, and the place of the number among the arguments."""


def _fill(call: Call) -> Raw:
    """The call, where the number cannot be out of the range of the result's type; NotImplemented for all else."""
    if call.function not in _EMPTY or call.kwargs.get("out") is not None or call.kwargs.get("requires_grad"):
        return NotImplemented
    make, place = _EMPTY[call.function]
    value = call.kwargs.get("fill_value") if len(call.args) <= place else call.args[place]
    if not isinstance(value, TensorLeaf) or value.record.sizes != () or value.record.requires_grad:
        return NotImplemented  # of one that requires a gradient, reading the number warns
    given = value.record.dtype
    wanted = call.kwargs.get("dtype")
    if wanted is None:
        wanted = call.args[0].record.dtype if call.function is not torch.full else _dtype_of_number(call.domain, given)
    if torch.promote_types(given, wanted) is not wanted or wanted.is_complex:
        return NotImplemented
    options = {name: option for name, option in call.kwargs.items() if name != "fill_value"}
    made = call.do(make, call.args[:place], options | {"dtype": wanted})
    return call.do(torch.Tensor.fill_, (made, value))


def _dtype_of_number(domain: CallDomain, dtype: torch.dtype) -> Raw:
    """Of what `torch.full` makes of a Python number that was read from a tensor of this type."""
    if dtype is torch.bool:
        return dtype
    return domain.modes.read(DEFAULT_DTYPE) if dtype.is_floating_point else torch.int64


def _select(call: Call) -> Raw:
    """`x[t]` for a contiguous `x` and an integer `t` that is not known at capture; NotImplemented for all else."""
    if call.function not in _ITEMS or len(call.args) != 2 or call.kwargs:
        return NotImplemented
    base, index = call.args
    recorder = call.domain.recorder
    if not (isinstance(base, TensorLeaf) and isinstance(index, TensorLeaf)) or recorder.scope is not None:
        return NotImplemented
    if call.capture.may_catch() and not call.domain.of(CaughtErrors).tested:  # an index out of range
        return NotImplemented
    if recorder.checkpointed or not _is_row_of(base.record, index.record):
        return NotImplemented
    mark = call.capture.mark()
    rows = call.record(operator.getitem, (base, call.record(torch.reshape, (index, (1,)))))
    row = call.record(torch.squeeze, (rows, 0))
    recorder.selections.add(base, row, mark)
    return row


def _is_row_of(b: TensorRecord, i: TensorRecord) -> bool:
    """Is it an integer, on the device of a contiguous tensor?"""
    if i.sizes != () or i.dtype not in (torch.int64, torch.int32) or i.device != b.device:
        return False
    fixed = all(type(n) is int for n in (*b.sizes, *b.strides))
    return bool(b.sizes) and fixed and b.strides == contiguous_strides(b.sizes)


def _known_shape(call: Call) -> Raw:
    """The result of a call whose shape depends on data that is known."""
    if call.function in _REPEATS and len(call.args) > 1 and call.kwargs.get("output_size") is None:
        repeats = call.domain.known.tensor(call.args[1], call.capture) if isinstance(call.args[1], TensorLeaf) else None
        if repeats is not None:
            return call.record(call.function, call.args, call.kwargs | {"output_size": int(repeats.sum())})
    if call.function in _ITEMS and len(call.args) == 2 and not call.kwargs:
        index = _without_masks(call.domain, call.args[0], call.args[1], call.capture)
        if index is not None:
            return call.record(call.function, (call.args[0], index))
    found = call.domain.known.result(call.function, call.args, call.kwargs, call.capture)
    if found is None:
        return NotImplemented
    if isinstance(found, torch.Tensor):
        return _constant(call.domain, found, call.capture)
    return tuple(_constant(call.domain, t, call.capture) for t in found)


def _without_masks(domain: CallDomain, base: Raw, index: Raw, capture: CaptureContext) -> Raw:
    """An index that does the same, with the places where its known masks are true; None if there is none."""
    items: list[Raw] = []
    at, changed = 0, False
    for item in index if type(index) is tuple else (index,):
        if not isinstance(item, TensorLeaf) or item.record.dtype is not torch.bool:
            if item is Ellipsis or type(item) is bool:
                return None  # which dimensions the others are about is not counted here
            items.append(item)
            at += item is not None
            continue
        sizes = item.record.sizes
        mask = domain.known.tensor(item, capture) if sizes else None  # without dimensions it adds one
        if mask is None or not isinstance(base, TensorLeaf) or base.record.sizes[at : at + len(sizes)] != sizes:
            return None
        items.extend(_constant(domain, places, capture) for places in mask.nonzero(as_tuple=True))
        at, changed = at + len(sizes), True
    return tuple(items) if changed else None


def _constant(domain: CallDomain, real: torch.Tensor, capture: CaptureContext) -> TensorLeaf:
    """A small tensor of integers as a step of the graph."""
    fn: Raw = torch.tensor if real.numel() else torch.zeros
    given = real.tolist() if real.numel() else tuple(real.shape)
    kind = {"dtype": real.dtype, "device": real.device}
    made: TensorLeaf = domain.recorder.call(fn, (given,), kind, capture)
    if made.record.strides != real.stride():  # what `nonzero` gives lies in memory column by column
        laid_out: TensorLeaf = domain.recorder.call(
            torch.empty_strided, (tuple(real.shape), real.stride()), kind, capture
        )
        made = domain.recorder.call(torch.Tensor.copy_, (laid_out, made), {}, capture)
    return made


def _extreme(call: Call) -> Raw:
    """`max` and `min` of Python, of numbers and tensors: one of the arguments."""
    if not (call.function is max or call.function is min) or call.kwargs:
        return NotImplemented
    known = call.domain.known
    numbers = [known.value(a, call.capture) if isinstance(a, TensorLeaf) else a for a in call.args]
    if len(numbers) < 2 or not all(type(n) in (int, float, bool) for n in numbers):
        raise call.broken(breaks.DATA_DEPENDENT, f"{call.name} of tensors")
    return call.args[numbers.index(call.function(numbers))]


def _settled(call: Call) -> Raw:
    """A call that needs numbers, with those that are known."""
    known = call.domain.known.settled(call.args, call.kwargs, call.capture)
    return NotImplemented if known is None else call.record(call.function, *known)


SECOND_ATTEMPTS: dict[Reason, tuple[CallRule, ...]] = {
    breaks.DATA_DEPENDENT: (_extreme, _settled, _select, _fill),
    breaks.DYNAMIC_SHAPE: (_known_shape,),
}
"""By the reason of the refusal, in order; each may give NotImplemented."""
