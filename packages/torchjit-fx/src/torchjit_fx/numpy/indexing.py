"""Items of arrays that are tensors of the graph: reading, writing, and what may be an index."""

from __future__ import annotations

import operator
from typing import Any

import torch

from torchjit_fx.calls.call import Call
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import Raw, SymLeaf, TensorLeaf
from torchjit_fx.numpy.arrays import ArrayLeaf, Arrays
from torchjit_fx.numpy.checks import fits, refuse, same_kind, tensors_of
from torchjit_fx.numpy.facts import NUMPY_SCALARS, numpy_module
from torchjit_fx.protocols import CaptureContext

__all__ = ["getitem", "index_arrays", "setitem"]

_np = numpy_module


def getitem(call: Call) -> Raw:
    array, index = call.args
    if type(array) is not ArrayLeaf or array.scalar:
        raise refuse(call.function, "of this", call.capture)
    leaf = call.domain.of(Arrays).tensor(array, call.capture)
    items, advanced = _index(call.domain, index, False, call.capture)
    result = call.record(operator.getitem, (leaf, items))
    scalar = not advanced and len(items) == len(leaf.record.sizes) and all(type(i) is int for i in items)
    if scalar:
        result = call.record(torch.clone, (result,))
    return call.domain.of(Arrays).made(result, scalar)


def setitem(call: Call) -> Raw:
    array, index, value = call.args
    if type(array) is not ArrayLeaf or array.scalar:
        raise refuse(call.function, "of this", call.capture)
    leaf = call.domain.of(Arrays).tensor(array, call.capture)
    plain = type(value) in (int, float, bool) or isinstance(value, NUMPY_SCALARS)
    items, _ = _index(call.domain, index, plain, call.capture)
    wanted = leaf.record.dtype
    if type(value) in (int, float, bool):
        kind = torch.float64 if type(value) is float else torch.int64
    else:
        value = tensors_of(call.domain, value, call.function, call.capture)
        kind = value.record.dtype if isinstance(value, TensorLeaf) else torch.complex128
    if type(value) is int and not fits(value, wanted):
        raise refuse(call.function, "of a number out of range", call.capture)
    if not (same_kind(kind, wanted) or (kind is torch.int64 and wanted in (torch.int32, torch.int64))):
        raise refuse(call.function, "of another type", call.capture)
    call.record(operator.setitem, (leaf, items, value))
    return None


def _index(domain: CallDomain, index: Raw, mask_allowed: bool, capture: CaptureContext) -> tuple[tuple[Any, ...], bool]:
    """An index for torch, and whether arrays are in it; NumPy and torch differ where numbers stand beside arrays."""
    items: list[Raw] = []
    arrays = numbers = 0
    for item in index if type(index) is tuple else (index,):
        if isinstance(item, _np.integer):
            item = int(item)
        if type(item) in (int, SymLeaf):
            numbers += 1
        elif type(item) in (list, ArrayLeaf):
            arrays += 1
            found = index_arrays(domain, item, mask_allowed, capture)
            items.extend(found)
            continue
        elif not (item is None or item is Ellipsis or type(item) is slice):
            raise refuse(operator.getitem, f"by a {type(item).__name__}", capture)
        items.append(item)
    if arrays and (numbers or (arrays > 1 and any(type(i) is slice or i is None for i in items))):
        raise refuse(operator.getitem, "by arrays and numbers", capture)
    return tuple(items), bool(arrays)


def index_arrays(domain: CallDomain, item: Raw, mask_allowed: bool, capture: CaptureContext) -> list[Raw]:
    """The tensors that index as an array does: of a mask of constants, its places."""
    if type(item) is list:
        item = domain.of(Arrays).fold(_np.array, (item,), {}, capture)
    if type(item) is not ArrayLeaf or item.scalar:
        raise refuse(operator.getitem, "by this", capture)
    if item.constant:
        real = item.real
        if real.dtype.kind == "b" and real.ndim:
            return [domain.of(Arrays).constant(places, capture) for places in real.nonzero()]
        if real.dtype.kind != "i" or not real.ndim:
            raise refuse(operator.getitem, f"by an array of {real.dtype}", capture)
        return [domain.of(Arrays).constant(real.astype(_np.int64), capture)]
    leaf = domain.of(Arrays).tensor(item, capture)
    if leaf.record.dtype is torch.bool and mask_allowed:
        return [leaf]
    if leaf.record.dtype not in (torch.int64, torch.int32) or not leaf.record.sizes:
        raise refuse(operator.getitem, f"by an array of {leaf.record.dtype}", capture)
    return [domain.recorder.call(torch.Tensor.to, (leaf, torch.int64), {}, capture)]
