"""Attributes of tensor leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchjit_core.guards import IdIs, InstanceLacks, ValueEquals
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.leaves import InputLeaf, Raw, TensorLeaf
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.records import TensorRecord

__all__ = ["CONSTANT_PROPERTIES", "RECORDED", "TENSOR_PROPERTIES", "input_attribute", "may_be_gradient"]

RECORDED: dict[str, Callable[[TensorRecord], Any]] = {
    "dtype": lambda r: r.dtype,
    "device": lambda r: r.device,
    "ndim": lambda r: len(r.sizes),
    "requires_grad": lambda r: r.requires_grad,
    "layout": lambda r: torch.strided,
    "is_cuda": lambda r: r.device.type == "cuda",
    "is_cpu": lambda r: r.device.type == "cpu",
    "is_meta": lambda r: r.device.type == "meta",
    "is_sparse": lambda r: False,
    "is_sparse_csr": lambda r: False,
    "is_quantized": lambda r: False,
    "is_nested": lambda r: False,
    "is_mkldnn": lambda r: False,
}
"""Properties that the record answers."""

TENSOR_PROPERTIES = frozenset({"T", "H", "mT", "mH", "real", "imag", "data"})
"""Properties that are operations."""

CONSTANT_PROPERTIES = frozenset(
    {
        "itemsize", "is_xpu", "is_mps", "is_mtia", "is_xla", "is_ipu", "is_maia", "is_vulkan", "_has_symbolic_sizes_strides",
        "names", "nbytes",
    }
)  # fmt: skip
"""Properties that a fake answers."""

_ATOMS = (int, float, bool, str, bytes, type(None), complex)


def input_attribute(leaf: TensorLeaf, name: str, capture: CaptureContext) -> Raw:
    """An attribute that the program itself put on a tensor, or one that is missing.

    Raises:
        AttributeError: the tensor has none of this name; guarded for inputs.
        GraphBreak: its value is an object.
    """
    if not isinstance(leaf, InputLeaf):
        if hasattr(torch.Tensor, name):
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE, name, capture.location())
        raise AttributeError(f"'{leaf.cls.__name__}' object has no attribute {name!r}")
    members = leaf.object.__dict__
    if name not in members:
        if any(name in vars(cls) for cls in leaf.cls.__mro__):
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE, f"{leaf.path}.{name}", capture.location())
        capture.guard(InstanceLacks(leaf.path, name, capture.location()))
        raise AttributeError(f"'{leaf.cls.__name__}' object has no attribute {name!r}")
    value = members[name]
    path = leaf.path.attr(name)
    if type(value) in _ATOMS:
        capture.guard(ValueEquals(path, value, capture.location()))
        return value
    if isinstance(value, type) or type(value) in (torch.dtype, torch.device):
        capture.guard(IdIs(path, value, capture.location()))
        return value
    raise GraphBreak(breaks.TENSOR_ATTRIBUTE, f"{leaf.path}.{name}", capture.location())


def may_be_gradient(leaf: InputLeaf, value: object) -> bool:
    """Does `leaf.grad = value` only store it, without an error, on a tensor that no step of the region made?"""
    if not (leaf.record.is_leaf and leaf.real.is_leaf):
        return False
    if value is None:
        return True
    if not isinstance(value, TensorLeaf) or value is leaf:
        return False
    mine, other = leaf.record, value.record
    return (mine.dtype, mine.device, mine.sizes) == (other.dtype, other.device, other.sizes)
