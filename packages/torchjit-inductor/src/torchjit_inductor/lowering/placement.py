"""Operands of aten ops where the op wants them in memory: padded, with the channels innermost, or with their whole storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_core.expr import Expr, constant
from torchjit_inductor.ir.dtypes import KERNEL_DTYPES
from torchjit_inductor.layouts import channels_last_strides
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.sizes import NotLowered, expression, meta_of
from torchjit_inductor.lowering.tensors import Lazy, Lowered, Strided, TensorMeta, full
from torchjit_inductor.memory_readers import storage_owner

__all__ = ["Fakes", "as_traced", "from_storage", "in_channels_last", "zero_padded"]


def zero_padded(b: Builder, source: Lowered, meta: TensorMeta) -> Lowered:
    """A matrix with zeros behind, written in place by whatever computes it and by a small kernel for the zeros."""
    place = b.buffer(b.origin.node, meta)
    parts = [(source.sizes, constant(0), source)]
    sizes = list(source.sizes)
    for dim, (old, new) in enumerate(zip(source.sizes, meta.sizes, strict=True)):
        if old is not new:
            rest = (*sizes[:dim], new - old, *sizes[dim + 1 :])
            parts.append((rest, old * meta.strides[dim], full(0, attrs.evolve(meta, sizes=rest))))
            sizes[dim] = new
    for shape, offset, tensor in parts:
        b.store_into(tensor, Strided(place.buffer, shape, meta.strides, offset, meta.dtype, meta.device))
    return place


def from_storage(
    b: Builder, node: torch.fx.Node, args: tuple[Any, ...], env: Mapping[torch.fx.Node, Any]
) -> tuple[Any, ...]:
    """The operands of `as_strided` with the tensor that owns the storage, in memory as in eager mode: offsets count from there.

    Args:
        env: what the nodes before were lowered to.

    Raises:
        NotLowered: the sizes or the offset are no integer expressions.
    """
    shown = node.args[0]
    if not isinstance(shown, torch.fx.Node):
        return args
    owner = storage_owner(shown)
    val = owner.meta.get("val")
    if owner.op != "call_function" or not isinstance(val, torch.Tensor):
        return args  # the storage of an input is the caller's, and views of it are true views
    if val.dtype != shown.meta["val"].dtype:
        return args
    meta = meta_of(val)
    place = b.materialize(env[owner], meta.strides)
    if not place.same_layout(meta) or place.offset.value != 0:
        place = b.materialize(_copied(place), meta.strides)
    given = args[3] if len(args) > 3 and args[3] is not None else expression(shown.meta["val"].storage_offset())
    return (place, args[1], args[2], given)


def as_traced(b: Builder, node: Any, arg: Any, meta_of: Callable[[torch.Tensor], TensorMeta]) -> Any:
    """An operand, or several, in the memory layout of the trace, for an operator that sees it.

    Args:
        node: what `arg` was lowered from.
        meta_of: what is known of a traced tensor.
    """
    if isinstance(node, (list, tuple)):
        return type(node)(as_traced(b, n, a, meta_of) for n, a in zip(node, arg, strict=False))
    if not isinstance(node, torch.fx.Node) or not isinstance(arg, Lowered):
        return arg
    if arg.dtype not in KERNEL_DTYPES:
        return arg
    meta = meta_of(node.meta["val"])
    place = b.materialize(arg, meta.strides)
    return place if place.same_layout(meta) else b.materialize(_copied(place), meta.strides)


def _copied(place: Strided) -> Lazy:
    return Lazy(place.sizes, place.dtype, place.device, place.value)


def in_channels_last(b: Builder, arg: Any) -> Any:
    """A 4-d tensor in memory with its channels innermost; anything else as it is."""
    if not isinstance(arg, Lowered) or len(arg.sizes) != 4:
        return arg
    strides = channels_last_strides(arg.sizes)
    place = b.materialize(arg, strides)
    if place.same_layout(TensorMeta(arg.sizes, strides, arg.dtype, arg.device)):
        return place
    return b.materialize(_copied(place), strides)


@final
class Fakes:
    """Fake tensors that lie as operands do in memory, to trace an operator of a GPU again.

    Attributes:
        layouts: sizes and strides of those made so far.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self.layouts: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()

    def of(self, leaf: Any) -> Any:
        """An argument with fakes in place of what was lowered.

        Raises:
            NotLowered: sizes vary, or a tensor is on no GPU.
        """
        if isinstance(leaf, Lowered):
            return self._fake(self._builder.materialize(leaf))
        if isinstance(leaf, (list, tuple)):
            return type(leaf)(self.of(x) for x in leaf)
        if isinstance(leaf, dict):
            return {name: self.of(x) for name, x in leaf.items()}
        if isinstance(leaf, Expr):
            raise NotLowered("sizes are symbolic")
        return leaf

    def _fake(self, place: Strided) -> torch.Tensor:
        sizes, strides = (tuple(n.value for n in of if n.value is not None) for of in (place.sizes, place.strides))
        if place.device.type != "cuda" or len(sizes) + len(strides) < 2 * len(place.sizes):
            raise NotLowered("sizes are symbolic")
        self.layouts.add((sizes, strides))
        return torch.empty_strided(sizes, strides, dtype=place.dtype, device=place.device)
