"""Calls that ask for sizes, or depend on what a size is."""

from __future__ import annotations

import operator

import torch

from torchjit_core.expr import Expr
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.flatten import marker_items
from torchjit_fx.leaves import InputLeaf, Raw, SymLeaf, TensorLeaf

__all__: list[str] = []


@call_rule(torch.Tensor.size, on=TensorLeaf)
def _size(call: Call) -> Raw:
    """`size()` and `size(d)`."""
    leaf, domain, capture = call.args[0], call.domain, call.capture
    sizes = leaf.record.sizes
    dim = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else None)
    if dim is not None and not (type(dim) is int and -len(sizes) <= dim < len(sizes)):
        return NotImplemented
    if not leaf.record.symbolic:
        return torch.Size(sizes) if dim is None else sizes[dim]
    if dim is None:
        return capture.new_object(torch.Size, [domain.dimension(leaf, i, capture) for i in range(len(sizes))])
    return domain.dimension(leaf, dim % len(sizes), capture)


@call_rule(torch.Tensor.new)
def _new(call: Call) -> Raw:
    """`x.new(size)`: it tells a torch.Size, which a graph holds as a tuple, from other sequences, which are data."""
    given: Raw = call.args[1] if len(call.args) == 2 and not call.kwargs else None
    sizes: Raw = given if isinstance(given, torch.Size) else None
    marked = marker_items(given)
    if marked is not None and given.type is torch.Size:
        sizes = marked
    if sizes is None:
        return NotImplemented
    return call.record(torch.Tensor.new_empty, (call.args[0], tuple(sizes)))


@call_rule(len, torch.Tensor.__len__, on=TensorLeaf)
def _length(call: Call) -> Raw:
    leaf = call.args[0]
    return call.domain.dimension(leaf, 0, call.capture) if leaf.record.sizes else NotImplemented


@call_rule(torch.Tensor.dim, torch.Tensor.ndimension, on=TensorLeaf)
def _rank(call: Call) -> Raw:
    return len(call.args[0].record.sizes)


@call_rule(torch.Tensor.storage_offset, torch.Tensor.as_strided, torch.as_strided)
def _offset(call: Call) -> Raw:
    """Calls that see where a tensor begins in its storage; inputs are recorded as beginning at zero."""
    leaf = call.args[0] if call.args else call.kwargs.get("input")
    storage = leaf.storage if isinstance(leaf, TensorLeaf) else None
    roots = [leaf] if storage is None else storage.leaves
    if isinstance(leaf, TensorLeaf):
        call.domain.recorder.selections.refuse_place(leaf, call.capture)
    for root in roots:
        if isinstance(root, InputLeaf):
            if root.real.storage_offset() != 0:
                raise call.broken(breaks.STORAGE_OFFSET, f"{root.path}")
            call.capture.guard(root.begins_at(call.capture.location()))
    return NotImplemented


@call_rule(torch.Size.numel)
def _elements(call: Call) -> Raw:
    """`torch.Size.numel` over symbolic sizes."""
    product: Raw = 1
    for n in marker_items(call.args[0]) or call.args[0]:
        symbolic = type(n) is SymLeaf or type(product) is SymLeaf
        product = call.do(operator.mul, (product, n)) if symbolic else product * n
    return product


@call_rule(torch.Tensor.squeeze, torch.squeeze, on=TensorLeaf)
def _squeeze(call: Call) -> Raw:
    """The rank of the result must not depend on a size that only the run knows."""
    for size in call.args[0].record.sizes:
        if isinstance(size, Expr) and call.domain.numbers.context.is_fresh(size.symbols):
            raise call.broken(breaks.DATA_DEPENDENT, "whether squeeze removes a dimension")
    return NotImplemented
