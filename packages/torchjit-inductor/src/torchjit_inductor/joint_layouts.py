"""Memory layouts of a joint graph: channels-last around convolutions (`convolution_layouts.py`); on GPUs padding around matrix products.

Inside a graph only what the user sees has promised strides, so the pass rewrites `meta["val"]` of everything else, for the
forward and the backward at once. Lowering puts each tensor into memory as its `val` says; where an operator answers in
another layout than was planned, the host program converts.

cuBLAS's fast kernels want sizes that are multiples of 16 bytes: a vocabulary of 50257 columns costs seven times as much
as one of 50264 (3.3 and 0.46 ms for 4096 x 768 x 50257 in bfloat16 on an H100). Padding only the distance between rows
does not help. So large products are done on matrices with zeros behind, which the kernels that make them write. Of a result
that the user gets, such as logits, a padded copy beside the promised one would double what a language model holds at its peak:
inference graphs compute it in blocks of rows, each of which is cut before the next one takes its memory.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_inductor.convolution_layouts import SAME_PLACE, plan_convolutions
from torchjit_inductor.convolution_times import ConvolutionTimes
from torchjit_inductor.ir.dtypes import HALF
from torchjit_inductor.layouts import fake_like, value_of
from torchjit_inductor.memory_readers import observed
from torchjit_torch.node_meta import BACKWARD

__all__ = ["ZERO_PADDED", "LayoutPlan"]

aten = torch.ops.aten
ZERO_PADDED = "torchjit_zero_padded"
"""Key of a padding's `meta`: it is a buffer that is written in two parts."""

_PRODUCTS = (aten.mm.default, aten.addmm.default)
_ROW_BYTES = 16  # where rows must start for cuBLAS's fast kernels
_WORTH = 2**31  # multiplications of a product, below which padding is not worth a thought
_LEAST_PADDED = 256  # elements of a dimension to which a few zeros more are little
_LARGE_RESULT = 2**25
"""Bytes of a padded result from which it is worth computing it in blocks."""
_BLOCKS = (8, 4, 2)
"""GPT-2's inference on an H200 took 3.34 ms whole and 3.54 and 3.64 in 8 and 16 blocks, at 1206, 943 and 918 MiB, with padded weights."""
_TILES = 192
"""Tiles of 128 x 256 in a block at least: more than one for each multiprocessor."""


@final
@attrs.frozen
class LayoutPlan:
    """Rewrites `meta["val"]` where another layout makes convolutions and matrix products faster.

    Attributes:
        convolutions: may have their channels last (`layout_optimization`).
        padding: large products get rows that fast kernels take (`shape_padding`).
        max_autotune: run convolutions on GPUs to find out what they gain; otherwise it is estimated.
        cache_dir: where that is kept, see `InductorSettings.cache_dir`.
    """

    convolutions: bool = True
    padding: bool = True
    max_autotune: bool = False
    cache_dir: str | None = None
    _times: ConvolutionTimes = attrs.field(init=False, eq=False, repr=False)

    @_times.default
    def _of_this_machine(self) -> ConvolutionTimes:
        return ConvolutionTimes(self.cache_dir, measures=self.max_autotune)

    def __call__(self, graph: torch.fx.Graph, promised: Set[torch.fx.Node]) -> None:
        """Plan a functional ATen graph, before it is split into forward and backward.

        Args:
            graph: it.
            promised: nodes whose strides somebody relies on: results, gradients, new values of inputs.
        """
        seen = observed(graph)
        promised = promised | seen
        if self.convolutions:
            plan_convolutions(graph, promised, self._times)
        if self.padding:
            _padded_products(graph, promised, seen)


# ---------------------------------------------------------------------------------------------- matrix products


def _padded_products(graph: torch.fx.Graph, promised: Set[torch.fx.Node], seen: Set[torch.fx.Node]) -> None:
    """Extend the matrices of large products by zeros to whole rows, and cut the result."""
    padded: dict[tuple[torch.fx.Node, int, int], torch.fx.Node] = {}
    trains = any(BACKWARD.of(node) for node in graph.nodes)
    products = [n for n in graph.nodes if n.target in _PRODUCTS and not n.kwargs and _large(n) and n not in seen]
    for node in products:
        padding = _padding_of(node)
        if padding is not None:
            _pad_product(graph, node, padding, padded, in_blocks=not trains and _is_promised(node, promised))


