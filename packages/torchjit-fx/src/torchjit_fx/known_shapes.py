"""Calls whose result's shape depends on data that is known at capture: lengths, masks and repeats made of constants."""

from __future__ import annotations

import operator
from typing import Any

import torch

from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import TensorLeaf

__all__ = ["call_with_known_shape"]

_ITEMS = frozenset({operator.getitem, torch.Tensor.__getitem__})
_REPEATS = frozenset({torch.repeat_interleave, torch.Tensor.repeat_interleave})


def call_with_known_shape(
    domain: CallDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], capture: Any
) -> Any:
    """The result of a call that the recorder refused for the shape of its result; NotImplemented if that is not known."""
    if fn in _REPEATS and len(args) > 1 and kwargs.get("output_size") is None:
        repeats = domain.known.tensor(args[1], capture) if isinstance(args[1], TensorLeaf) else None
        if repeats is not None:
            return domain.recorder.call(fn, args, kwargs | {"output_size": int(repeats.sum())}, capture)
    if fn in _ITEMS and len(args) == 2 and not kwargs:
        index = _without_masks(domain, args[0], args[1], capture)
        if index is not None:
            return domain.recorder.call(fn, (args[0], index), {}, capture)
    found = domain.known.result(fn, args, kwargs, capture)
    if found is None:
        return NotImplemented
    if isinstance(found, torch.Tensor):
        return constant(domain, found, capture)
    return tuple(constant(domain, t, capture) for t in found)


def _without_masks(domain: CallDomain, base: Any, index: Any, capture: Any) -> Any:
    """An index that does the same, with the places where its known masks are true; None if there is none."""
    items: list[Any] = []
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
        items.extend(constant(domain, places, capture) for places in mask.nonzero(as_tuple=True))
        at, changed = at + len(sizes), True
    return tuple(items) if changed else None


def constant(domain: CallDomain, real: torch.Tensor, capture: Any) -> TensorLeaf:
    """A small tensor of integers as a step of the graph."""
    fn: Any = torch.tensor if real.numel() else torch.zeros
    given = real.tolist() if real.numel() else tuple(real.shape)
    kind = {"dtype": real.dtype, "device": real.device}
    made: TensorLeaf = domain.recorder.call(fn, (given,), kind, capture)
    if made.record.strides != real.stride():  # what `nonzero` gives lies in memory column by column
        laid_out: TensorLeaf = domain.recorder.call(
            torch.empty_strided, (tuple(real.shape), real.stride()), kind, capture
        )
        made = domain.recorder.call(torch.Tensor.copy_, (laid_out, made), {}, capture)
    return made
