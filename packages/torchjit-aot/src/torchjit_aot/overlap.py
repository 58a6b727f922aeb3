"""Whether elements of tensors lie on the same memory, by sizes and strides."""

from __future__ import annotations

import torch

__all__ = ["is_dense", "overlaps_itself", "overlaps_partly"]


def is_dense(tensor: torch.Tensor) -> bool:
    if tensor.numel() == 0 or tensor.is_contiguous():
        return True
    return bool(torch.ops.aten.is_non_overlapping_and_dense.default(tensor))


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """May two of its elements be one place in memory? Sizes and strides are ints."""
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < extent:
            return True
        extent += (size - 1) * stride
    return False


def overlaps_partly(a: torch.Tensor, b: torch.Tensor) -> bool:
    """For two tensors of one storage: eager PyTorch's own test (ATen/MemoryOverlap.cpp, torch 2.15)."""
    numbers = (*a.shape, *a.stride(), a.storage_offset(), *b.shape, *b.stride(), b.storage_offset())
    if a is b or not all(type(n) is int for n in numbers) or not (a.numel() and b.numel()):
        return False
    if not (is_dense(a) and is_dense(b)):
        return False  # too hard to say, also for eager PyTorch
    size, other_size = a.element_size(), b.element_size()
    begin, other_begin = a.storage_offset() * size, b.storage_offset() * other_size
    end, other_end = begin + a.numel() * size, other_begin + b.numel() * other_size
    if (begin, end) == (other_begin, other_end):
        return a.stride() != b.stride()
    return bool(begin < other_end and other_begin < end)
