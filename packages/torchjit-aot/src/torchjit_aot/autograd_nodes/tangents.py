"""Gradients of results as they come to a backward, and as they go. Entries on disk name these functions, so that nothing else is imported here."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["DENSE", "TELLING", "as_plain", "without_zeros"]

_Key, _Keys = torch._C.DispatchKey, torch._C.DispatchKeySet

DENSE = _Keys(_Key.Dense).raw_repr()
_READABLE = DENSE | _Keys(_Key.FuncTorchBatched).raw_repr()
"""Of these keys, sparse, quantized and nested tensors lack the first, and so do those of a backward with `is_grads_batched`;
those under `torch.func.vmap` have the second."""
_LAZY = (_Key.Negative, _Key.Conjugate, _Key.ZeroTensor)
"""What tensors with one of these are is not what lies in their memory."""
TELLING = functools.reduce(operator.or_, (_Keys(key).raw_repr() for key in _LAZY), _READABLE)
"""Of these keys, plain memory has the first alone."""


def without_zeros(
    gradients: Sequence[Any], missing: tuple[bool, ...], reach: tuple[tuple[int, ...], ...]
) -> tuple[Any, ...]:
    """None, as eager PyTorch has it, for inputs that only unused results lead to."""
    return tuple(
        None if behind and all(missing[k] for k in behind) else gradient
        for gradient, behind in zip(gradients, reach, strict=True)
    )


def as_plain(tangent: torch.Tensor, strides: tuple[int, ...]) -> tuple[torch.Tensor, bool]:
    """The tangent as compiled code can read it, and whether it is a subclass or batched, which it cannot read at all."""
    if isinstance(tangent, torch.nn.Parameter) and type(tangent) is torch.nn.Parameter:
        tangent = tangent.detach()
    if type(tangent) is not torch.Tensor:
        return tangent if tangent.stride() == strides else tangent.contiguous(), True
    if tangent.layout != torch.strided:
        tangent = tangent.to_dense()
    if torch._C._dispatch_keys(tangent).raw_repr() & _READABLE != DENSE:
        return tangent, True
    if tangent._is_zerotensor():
        tangent = torch.zeros(tangent.shape, dtype=tangent.dtype, device=tangent.device)
    return tangent.resolve_conj().resolve_neg(), False
