"""Whether elements of tensors lie on the same memory, by sizes and strides."""

from __future__ import annotations

import math

import torch

from torchjit_torch.layouts import is_static, overlaps_itself

__all__ = ["byte_range", "is_dense", "overlaps_partly", "shows_memory_twice"]


def is_dense(tensor: torch.Tensor) -> bool:
    """Does each place between its first and its last element belong to exactly one element?"""
    if tensor.numel() == 0 or tensor.is_contiguous():
        return True
    return bool(torch.ops.aten.is_non_overlapping_and_dense.default(tensor))


def shows_memory_twice(tensor: torch.Tensor) -> bool:
    """Are two of its elements one place in memory? Of symbolic sizes only strides of zero tell."""
    if is_static(tensor):
        return tensor.numel() > 0 and overlaps_itself(tensor.shape, tensor.stride())
    return any(
        type(stride) is int and stride == 0 and not (type(size) is int and size < 2)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def overlaps_partly(a: torch.Tensor, b: torch.Tensor) -> bool:
    """May some, but not all, elements of two tensors of one storage be the same place in memory?

    An operator that writes to one and reads the other then raises in eager PyTorch, or, where that is too hard to say for it
    (ATen/MemoryOverlap.cpp, torch 2.15), gives what the order of its loops gives.
    """
    (begin, end), (other_begin, other_end) = byte_range(a), byte_range(b)
    if a is b or not (begin < other_end and other_begin < end):
        return False
    if a.element_size() != b.element_size():
        return True
    same = (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())
    return not same and _meet(a, b)


def byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Where it begins and ends in its storage; (0, 0) if it has no elements or symbolic sizes."""
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    if not all(type(n) is int for n in numbers) or 0 in tensor.shape:
        return 0, 0
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    begin = int(tensor.storage_offset())
    return begin * tensor.element_size(), (begin + extent) * tensor.element_size()


_STEPS = 10_000


def _meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Is `offset + sum(index * stride)` the same number for some indices of both? True if it takes too long to say."""
    ranges: dict[int, list[int]] = {}  # by stride: the least and the greatest difference of the indices
    for tensor, side, end in ((a, 1, 1), (b, -1, 0)):
        for n, stride in zip(tensor.shape, tensor.stride(), strict=True):
            if n > 1 and stride:
                ranges.setdefault(stride, [0, 0])[end] += side * (n - 1)
    strides = sorted(ranges, reverse=True)
    lows = [sum(s * ranges[s][0] for s in strides[i:]) for i in range(len(strides) + 1)]
    highs = [sum(s * ranges[s][1] for s in strides[i:]) for i in range(len(strides) + 1)]
    steps = _STEPS

    def reaches(i: int, wanted: int) -> bool:
        nonlocal steps
        steps -= 1
        if steps < 0:
            return True
        if i == len(strides) or wanted % math.gcd(*strides[i:]):
            return wanted == 0
        stride, (low, high) = strides[i], ranges[strides[i]]
        first = max(low, -((highs[i + 1] - wanted) // stride))
        last = min(high, (wanted - lows[i + 1]) // stride)
        return any(reaches(i + 1, wanted - stride * k) for k in range(first, last + 1))

    return reaches(0, int(b.storage_offset()) - int(a.storage_offset()))
