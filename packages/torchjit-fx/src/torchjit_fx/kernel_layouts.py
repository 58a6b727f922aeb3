"""Where results of kernels lie otherwise than torch's fake tensors say.

Fakes of batch norms are those of a pointwise decomposition, which keeps the order of the argument's dimensions. The kernels of CPUs do so only
for tensors that are contiguous, in one of the memory formats; results of others are contiguous.
Source: aten/src/ATen/native/Normalization.cpp (`batch_norm_cpu`), torch 2.15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for, suggest_memory_format

__all__ = ["LAID_OUT_BY_KERNELS", "as_kernels_do"]

_aten = torch.ops.aten
LAID_OUT_BY_KERNELS = frozenset(
    {
        _aten.native_batch_norm.default,
        _aten._native_batch_norm_legit.default,
        _aten._native_batch_norm_legit.no_stats,
        _aten._native_batch_norm_legit_no_training.default,
        _aten._native_batch_norm_legit_functional.default,
    }
)


def as_kernels_do(args: Sequence[Any], results: Any, make: Callable[..., torch.Tensor]) -> Any:
    """The results of such a call, the first of them as the kernel lays it out.

    Args:
        args: of the call.
        results: fake tensors.
        make: a fake tensor from sizes, strides, dtype and device.
    """
    x, first = args[0], results[0]
    if x.device.type != "cpu" or x.is_contiguous() or first.dim() < 2:
        return results
    contiguous = suggest_memory_format(x) is torch.contiguous_format
    sizes = tuple(first.shape)
    strides = make_contiguous_strides_for(sizes) if contiguous else make_channels_last_strides_for(sizes)
    if tuple(first.stride()) == tuple(strides):
        return results
    return (make(sizes, strides, first.dtype, first.device), *results[1:])
