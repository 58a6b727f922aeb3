"""Operands and results of aten ops as they lie in memory: padded, with the channels innermost, with their whole storage, or as a GPU's
operator answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import attrs
import torch
import torch.fx

from torchjit_core.expr import Expr, constant
from torchjit_inductor.convolution_layouts import CHANNELS_LAST, IMAGE_RANKS
from torchjit_inductor.ir.dtypes import KERNEL_DTYPES
from torchjit_inductor.layouts import channels_last_strides
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.sizes import NotLowered, expression, meta_of
from torchjit_inductor.lowering.tensors import Lazy, Lowered, Metas, Strided, TensorMeta, contiguous_strides, full
from torchjit_inductor.memory_readers import storage_owner

__all__ = ["as_traced", "from_storage", "placed", "zero_padded"]

_aten = torch.ops.aten
_ROW_MAJOR = frozenset((_aten.mm.default, _aten.addmm.default, _aten.bmm.default))
"""Their results lie as their `val` says: they are written through `out=`."""
_Args: TypeAlias = "tuple[Any, ...]"
_Kwargs: TypeAlias = "dict[str, Any]"
_FakeLayout: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...]]"


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


def from_storage(b: Builder, node: torch.fx.Node, args: _Args, env: Mapping[torch.fx.Node, Any]) -> _Args:
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
    return b.laid_out(arg, meta_of(node.meta["val"]).strides)


def _copied(place: Strided) -> Lazy:
    return Lazy(place.sizes, place.dtype, place.device, place.value)


def placed(
    b: Builder, node: torch.fx.Node, args: _Args, kwargs: _Kwargs, metas: Metas,
    channels_last: Set[torch.fx.Node], known: Callable[[object], Metas],
) -> tuple[_Args, Metas]:  # fmt: skip
    """Operands of a call of aten in the layout that was chosen, and the layout that its results then have.

    Args:
        channels_last: nodes whose results are stored with the channels innermost.
        known: what is known of traced results.
    """
    if node.target is _aten.convolution.default and channels_last and len(args[0].sizes) == 4:
        strides_for = channels_last_strides if node in channels_last else contiguous_strides
        args, metas = _convolved(b, args, metas, strides_for)
    if node.meta.get(CHANNELS_LAST):
        # oneDNN packs weights on its own, from either layout.
        weight = 2 if node.target is _aten.convolution_backward.default else 1
        as_it_is = weight if args[weight].device.type == "cpu" else None
        args = tuple(a if k == as_it_is else _in_channels_last(b, a) for k, a in enumerate(args))
        return args, tuple(map(_turned, metas)) if isinstance(metas, tuple) else _turned(metas)
    if metas is None or node.target in _ROW_MAJOR:
        return args, metas
    return args, _as_answered(b, node, args, kwargs, metas, known)


def _convolved(
    b: Builder, args: _Args, metas: Metas, strides_for: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> tuple[_Args, Metas]:
    """The image and the result of a convolution in one layout: oneDNN answers in the one that it is asked in."""
    source, wanted = args[0], strides_for(args[0].sizes)
    if isinstance(source, Strided) and source.strides != wanted and source.dtype in KERNEL_DTYPES:
        source = _copied(source)
    place = b.materialize(source, wanted)
    if place.strides != wanted or not isinstance(metas, TensorMeta):
        return args, metas
    return (place, *args[1:]), attrs.evolve(metas, strides=strides_for(metas.sizes))


def _in_channels_last(b: Builder, arg: Any) -> Any:
    """Images in memory with their channels innermost; anything else as it is."""
    if not isinstance(arg, Lowered) or len(arg.sizes) not in IMAGE_RANKS:
        return arg
    return b.laid_out(arg, channels_last_strides(arg.sizes))


def _turned(meta: TensorMeta | None) -> TensorMeta | None:
    """What cuDNN returns for operands with the channels innermost."""
    if meta is None or len(meta.sizes) not in IMAGE_RANKS:
        return meta
    return attrs.evolve(meta, strides=channels_last_strides(meta.sizes))


def _as_answered(
    b: Builder, node: torch.fx.Node, args: _Args, kwargs: _Kwargs, metas: Metas,
    known: Callable[[object], Metas],
) -> Metas:  # fmt: skip
    """What a GPU operator returns for its operands as they lie in memory, if that is not as they were traced."""
    traced = [n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    mode = getattr(traced[0], "fake_mode", None) if traced and traced[0].device.type == "cuda" else None
    if mode is None:
        return metas
    try:
        with mode, torch.no_grad():
            answered = known(_traced_again(b, node.target, args, kwargs, traced))
    except Exception:  # an operator that cannot be traced again keeps its layout; a test at run time catches it
        return metas
    if isinstance(metas, tuple) and isinstance(answered, tuple):
        return tuple(None if old is None else new or old for old, new in zip(metas, answered, strict=True))
    return answered if isinstance(metas, TensorMeta) and isinstance(answered, TensorMeta) else metas


def _traced_again(b: Builder, op: Any, args: _Args, kwargs: _Kwargs, traced: Sequence[torch.Tensor]) -> object:
    """The result of an operator for fakes that lie as its operands do in memory; None where it was traced with such.

    Raises:
        NotLowered: sizes vary, or a tensor is on no GPU.
    """
    layouts: set[_FakeLayout] = set()
    faked = _faked(b, (tuple(args), kwargs), layouts)
    if layouts <= {(tuple(t.shape), t.stride()) for t in traced}:
        return None
    return op(*faked[0], **faked[1])


def _faked(b: Builder, leaf: Any, layouts: set[_FakeLayout]) -> Any:
    """An argument with fakes in place of what was lowered, whose sizes and strides are added to `layouts`."""
    if isinstance(leaf, Lowered):
        place = b.materialize(leaf)
        sizes, strides = (tuple(n.value for n in of if n.value is not None) for of in (place.sizes, place.strides))
        if place.device.type != "cuda" or len(sizes) + len(strides) < 2 * len(place.sizes):
            raise NotLowered("sizes are symbolic")
        layouts.add((sizes, strides))
        return torch.empty_strided(sizes, strides, dtype=place.dtype, device=place.device)
    if isinstance(leaf, (list, tuple)):
        return type(leaf)(_faked(b, x, layouts) for x in leaf)
    if isinstance(leaf, dict):
        return {name: _faked(b, x, layouts) for name, x in leaf.items()}
    if isinstance(leaf, Expr):
        raise NotLowered("sizes are symbolic")
    return leaf
