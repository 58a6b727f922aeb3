"""How eager lays out the result of an elementwise operation: by the strides of its operands.

Fakes of many such operations are those of a decomposition, which broadcasts its operands or makes others of them on the way, so that
the order of their dimensions is lost, or of a reference in Python, which takes another way than the kernels if dimensions have size 1.
Source: aten/src/ATen/TensorIterator.cpp (`fast_set_up`, `reorder_dimensions`, `allocate_or_resize_outputs`), torch 2.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for

from torchjit_fx.eager_rules.rule import Size, Value

__all__ = ["Undecided", "decided", "dense_strides", "elementwise_strides", "is_plain"]

Sizes = Sequence[Any]


class Undecided(Exception):
    """It depends on sizes that only the run knows."""


def elementwise_strides(operands: Sequence[torch.Tensor | None], shape: Sizes) -> Sizes:
    """The strides of a result.

    Args:
        operands: in the order in which the kernel has them; None for a number.
        shape: that of all operands, broadcast.

    Raises:
        Undecided: they depend on sizes that only the run knows.
    """
    tensors = [t for t in operands if t is not None]
    if len(tensors) == len(operands) and not any(_differ(t.shape, shape) for t in tensors):
        strides = _of_all_alike(tensors, shape)
        if strides is not None:
            return strides
    return _dense_in(_order([_broadcast(t, shape) for t in tensors], shape), shape)


def dense_strides(t: torch.Tensor) -> Sizes:
    """Those of `empty_like(t)`: its own, or without gaps in its order of dimensions.

    Raises:
        Undecided: they depend on sizes that only the run knows.
    """
    own: tuple[Any, ...] = t.stride()
    return own if _is_dense(t) else _dense_in(_order([own], t.shape), t.shape)


def is_plain(t: torch.Tensor) -> bool:
    """Is it contiguous, also in the strides of its dimensions of size 1, which `is_contiguous` leaves out?"""
    if not t.is_contiguous():
        return False
    sizes = t.shape
    if not t._has_symbolic_sizes_strides and 1 not in sizes:
        return True
    expected: Value = 1
    for size, stride in zip(reversed(sizes), reversed(t.stride()), strict=True):
        if not _same(stride, expected):
            return False
        if type(size) is not int or size > 1:
            expected = expected * size
    return True


def _of_all_alike(tensors: Sequence[torch.Tensor], shape: Sizes) -> Sizes | None:
    """Of operands of one shape that lie in the same way."""
    if all(t.is_contiguous() for t in tensors):
        return make_contiguous_strides_for(tuple(shape))
    if len(shape) == 4 and all(t.is_contiguous(memory_format=torch.channels_last) for t in tensors):
        return make_channels_last_strides_for(shape)
    last: tuple[Any, ...] = tensors[-1].stride()
    if any(_differ(t.stride(), last) for t in tensors[:-1]) or not _is_dense(tensors[-1]):
        return None
    return last


def _broadcast(t: torch.Tensor, shape: Sizes) -> list[Size]:
    missing = len(shape) - t.dim()
    own = zip(t.shape, t.stride(), shape[missing:], strict=True)
    return [*[0] * missing, *(0 if not _same(size, n) else stride for size, stride, n in own)]


def _order(strides: Sequence[Sizes], shape: Sizes) -> list[int]:
    """The dimensions, innermost first: sorted by insertion, because two of them may not compare."""
    order = list(reversed(range(len(shape))))
    for i in range(1, len(order)):
        outer = i
        for inner in reversed(range(i)):
            found = _compare(order[inner], order[outer], strides, shape)
            if found > 0:
                order[inner], order[outer] = order[outer], order[inner]
                outer = inner
            elif found < 0:
                break
    return order


def _compare(a: int, b: int, strides: Sequence[Sizes], shape: Sizes) -> int:
    """Does dimension `a` lie outside of `b` (1) or inside (-1)? 0: no operand says so."""
    for own in strides:
        if _same(own[a], 0) or _same(own[b], 0):
            continue
        if _less(own[a], own[b]):
            return -1
        if _less(own[b], own[a]) or _less(shape[b], shape[a]):
            return 1
    return 0


def _dense_in(order: Sequence[int], shape: Sizes) -> Sizes:
    if all(dim == len(shape) - 1 - k for k, dim in enumerate(order)):
        return make_contiguous_strides_for(tuple(shape))
    strides: list[Size] = [1] * len(shape)
    step: Value = 1
    for dim in order:
        strides[dim] = step
        step = step * shape[dim]
    return tuple(strides)


def _is_dense(t: torch.Tensor) -> bool:
    """Without gaps, and no element twice."""
    expected: Value = 1
    left = [(size, stride) for size, stride in zip(t.shape, t.stride(), strict=True) if not _less(size, 2)]
    while left:
        at = next((k for k, (_, stride) in enumerate(left) if _same(stride, expected)), None)
        if at is None:
            return False
        expected = expected * left.pop(at)[0]
    return True


def _differ(some: Sizes, others: Sizes) -> bool:
    return len(some) != len(others) or not all(map(_same, some, others))


def _same(a: Size, b: Size) -> bool:
    return a is b or decided(a == b)


def _less(a: Size, b: Size) -> bool:
    return a is not b and decided(a < b)


def decided(condition: Value) -> bool:
    """The truth of a condition, with a guard if it is about sizes that vary.

    Raises:
        Undecided: it depends on sizes that only the run knows.
    """
    if isinstance(condition, torch.SymBool):
        node: Value = condition.node
        known = node.maybe_as_bool()
        if known is None and not node.has_hint():
            raise Undecided
        return bool(condition) if known is None else known
    return bool(condition)
