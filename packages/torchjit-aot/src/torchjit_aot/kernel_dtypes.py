"""Dtypes of results where torch's metadata does not say what its kernels give.

Source: `is_mixed_type` and `param_scalar_type` in aten/src/ATen/native/cpu/mixed_data_type.h (torch 2.15): on CPU, a norm of
a 16-bit tensor with parameters or statistics in float32 saves its statistics in float32. The metadata says 16 bits, and a
backward with statistics that are rounded to them has other gradients: wrong ones where a channel hardly varies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["with_kernel_dtypes"]

aten = torch.ops.aten
_PARAMETERS = {
    aten.native_layer_norm.default: slice(2, 4),
    aten.native_group_norm.default: slice(1, 3),
    aten.native_batch_norm.default: slice(1, 5),
    aten._native_batch_norm_legit.default: slice(1, 5),
    aten._native_batch_norm_legit.no_stats: slice(1, 3),
    aten._native_batch_norm_legit_functional.default: slice(1, 5),
    aten._native_batch_norm_legit_no_training.default: slice(1, 5),
    aten._batch_norm_with_update.default: slice(1, 5),
    aten._batch_norm_with_update_functional.default: slice(1, 5),
}
"""Where parameters and running statistics are among the arguments; the results 1 and 2 are the statistics."""
_SHORT = (torch.float16, torch.bfloat16)


def with_kernel_dtypes(func: Any, args: Sequence[Any], out: Any) -> Any:
    """The operator's result on fakes, with the dtypes that the kernel gives. Call it under the fake mode."""
    where = _PARAMETERS.get(func)
    if where is None or args[0].device.type != "cpu" or args[0].dtype not in _SHORT:
        return out
    if not any(isinstance(p, torch.Tensor) and p.dtype == torch.float32 for p in args[where]):
        return out
    return (out[0], *(t.to(torch.float32) for t in out[1:3]), *out[3:])
