"""The operator of `torch.amp.GradScaler`, which returns a list of tensors and a number, in parts that fuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["TAKEN_APART_WHILE_TRACED"]


def _check_and_unscale(grads: Sequence[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    """Divide the gradients by the scale, in place, and note in `found_inf` (one float32) whether one was not finite."""
    for grad in grads:
        finite = grad.isfinite().all()
        found_inf.copy_(torch.where(finite, found_inf, torch.ones_like(found_inf)))
        if grad.dtype == torch.float32:
            grad.mul_(inv_scale.to(grad.device))
        else:  # the kernel multiplies in float32, or wider, and rounds once
            wide = torch.promote_types(grad.dtype, torch.float32)
            grad.copy_((grad.to(wide) * inv_scale.to(grad.device)).to(grad.dtype))


TAKEN_APART_WHILE_TRACED: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default: _check_and_unscale
}