def _is_promised(node: torch.fx.Node, promised: Set[torch.fx.Node]) -> bool:
    """Does somebody outside get the node's result, or a view of all of it?"""
    return node in promised or any(u.target in SAME_PLACE and _is_promised(u, promised) for u in node.users)


def _large(node: torch.fx.Node) -> bool:
    left, right = value_of(node.args[-2]), value_of(node.args[-1])
    if left is None or right is None or left.device.type != "cuda" or left.dtype not in HALF:
        return False
    sizes = (*left.shape, right.shape[1])
    return all(isinstance(n, int) for n in sizes) and sizes[0] * sizes[1] * sizes[2] >= _WORTH


@final
@attrs.frozen
class _Padding:
    """Zeros behind the operands of a product: how many more rows of the left one, columns of the right one, and terms of the sums."""

    rows: int
    inner: int
    columns: int


def _padding_of(node: torch.fx.Node) -> _Padding | None:
    """What a product lacks to whole rows, if it is little of what there is; a dimension matters where memory runs along it."""
    left, right, out = value_of(node.args[-2]), value_of(node.args[-1]), value_of(node)
    if left is None or right is None or out is None:
        return None
    if node.target is aten.addmm.default and getattr(value_of(node.args[0]), "ndim", 0) != 1:
        return None
    (rows, inner), columns = left.shape, right.shape[1]
    padding = _Padding(
        _missing(rows, left) if left.stride(0) == 1 else 0,
        _missing(inner, left) if left.stride(1) == 1 or right.stride(0) == 1 else 0,
        _missing(columns, out),
    )
    padded = [n for n, more in zip((rows, inner, columns), attrs.astuple(padding), strict=True) if more]
    return padding if padded and min(padded) >= _LEAST_PADDED else None


