"""How tensors lie in memory, and in the history of autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["contiguous_strides", "is_leaf", "is_static", "overlaps_itself", "storage_key"]


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors that share a storage, while one of them lives."""
    return int(tensor.untyped_storage()._cdata)


def is_static(tensor: torch.Tensor) -> bool:
    """Are its sizes and strides numbers?"""
    return all(type(n) is int for n in (*tensor.shape, *tensor.stride()))


def is_leaf(tensor: torch.Tensor) -> bool:
    """Is it a leaf of autograd? Not a view whose base was written since it was made under no_grad: torch refuses to tell."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def overlaps_itself(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """May two elements be one place in memory?"""
    extent = 1
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1 and stride < extent:
            return True
        extent += (size - 1) * stride
    return False


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
