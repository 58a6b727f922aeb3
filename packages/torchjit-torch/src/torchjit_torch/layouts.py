"""How tensors lie in memory, from sizes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["contiguous_strides"]


def contiguous_strides(sizes: Sequence[Any], order: Sequence[int] | None = None) -> tuple[Any, ...]:
    """Strides without gaps, innermost last in `order` (row-major by default). A size of 0 counts as 1, as in torch.

    Args:
        sizes: ints, or what stands for a size that varies.
    """
    strides: list[Any] = [1] * len(sizes)
    step: Any = 1
    for dim in reversed(range(len(sizes)) if order is None else order):
        strides[dim] = step
        step = step * (max(sizes[dim], 1) if type(sizes[dim]) is int else sizes[dim])
    return tuple(strides)
