"""What dropout divides by, as eager PyTorch's kernels on CPU round it.

There dropout multiplies with a mask that has been divided by `1 - p` in the tensor's own dtype (ATen/native/Dropout.cpp, torch
2.15): in 16 bits that factor is up to 0.2 % off, in the backward as in the forward. The operator that the trace has in its place
rounds so in the forward, but its backward multiplies with the precise factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["SCALED_AS_EAGER", "rounded_scale"]

aten = torch.ops.aten


def rounded_scale(scale: float, like: torch.Tensor) -> float:
    """The factor that dropout of a tensor of this dtype and device has."""
    if like.device.type != "cpu" or like.dtype not in (torch.float16, torch.bfloat16):
        return scale
    with torch._C._DisableTorchDispatch():
        return torch.tensor(scale, dtype=like.dtype).item()


def _backward(grad: torch.Tensor, mask: torch.Tensor, scale: float) -> Any:
    rounded = rounded_scale(scale, grad)
    return NotImplemented if rounded == scale else aten.native_dropout_backward.default(grad, mask, rounded)


SCALED_AS_EAGER: dict[Any, Callable[..., Any]] = {aten.native_dropout_backward.default: _backward}
"""Operators that are called with other numbers while they are traced."""
