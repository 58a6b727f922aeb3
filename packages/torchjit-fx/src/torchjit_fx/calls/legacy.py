"""Tensors by the old constructors: `torch.FloatTensor([1.0, 2.0])`, `torch.Tensor(2, 3)`."""

from __future__ import annotations

from typing import Any

import torch

from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.flatten import marker_items
from torchjit_fx.leaves import Raw, SymLeaf, TensorLeaf
from torchjit_fx.modes import DEFAULT_DTYPE
from torchjit_fx.ownership import LEGACY_CONSTRUCTORS

__all__ = ["LEGACY_CHECK", "TELLS_SIZES_FROM_DATA", "construct", "is_of_legacy_class"]

TELLS_SIZES_FROM_DATA = frozenset({*LEGACY_CONSTRUCTORS, torch.Tensor.new, torch.Size.numel})
"""What does one thing with a `torch.Size` and another with a tuple of the same numbers."""


@call_rule(*LEGACY_CONSTRUCTORS)
def construct(call: Call) -> Raw:
    """Call one with sizes or with numbers.

    Raises:
        GraphBreak: other arguments (tensors, storages, numbers of another kind), for which they have rules of their own.
    """
    dtype = LEGACY_CONSTRUCTORS[call.function] or call.domain.modes.read(DEFAULT_DTYPE)
    options = {"dtype": dtype, "device": torch.device("cpu")}
    only = call.args[0] if len(call.args) == 1 else None
    if not call.kwargs and type(only) in (list, tuple) and _are_numbers(only, dtype):
        return call.do(torch.tensor, (only,), options)
    sizes = _sizes(only)
    if sizes is None:
        sizes = call.args or (0,)
    if call.kwargs or not all(_is_whole(n) for n in sizes):
        raise call.broken(breaks.NOT_CAPTURABLE, call.name)
    return call.record(torch.empty, (tuple(sizes),), options)


def _sizes(only: Raw) -> Raw:
    """The items of a `torch.Size`, known or with symbols in it; of other sequences, which are data, None."""
    if isinstance(only, torch.Size):
        return only
    items = marker_items(only)
    return items if items is not None and only.type is torch.Size else None


def _is_whole(size: Raw) -> bool:
    return type(size) is int or (isinstance(size, SymLeaf) and isinstance(size.value, torch.SymInt))


LEGACY_CHECK: Any = type(torch.FloatTensor).__instancecheck__


@call_rule(LEGACY_CHECK)
def is_of_legacy_class(call: Call) -> Raw:
    """`isinstance(tensor, torch.FloatTensor)`, which asks for the dtype and the device (`Tensor_instancecheck`)."""
    cls, leaf = call.args
    if not isinstance(leaf, TensorLeaf) or leaf.cls not in (torch.Tensor, torch.nn.Parameter):
        return NotImplemented
    record = leaf.record
    if record.device.type not in ("cpu", "cuda"):
        return NotImplemented
    kind = "cuda" if cls.is_cuda else "xpu" if cls.is_xpu else "cpu"
    return record.device.type == kind and record.dtype is cls.dtype and not cls.is_sparse and not cls.is_sparse_csr


def _are_numbers(data: Raw, dtype: torch.dtype) -> bool:
    if type(data) in (list, tuple):
        return all(_are_numbers(item, dtype) for item in data)
    if isinstance(data, TensorLeaf):
        return dtype.is_floating_point and data.record.sizes == ()
    if isinstance(data, SymLeaf):
        whole = isinstance(data.value, torch.SymInt) and dtype is not torch.bool
        return whole or (dtype.is_floating_point and isinstance(data.value, torch.SymFloat))
    return type(data) is (bool if dtype is torch.bool else int) or (dtype.is_floating_point and type(data) is float)
