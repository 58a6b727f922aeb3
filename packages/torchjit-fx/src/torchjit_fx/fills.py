"""`torch.full(size, t)` with a number `t` in a tensor: PyTorch reads the number; a graph fills the memory with the tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchjit_fx.leaves import TensorLeaf
from torchjit_fx.modes import DEFAULT_DTYPE

if TYPE_CHECKING:
    from torchjit_fx.domain import TensorDomain

__all__ = ["fill"]

_EMPTY: dict[Any, tuple[Any, int]] = {
    torch.full: (torch.empty, 1),
    torch.full_like: (torch.empty_like, 1),
    torch.Tensor.new_full: (torch.Tensor.new_empty, 2),
}
"""To the function that makes the memory, and the place of the number among the arguments."""


def fill(domain: TensorDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], capture: Any) -> Any:
    """The call, where the number cannot be out of the range of the result's type; NotImplemented for all else."""
    if fn not in _EMPTY or kwargs.get("out") is not None or kwargs.get("requires_grad"):
        return NotImplemented
    make, place = _EMPTY[fn]
    value = kwargs.get("fill_value") if len(args) <= place else args[place]
    if not isinstance(value, TensorLeaf) or value.record.sizes != () or value.record.requires_grad:
        return NotImplemented  # of one that requires a gradient, reading the number warns
    given = value.record.dtype
    wanted = kwargs.get("dtype")
    if wanted is None:
        wanted = args[0].record.dtype if fn is not torch.full else _dtype_of_number(domain, given)
    if torch.promote_types(given, wanted) is not wanted or wanted.is_complex:
        return NotImplemented
    options = {name: option for name, option in kwargs.items() if name != "fill_value"}
    made = domain.call(make, args[:place], options | {"dtype": wanted}, capture)
    return domain.call(torch.Tensor.fill_, (made, value), {}, capture)


def _dtype_of_number(domain: TensorDomain, dtype: torch.dtype) -> Any:
    """Of what `torch.full` makes of a Python number that was read from a tensor of this type."""
    if dtype is torch.bool:
        return dtype
    return domain.modes.read(DEFAULT_DTYPE) if dtype.is_floating_point else torch.int64
