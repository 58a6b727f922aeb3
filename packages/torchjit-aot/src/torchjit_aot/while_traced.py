"""Operators that are called otherwise while they are traced: with eager's own numbers, or in parts that fuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["WHILE_TRACED", "rounded_scale"]

aten = torch.ops.aten


def rounded_scale(scale: float, like: torch.Tensor) -> float:
    """The factor that dropout of a tensor of this dtype and device has.

    On CPU it multiplies with a mask that has been divided by `1 - p` in the tensor's own dtype (ATen/native/Dropout.cpp, torch 2.15):
    in 16 bits that factor is up to 0.2 % off, in the backward as in the forward. The operator that the trace has in its place
    rounds so in the forward, but its backward multiplies with the precise factor.
    """
    if like.device.type != "cpu" or like.dtype not in (torch.float16, torch.bfloat16):
        return scale
    with torch._C._DisableTorchDispatch():
        return torch.tensor(scale, dtype=like.dtype).item()


def _dropout_backward(grad: torch.Tensor, mask: torch.Tensor, scale: float) -> Any:
    rounded = rounded_scale(scale, grad)
    return NotImplemented if rounded == scale else aten.native_dropout_backward.default(grad, mask, rounded)


def _check_and_unscale(grads: Sequence[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    """Of `torch.amp.GradScaler`: divide the gradients by the scale, in place, and note in `found_inf` (one float32) whether one was not finite."""
    for grad in grads:
        finite = grad.isfinite().all()
        found_inf.copy_(torch.where(finite, found_inf, torch.ones_like(found_inf)))
        if grad.dtype == torch.float32:
            grad.mul_(inv_scale.to(grad.device))
        else:  # the kernel multiplies in float32, or wider, and rounds once
            wide = torch.promote_types(grad.dtype, torch.float32)
            grad.copy_((grad.to(wide) * inv_scale.to(grad.device)).to(grad.dtype))


WHILE_TRACED: dict[Any, Callable[..., Any]] = {
    aten.native_dropout_backward.default: _dropout_backward,
    aten._amp_foreach_non_finite_check_and_unscale_.default: _check_and_unscale,
}
"""By operator, what is called in its place; NotImplemented: the operator itself."""
