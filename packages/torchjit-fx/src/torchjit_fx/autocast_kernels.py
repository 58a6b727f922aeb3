"""ATen operators whose kernels on CPUs call others that autocast changes.

Autocast stands above operators: of one that it does not know it sees what the kernel calls. So in eager PyTorch a product inside
of the kernel is one of a 16-bit type, or a concatenation raises. Metadata functions do not call it, and in a graph, where the casts
have been made, autocast is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

__all__ = ["autocast_on_cpus", "refuse_autocast"]

_aten = torch.ops.aten


def _packets(*names: str) -> frozenset[Any]:
    return frozenset(found for name in names if (found := getattr(_aten, name, None)) is not None)


_WITH_PRODUCTS = _packets("_trilinear", "linalg_pinv", "linalg_polar")
"""Their results are rounded, or of the 16-bit type."""
_WITH_CONCATENATIONS = _packets("roll", "isin", "linalg_matrix_exp", "_chunk_cat")
"""They raise for the other 16-bit type."""


def autocast_on_cpus() -> torch.dtype | None:
    """The dtype of autocast for CPUs; None while it is off."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def refuse_autocast(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dtype: torch.dtype) -> None:
    """Raise if autocast changes what the kernel of this call does.

    Args:
        func: an ATen overload.
        args, kwargs: over fake tensors.
        dtype: of autocast.

    Raises:
        RuntimeError: it does.
    """
    products = func.overloadpacket in _WITH_PRODUCTS
    if not products and func.overloadpacket not in _WITH_CONCATENATIONS:
        return
    for tensor in _tensors((*args, *(kwargs or {}).values())):
        if tensor.device.type == "cpu" and tensor.is_floating_point():
            other = tensor.dtype.itemsize == 2 and tensor.dtype is not dtype
            if other or (products and tensor.dtype is not torch.float64):
                raise RuntimeError(f"autocast changes what the kernel of {func.overloadpacket} calls")


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