def _pad_product(
    graph: torch.fx.Graph,
    node: torch.fx.Node,
    padding: _Padding,
    padded: dict[tuple[torch.fx.Node, int, int], torch.fx.Node],
    *,
    in_blocks: bool,
) -> None:
    operands: tuple[Any, ...] = node.args
    *bias, left, right = operands
    out = node.meta["val"]
    rows, columns = out.shape
    wide = columns + padding.columns
    blocks = _blocks(rows, wide, out) if in_blocks and padding.columns and not padding.rows else 1
    with graph.inserting_before(node):
        if blocks > 1 and not padding.inner and right.meta["val"].stride(0) == 1:
            _product_of_whole_columns(graph, node, columns - columns % (_ROW_BYTES // out.element_size()), blocks)
            return
        a = _extended(graph, node, left, (padding.rows, padding.inner), padded)
        b = _extended(graph, node, right, (padding.inner, padding.columns), padded)
        operands = (*(_extended_bias(graph, node, each, padding.columns) for each in bias), a, b)
        if blocks > 1:
            _product_in_blocks(graph, node, operands, wide, blocks)
            return
        val = fake_like(out, (rows + padding.rows, wide), (wide, 1))
        result = _made(graph, node, node.target, operands, val)
        if padding.rows and padding.columns:
            result = _part(graph, node, result, 0, 0, rows)
    # The node itself stays what others refer to.
    node.target = aten.slice.Tensor
    node.args = (result, 1, 0, columns) if padding.columns else (result, 0, 0, rows)
    if padding.columns:
        node.meta["val"] = fake_like(out, (rows, columns), (wide, 1))


def _extended_bias(graph: torch.fx.Graph, before: torch.fx.Node, bias: Any, more: int) -> Any:
    if not more:
        return bias
    val = bias.meta["val"]
    return _made(
        graph, before, aten.constant_pad_nd.default, (bias, [0, more]), fake_like(val, (val.shape[0] + more,), (1,))
    )


def _blocks(rows: int, wide: int, out: torch.Tensor) -> int:
    """In how many blocks of rows the product is computed."""
    if rows * wide * out.element_size() < _LARGE_RESULT:
        return 1
    return next((n for n in _BLOCKS if rows % (128 * n) == 0 and rows // 128 // n * (wide // 256) >= _TILES), 1)


def _product_of_whole_columns(graph: torch.fx.Graph, node: torch.fx.Node, whole: int, blocks: int) -> None:
    """Multiply with the first `whole` columns, in blocks, and with each of the few others by itself: no operand is copied."""
    bias: Any = node.args[0] if node.target is aten.addmm.default else None
    left: Any = node.args[-2]
    right: Any = node.args[-1]
    rows, columns = node.meta["val"].shape

    def times(first: int, last: int) -> tuple[Any, ...]:
        part = _part(graph, node, right, 1, first, last)
        return (left, part) if bias is None else (_part(graph, node, bias, 0, first, last), left, part)

    val = fake_like(node.meta["val"], (rows, 1), (1, 1))
    others = [_made(graph, node, node.target, times(c, c + 1), val) for c in range(whole, columns)]
    _product_in_blocks(graph, node, times(0, whole), whole, blocks, others)


def _product_in_blocks(
    graph: torch.fx.Graph,
    node: torch.fx.Node,
    operands: tuple[Any, ...],
    wide: int,
    blocks: int,
    others: Sequence[torch.fx.Node] = (),
) -> None:
    """Make `node` fresh memory that is written block by block, each cut out of a product with `wide` columns or joined with `others`."""
    out = node.meta["val"]
    (rows, columns), count = out.shape, out.shape[0] // blocks
    whole, target = _made(graph, node, aten.new_empty.default, (operands[-1], [rows, columns]), out), node.target
    for first in range(0, rows, count):
        reach = (first, first + count)
        part = _part(graph, node, operands[-2], 0, *reach)
        val = fake_like(out, (count, wide), (wide, 1))
        product = _made(graph, node, target, (*operands[:-2], part, operands[-1]), val)
        if others:
            beside = [_part(graph, node, other, 0, *reach) for other in others]
            val = fake_like(out, (count, columns), (columns, 1))
            cut = _made(graph, node, aten.cat.default, ([product, *beside], 1), val)
        else:
            cut = _part(graph, node, product, 1, 0, columns)
        if reach[1] < rows:
            whole = _made(graph, node, aten.slice_scatter.default, (whole, cut, 0, *reach), out)
        else:  # the node itself stays what others refer to
            node.target, node.args = aten.slice_scatter.default, (whole, cut, 0, *reach)


def _missing(size: int, val: torch.Tensor) -> int:
    return -size % (_ROW_BYTES // val.element_size())


def _made(
    graph: torch.fx.Graph, like: torch.fx.Node, target: Any, args: tuple[Any, ...], val: torch.Tensor
) -> torch.fx.Node:
    made = graph.call_function(target, args)
    made.meta = {**like.meta, "val": val}
    return made


def _part(graph: torch.fx.Graph, like: torch.fx.Node, source: Any, dim: int, first: int, last: int) -> torch.fx.Node:
    """A slice along a dimension."""
    val = source.meta["val"]
    sizes = tuple(last - first if d == dim else n for d, n in enumerate(val.shape))
    return _made(graph, like, aten.slice.Tensor, (source, dim, first, last), fake_like(val, sizes, val.stride()))


def _extended(
    graph: torch.fx.Graph,
    before: torch.fx.Node,
    operand: Any,
    more: tuple[int, int],
    padded: dict[tuple[torch.fx.Node, int, int], torch.fx.Node],
) -> Any:
    """The matrix with zero rows and columns behind its own; a transposed matrix shares them with what it is a view of."""
    if not any(more):
        return operand
    if operand.target in (aten.t.default, aten.permute.default) and len(operand.args[0].meta["val"].shape) == 2:
        base = _extended(graph, before, operand.args[0], more[::-1], padded)
        val = base.meta["val"]
        return _made(
            graph, before, aten.permute.default, (base, [1, 0]), fake_like(val, val.shape[::-1], val.stride()[::-1])
        )
    key = (operand, *more)
    if key not in padded:
        val = operand.meta["val"]
        rows, columns = val.shape[0] + more[0], val.shape[1] + more[1]
        strides = (1, rows) if val.stride(0) == 1 and val.stride(1) != 1 else (columns, 1)
        args = (operand, [0, more[1], 0, more[0]])
        # As early as it can be, so that all products find it made.
        with graph.inserting_after(operand) if operand.op == "call_function" else graph.inserting_before(before):
            padded[key] = _made(
                graph, before, aten.constant_pad_nd.default, args, fake_like(val, (rows, columns), strides)
            )
        padded[key].meta[ZERO_PADDED] = True
        if not BACKWARD.marks(operand):
            BACKWARD.drop(padded[key])
    return padded[key]
