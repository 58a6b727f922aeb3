"""The other direction of view operators: a parent's new value from a view's new value."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import Argument

from torchjit_aot.graph_writer import GraphWriter, value_of
from torchjit_aot.refusals import FUNCTIONALIZE
from torchjit_core.reasons import GraphBreak

__all__ = ["scatter"]

aten = torch.ops.aten


@final
@attrs.frozen(eq=False)
class _Write:
    """A view has become a new value.

    Attributes:
        writer: where to add nodes.
        parent: the value until now of what the view is one of.
        value: the view's new value, of the view's sizes and dtype.
        args: of the view operator, after the first.
        index: which item of the operator's result the view is.
    """

    writer: GraphWriter
    parent: fx.Node
    value: fx.Node
    args: Sequence[Any]
    index: int | None

    def call(self, func: OpOverload, *args: Argument, **kwargs: Argument) -> fx.Node:
        """A new call."""
        return self.writer.call(func, args, kwargs)

    def argument(self, position: int, default: int) -> Any:
        """Of the view operator."""
        return self.args[position] if len(self.args) > position else default


Inverse: TypeAlias = Callable[[_Write], fx.Node]
"""The parent's new value."""


def _reshaped(write: _Write) -> fx.Node:
    value = write.value
    if not value_of(value).is_contiguous():
        value = write.call(aten.clone.default, value, memory_format=torch.contiguous_format)
    return write.call(aten.view.default, value, write.writer.sizes(write.parent))


def _permuted(write: _Write) -> fx.Node:
    rank = len(write.args[0])
    inverse = [0] * rank
    for position, dim in enumerate(write.args[0]):
        inverse[dim % rank] = position
    return write.call(aten.permute.default, write.value, inverse)


def _same(func: OpOverload) -> Inverse:
    """The operator is its own inverse."""
    return lambda write: write.call(func, write.value, *write.args)


def _into_parent(func: OpOverload) -> Inverse:
    """`func(parent, value, same arguments)`."""
    return lambda write: write.call(func, write.parent, write.value, *write.args)


def _expanded(write: _Write) -> fx.Node:
    if value_of(write.parent).numel() != value_of(write.value).numel():
        raise GraphBreak(FUNCTIONALIZE, "a write to an expanded tensor")
    return _reshaped(write)


def _strided(write: _Write) -> fx.Node:
    own = value_of(write.parent)
    if (
        own.storage_offset() != 0
        or not own.is_contiguous()
        or own.untyped_storage().nbytes() != own.numel() * own.itemsize
    ):
        raise GraphBreak(FUNCTIONALIZE, "a write to as_strided of a tensor that does not fill its storage")
    return write.call(aten.as_strided_scatter.default, write.parent, write.value, *write.args)


def _split(write: _Write) -> fx.Node:
    """Of a size for all pieces, or of sizes."""
    sizes, dim, index = write.args[0], write.argument(1, 0), write.index
    if index is None or not all(isinstance(n, int) for n in (sizes if isinstance(sizes, (list, tuple)) else [sizes])):
        raise GraphBreak(FUNCTIONALIZE, "a write to a piece of a split with symbolic sizes")
    extent = value_of(write.value).shape[dim]
    start = index * sizes if isinstance(sizes, int) else sum(sizes[:index])
    # an extent that varies is that of the last piece
    end = start + extent if isinstance(extent, int) else sys.maxsize
    return write.call(aten.slice_scatter.default, write.parent, write.value, dim, start, end)


def _unbound(write: _Write) -> fx.Node:
    return write.call(aten.select_scatter.default, write.parent, write.value, write.argument(0, 0), write.index)


def _retyped(write: _Write) -> fx.Node:
    return write.call(aten.view.dtype, _resolved(write), value_of(write.parent).dtype)


def _as_other_numbers(func: OpOverload) -> Inverse:
    """Between pairs of real numbers and complex ones."""
    return lambda write: write.call(func, _resolved(write))


def _resolved(write: _Write) -> fx.Node:
    """With its elements in memory as they are: those that are conjugated or negated lazily cannot be viewed as another type."""
    lazy = value_of(write.value).is_conj() or value_of(write.value).is_neg()
    return write.call(aten.clone.default, write.value) if lazy else write.value


_INVERSES: dict[OpOverload, Inverse] = {
    aten.view.default: _reshaped,
    aten._unsafe_view.default: _reshaped,
    aten._reshape_alias.default: _reshaped,
    aten.squeeze.default: _reshaped,
    aten.squeeze.dim: _reshaped,
    aten.squeeze.dims: _reshaped,
    aten.unsqueeze.default: lambda write: write.call(aten.squeeze.dim, write.value, write.args[0]),
    aten.permute.default: _permuted,
    aten.transpose.int: _same(aten.transpose.int),
    aten.t.default: _same(aten.t.default),
    aten._conj.default: _same(aten._conj.default),
    aten._neg_view.default: _same(aten._neg_view.default),
    aten.view_as_real.default: _as_other_numbers(aten.view_as_complex.default),
    aten.view_as_complex.default: _as_other_numbers(aten.view_as_real.default),
    aten.view.dtype: _retyped,
    aten.expand.default: _expanded,
    aten.slice.Tensor: _into_parent(aten.slice_scatter.default),
    aten.select.int: _into_parent(aten.select_scatter.default),
    aten.diagonal.default: _into_parent(aten.diagonal_scatter.default),
    aten.as_strided.default: _strided,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.unsafe_split.Tensor: _split,
    aten.unsafe_split_with_sizes.default: _split,
    aten.unbind.int: _unbound,
    aten.alias.default: lambda write: write.value,
    aten.detach.default: lambda write: write.value,
}


def scatter(
    writer: GraphWriter,
    parent: fx.Node,
    value: fx.Node,
    func: OpOverload,
    args: Sequence[Any],
    index: int | None,
) -> fx.Node:
    """The parent's value after its view has become `value`.

    Args:
        writer: where to add nodes.
        parent: the parent's value until now.
        value: the view's new value, of the view's sizes and dtype.
        func, args: the view operator and its arguments after the first.
        index: which item of the operator's result the view is.

    Raises:
        GraphBreak: writes through this operator are not supported.
    """
    inverse = _INVERSES.get(func)
    if inverse is None:
        raise GraphBreak(FUNCTIONALIZE, f"a write through {func}")
    return inverse(_Write(writer, parent, value, args, index))
