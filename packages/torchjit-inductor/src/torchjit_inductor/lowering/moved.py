"""Rows that are only moved behind the kernel that computes them (put behind others, or turned round) are stored where they end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
import torch.fx

from torchjit_core.expr import constant
from torchjit_inductor.indexing import simplify
from torchjit_inductor.ir.kernel import Store
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.tensors import Index, Lowered, Metas, Strided, TensorMeta, contiguous_strides
from torchjit_inductor.lowering.views import dim_of
from torchjit_inductor.steps import KernelStep, Step

__all__ = ["moved_rows"]

_aten = torch.ops.aten
_Place = Callable[[Index], Index]


def moved_rows(b: Builder, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any], meta: Metas) -> Strided | None:
    """The result of `cat` or `flip` of rows that a kernel has computed for nobody else; None where it is something else.

    Such a result would be a copy by a kernel of its own, since what is computed row by row (a running sum, a softmax) is no formula.

    Args:
        node: the graph returns it, and nothing else reads it.
        env: what the nodes before were lowered to.
        meta: of the result.
    """
    if not isinstance(meta, TensorMeta) or meta.strides != contiguous_strides(meta.sizes):
        return None
    if any(user.op != "output" for user in node.users) or any(n.value is None for n in meta.sizes):
        return None
    if node.target is _aten.flip.default:
        return _flipped(b, node, env, meta)
    return _joined(b, node, env, meta) if node.target is _aten.cat.default else None


def _flipped(b: Builder, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any], meta: TensorMeta) -> Strided | None:
    (source, dims), step = node.args, _step_of_rows(b, node.args[0], env)
    if step is None or not isinstance(dims, Sequence):
        return None
    turned = {dim_of(d, len(meta.sizes)) for d in dims}  # type: ignore[arg-type]
    target = b.buffer(node.name, meta)

    def place(index: Index) -> Index:
        return tuple(n - 1 - i if k in turned else i for k, (i, n) in enumerate(zip(index, meta.sizes, strict=True)))

    _store_in(b, step, env[source], target, place)  # type: ignore[index]
    return target


def _joined(b: Builder, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any], meta: TensorMeta) -> Strided | None:
    sources: Any = node.args[0]
    pieces = _distinct_pieces(node, env, meta)
    steps = [_step_of_rows(b, source, env) for source in sources]
    if pieces is None or all(step is None for step in steps):
        return None
    dim = dim_of(node.args[1] if len(node.args) > 1 else 0, len(meta.sizes))  # type: ignore[arg-type]
    target, start = b.buffer(node.name, meta), constant(0)
    for step, piece in zip(steps, pieces, strict=True):
        there = Strided(target.buffer, piece.sizes, meta.strides, start * meta.strides[dim], meta.dtype, meta.device)
        if step is not None and isinstance(piece, Strided):
            _store_in(b, step, piece, there, lambda index: index)
        else:
            b.store_into(piece, there)
        start = start + piece.sizes[dim]
    return target


def _distinct_pieces(node: torch.fx.Node, env: Mapping[torch.fx.Node, Any], meta: TensorMeta) -> list[Lowered] | None:
    """What a `cat` puts behind one another, if these are different tensors of the result's dtype and rank."""
    sources: Any = node.args[0]
    if node.kwargs or len(set(sources)) < len(sources):
        return None
    pieces = [env.get(source) if isinstance(source, torch.fx.Node) else None for source in sources]
    fitting = [
        t for t in pieces if isinstance(t, Lowered) and t.dtype == meta.dtype and len(t.sizes) == len(meta.sizes)
    ]
    return fitting if len(fitting) == len(pieces) else None


def _step_of_rows(b: Builder, node: Any, env: Mapping[torch.fx.Node, Any]) -> int | None:
    """Which of the steps so far computes the node, row by row, for one reader, into memory of its own."""
    place = env.get(node) if isinstance(node, torch.fx.Node) else None
    if not isinstance(place, Strided) or len(node.users) > 1 or not _is_whole(b, place):
        return None
    found = [k for k, step in enumerate(b.steps) if place.buffer in (*step.reads, *step.writes)]
    return found[0] if len(found) == 1 and _stores_rows(b.steps[found[0]], place) else None


def _is_whole(b: Builder, place: Strided) -> bool:
    """Is it all of its buffer, in rows?"""
    if place.offset.value != 0 or place.sizes != b.buffers[place.buffer].sizes:
        return False
    return place.strides == contiguous_strides(place.sizes)


def _stores_rows(step: Step, place: Strided) -> bool:
    """Does the step compute something row by row and store it there element by element?"""
    if not isinstance(step, KernelStep) or not step.kernel.inner or step.names:
        return False
    store = _store_to(step, place)
    return store is not None and store.mode == "set" and not store.outer and not store.positions


def _store_to(step: KernelStep, place: Strided) -> Store | None:
    """The only store to a buffer."""
    stores = [s for s in step.kernel.stores if s.buffer == place.buffer]
    return stores[0] if len(stores) == 1 and place.buffer not in step.kernel.reads else None


def _store_in(b: Builder, position: int, source: Strided, target: Strided, place: _Place) -> None:
    """Let the step store in `target`, at the places of the elements, what it stores in `source`, which goes."""
    step = b.steps[position]
    assert isinstance(step, KernelStep)
    kernel = step.kernel
    loops = {v.symbol: v.size for v in (*kernel.outer, *kernel.inner)}

    def moved(store: Store) -> Store:
        if store.buffer != source.buffer:
            return store
        index = tuple(
            simplify((store.index // s) % n, loops) for s, n in zip(source.strides, source.sizes, strict=True)
        )
        return attrs.evolve(store, buffer=target.buffer, index=simplify(target.address(place(index)), loops))

    b.steps[position] = KernelStep(attrs.evolve(kernel, stores=tuple(map(moved, kernel.stores))))
    del b.buffers[source.buffer]
