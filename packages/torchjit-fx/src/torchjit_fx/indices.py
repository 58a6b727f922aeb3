"""Items of tensors whose place is a number that varies: `x[i]`, `x[:, i] = y`, `x[:t]`.

PyTorch asks an index for its value, which would fix it: one compilation for each `i`. `torch.select` takes it as it is, and selecting first is
what indexing does, too. A slice may be given tensors for its ends: their numbers are read as `item()` reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchjit_fx.leaves import SymLeaf, TensorLeaf
from torchjit_fx.unbacked import read_number

if TYPE_CHECKING:
    from torchjit_fx.domain import TensorDomain

__all__ = ["INDEX_CALLS", "dimensions"]

_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


def _item(domain: TensorDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`x[key]`, and `x[key] = value`."""
    if len(args) < 2 or kwargs or not isinstance(args[0], TensorLeaf):
        return NotImplemented
    key: list[Any] = list(args[1]) if type(args[1]) is tuple else [args[1]]
    if not any(type(k) is SymLeaf or type(k) is slice for k in key):
        return NotImplemented
    read: list[Any] = [_with_numbers(domain, k, capture) if type(k) is slice else k for k in key]
    base = args[0]
    places = _selected(read, len(base.record.sizes))
    if places and any(not read[k].value.node.has_hint() for k in places) and capture.may_catch():
        places = {}  # whether it is in range shows when the graph runs, behind the program's `except`
    if not places and all(a is b for a, b in zip(read, key, strict=True)):
        return NotImplemented
    for k, dim in sorted(places.items(), reverse=True):
        base = domain.recorder.call(torch.select, (base, dim, read[k]), {}, capture)
    rest = tuple([item for k, item in enumerate(read) if k not in places])
    if not rest and len(args) == 2:
        return base
    return domain.recorder.call(fn, (base, rest or Ellipsis, *args[2:]), {}, capture)


def _with_numbers(domain: TensorDomain, piece: slice, capture: Any) -> slice:
    """The slice with the numbers that tensors hold."""
    ends = (piece.start, piece.stop, piece.step)
    if not domain.settings.capture_scalar_outputs or not any(isinstance(end, TensorLeaf) for end in ends):
        return piece
    return slice(*[read_number(domain, end, "a slice", capture) if _is_number(end) else end for end in ends])


def _is_number(end: Any) -> bool:
    return isinstance(end, TensorLeaf) and end.record.sizes == () and end.record.dtype in _INTEGERS


def _selected(key: Sequence[Any], rank: int) -> dict[int, int]:
    """The symbolic integers of a key, each with the dimension that it chooses from; none where the key is of an unusual kind.

    From the last to the first they may be selected one by one: dimensions are counted from the front up to an ellipsis, behind it
    from the back.
    """
    taken = [dimensions(k) for k in key]
    if not all(type(k) is not SymLeaf or isinstance(k.value, torch.SymInt) for k in key) or None in taken:
        return {}
    counts = [n for n in taken if n is not None]
    gaps = [k for k, item in enumerate(key) if item is Ellipsis]
    if sum(counts) > rank or len(gaps) > 1:
        return {}  # refused by PyTorch
    places = {}
    for k, item in enumerate(key):
        if type(item) is SymLeaf:
            behind = bool(gaps) and k > gaps[0]
            places[k] = rank - sum(counts[k:]) if behind else sum(counts[:k])
    return places


def dimensions(item: Any) -> int | None:
    """How many dimensions a part of a key goes through; None where it is of an unusual kind."""
    if item is None or item is Ellipsis or type(item) is bool:
        return 0
    if isinstance(item, TensorLeaf):
        return len(item.record.sizes) if item.record.dtype in (torch.bool, torch.uint8) else 1
    return 1 if type(item) in (int, slice, SymLeaf) else None


INDEX_CALLS: dict[Any, Any] = dict.fromkeys(
    (operator.getitem, operator.setitem, torch.Tensor.__getitem__, torch.Tensor.__setitem__), _item
)
"""Entries of the table of special calls."""
