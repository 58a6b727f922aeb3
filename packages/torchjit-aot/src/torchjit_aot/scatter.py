"""The other direction of view operators: a parent's new value from a view's new value."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from torchjit_aot.graph_writer import GraphWriter, value_of
from torchjit_aot.refusals import FUNCTIONALIZE
from torchjit_core.reasons import GraphBreak

__all__ = ["scatter"]

aten = torch.ops.aten
Inverse: TypeAlias = Callable[[GraphWriter, fx.Node, fx.Node, Sequence[Any], int | None], fx.Node]


def _reshaped(writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None) -> fx.Node:
    if not value_of(value).is_contiguous():
        value = writer.call(aten.clone.default, (value,), {"memory_format": torch.contiguous_format})
    return writer.call(aten.view.default, (value, writer.sizes(parent)))


def _permuted(writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None) -> fx.Node:
    rank = len(args[0])
    inverse = [0] * rank
    for position, dim in enumerate(args[0]):
        inverse[dim % rank] = position
    return writer.call(aten.permute.default, (value, inverse))


def _same(func: OpOverload) -> Inverse:
    """The operator is its own inverse."""

    def inverse(
        writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None
    ) -> fx.Node:
        return writer.call(func, (value, *args))

    return inverse


def _into_parent(func: OpOverload) -> Inverse:
    """`func(parent, value, same arguments)`."""

    def inverse(
        writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None
    ) -> fx.Node:
        return writer.call(func, (parent, value, *args))

    return inverse


def _unsqueezed(
    writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None
) -> fx.Node:
    return writer.call(aten.squeeze.dim, (value, args[0]))


def _expanded(writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None) -> fx.Node:
    if value_of(parent).numel() != value_of(value).numel():
        raise GraphBreak(FUNCTIONALIZE, "a write to an expanded tensor")
    return _reshaped(writer, parent, value, args, index)


def _strided(writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None) -> fx.Node:
    own = value_of(parent)
    if (
        own.storage_offset() != 0
        or not own.is_contiguous()
        or own.untyped_storage().nbytes() != own.numel() * own.itemsize
    ):
        raise GraphBreak(FUNCTIONALIZE, "a write to as_strided of a tensor that does not fill its storage")
    return writer.call(aten.as_strided_scatter.default, (parent, value, *args))


def _split(writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None) -> fx.Node:
    size, dim = args[0], args[1] if len(args) > 1 else 0
    if index is None or not isinstance(size, int):
        raise GraphBreak(FUNCTIONALIZE, "a write to a piece of a split with symbolic sizes")
    extent = value_of(value).shape[dim]
    # an extent that varies is that of the last piece
    end = index * size + extent if isinstance(extent, int) else sys.maxsize
    return writer.call(aten.slice_scatter.default, (parent, value, dim, index * size, end))


def _split_sizes(
    writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None
) -> fx.Node:
    sizes, dim = args[0], args[1] if len(args) > 1 else 0
    if index is None or not all(isinstance(n, int) for n in sizes):
        raise GraphBreak(FUNCTIONALIZE, "a write to a piece of a split with symbolic sizes")
    start = sum(sizes[:index])
    return writer.call(aten.slice_scatter.default, (parent, value, dim, start, start + sizes[index]))


def _unbound(writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None) -> fx.Node:
    return writer.call(aten.select_scatter.default, (parent, value, args[0] if args else 0, index))


def _retyped(writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None) -> fx.Node:
    return writer.call(aten.view.dtype, (_resolved(writer, value), value_of(parent).dtype))


def _as_other_numbers(func: OpOverload) -> Inverse:
    """Between pairs of real numbers and complex ones."""

    def inverse(
        writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None
    ) -> fx.Node:
        return writer.call(func, (_resolved(writer, value),))

    return inverse


def _resolved(writer: GraphWriter, value: fx.Node) -> fx.Node:
    """With its elements in memory as they are: those that are conjugated or negated lazily cannot be viewed as another type."""
    lazy = value_of(value).is_conj() or value_of(value).is_neg()
    return writer.call(aten.clone.default, (value,)) if lazy else value


def _unchanged(writer: GraphWriter, parent: fx.Node, value: fx.Node, args: Sequence[Any], index: int | None) -> fx.Node:
    return value


_INVERSES: dict[OpOverload, Inverse] = {
    aten.view.default: _reshaped,
    aten._unsafe_view.default: _reshaped,
    aten._reshape_alias.default: _reshaped,
    aten.squeeze.default: _reshaped,
    aten.squeeze.dim: _reshaped,
    aten.squeeze.dims: _reshaped,
    aten.unsqueeze.default: _unsqueezed,
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
    aten.split_with_sizes.default: _split_sizes,
    aten.unsafe_split.Tensor: _split,
    aten.unsafe_split_with_sizes.default: _split_sizes,
    aten.unbind.int: _unbound,
    aten.alias.default: _unchanged,
    aten.detach.default: _unchanged,
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
    return inverse(writer, parent, value, args, index)
