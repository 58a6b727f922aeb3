"""Max pooling: its backward needs the place of each maximum in its window, not the input nor an int64 per element."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import Argument
from torch.utils.checkpoint import CheckpointPolicy

from torchjit_aot.graph_writer import GraphWriter
from torchjit_aot.joint import JointGraph
from torchjit_torch.node_meta import FROM_PLACES, RECOMPUTE

__all__ = ["slim_max_pools"]

aten = torch.ops.aten
_BACKWARD = aten.max_pool2d_with_indices_backward.default


def _pair(value: Sequence[int]) -> tuple[int, int]:
    items = list(value)
    return (items[0], items[-1])


def slim_max_pools(joint: JointGraph) -> None:
    """Rewrite, in place, what the backward of 2-d max pooling reads. Run this under the fake mode.

    The input goes: only its sizes count. The indices pass through one byte: the place in the window, from which and
    from the output's place the index follows. Sizes must be known, windows of at most 127 places.
    """
    for node in list(joint.graph.nodes):
        if node.target is not _BACKWARD:
            continue
        grad, x, kernel, stride, padding, dilation, ceil_mode, indices = node.args
        val, places = x.meta["val"], indices.meta["val"]
        sizes = (*val.shape, *places.shape)
        if not all(type(n) is int for n in sizes) or not val.is_contiguous() or not places.is_contiguous():
            continue
        with joint.graph.inserting_before(node):
            options = {"dtype": val.dtype, "device": val.device}
            empty = GraphWriter(joint.graph, node).call(
                aten.empty.memory_format, ([int(n) for n in val.shape],), options
            )
        (kh, kw), (ph, pw) = _pair(kernel), _pair(padding)
        sh, sw = _pair(stride) if stride else (kh, kw)
        if _pair(dilation) == (1, 1) and kh * kw <= 127 and indices.target is operator.getitem:
            indices = _through_a_byte(indices, int(val.shape[-1]), kw, (sh, sw), (ph, pw))
            FROM_PLACES.put(node, True)
        node.args = (grad, empty, kernel, stride, padding, dilation, ceil_mode, indices)


def _through_a_byte(
    indices: fx.Node, width: int, kw: int, stride: tuple[int, int], padding: tuple[int, int]
) -> fx.Node:
    graph, places = indices.graph, indices.meta["val"]
    rows, columns = int(places.shape[-2]), int(places.shape[-1])
    integers = {"dtype": torch.int64, "device": places.device, "pin_memory": False}
    with graph.inserting_after(indices):
        anchor = graph.call_function(aten.alias.default, (indices,))  # marks the place; erased below
    with graph.inserting_before(anchor):
        writer = GraphWriter(graph, indices)

        def call(target: OpOverload, *args: Argument, **kwargs: Argument) -> fx.Node:
            return writer.call(target, args, kwargs)

        def start(count: int, step: int, pad: int) -> fx.Node:
            counted = call(aten.arange.default, count, **integers)
            return call(aten.sub.Tensor, call(aten.mul.Tensor, counted, step), pad)

        top = call(aten.unsqueeze.default, start(rows, stride[0], padding[0]), 1)
        left = start(columns, stride[1], padding[1])
        row = call(aten.sub.Tensor, call(aten.div.Tensor_mode, indices, width, rounding_mode="floor"), top)
        column = call(aten.sub.Tensor, call(aten.remainder.Scalar, indices, width), left)
        place = call(aten.add.Tensor, call(aten.mul.Tensor, row, kw), column)
        byte = call(aten._to_copy.default, place, dtype=torch.int8)
        RECOMPUTE.put(byte, CheckpointPolicy.MUST_SAVE)
        wide = call(aten._to_copy.default, byte, dtype=torch.int64)
        row = call(aten.add.Tensor, call(aten.div.Tensor_mode, wide, kw, rounding_mode="floor"), top)
        column = call(aten.add.Tensor, call(aten.remainder.Scalar, wide, kw), left)
        whole = call(aten.add.Tensor, call(aten.mul.Tensor, row, width), column)
    graph.erase_node(anchor)
    for node in (row, column, whole):
        RECOMPUTE.put(node, CheckpointPolicy.MUST_RECOMPUTE)
    return whole
