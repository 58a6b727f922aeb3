"""Memory layouts of a joint graph: channels-last around convolutions; on GPUs padding around matrix products.

cuDNN's fast kernels want the channels innermost; given anything else it converts, before and after. Inside a
graph only what the user sees has promised strides, so the pass rewrites `meta["val"]` of everything else, for the
forward and the backward at once. Lowering puts each tensor into memory as its `val` says; where an operator answers in
another layout than was planned, the host program converts.

On CPUs oneDNN takes either layout, and converts what it is given into its own: activations of a row-major image cost that
conversion, in channels-last nearly nothing, but then the gradients of the weights are converted back. Mobile nets train 1.2
times as fast with their channels innermost, a ResNet at 0.8 of the speed; so it depends on which of the two are more.

cuBLAS's fast kernels want sizes that are multiples of 16 bytes: a vocabulary of 50257 columns costs seven times as much
as one of 50264 (3.3 and 0.46 ms for 4096 x 768 x 50257 in bfloat16 on an H100). Padding only the distance between rows
does not help. So large products are done on matrices with zeros behind, which the kernels that make them write. Of a result
that the user gets, such as logits, a padded copy beside the promised one would double what a language model holds at its peak:
inference graphs compute it in blocks of rows, each of which is cut before the next one takes its memory.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence, Set
from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_inductor.ir.dtypes import HALF
from torchjit_inductor.layouts import channels_last_strides, image_and_weight, scatters_channels, value_of
from torchjit_inductor.lowering.registry import find_lowering
from torchjit_inductor.memory_readers import observed
from torchjit_torch.node_meta import BACKWARD

__all__ = ["CHANNELS_LAST", "SAME_PLACE", "ZERO_PADDED", "LayoutPlan"]

aten = torch.ops.aten
CHANNELS_LAST = "torchjit_channels_last"
"""Key of a convolution's `meta`: its operands go in with the channels innermost."""
ZERO_PADDED = "torchjit_zero_padded"
"""Key of a padding's `meta`: it is a buffer that is written in two parts."""

_CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
_PRODUCTS = (aten.mm.default, aten.addmm.default)
SAME_PLACE = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.t.default,
    aten.transpose.int,
    aten.permute.default,
    aten.detach.default,
    aten.alias.default,
)
"""Views of all of a tensor."""
_MOVES_DIMENSIONS = frozenset([*SAME_PLACE, aten.expand.default, aten.unsqueeze.default, aten.as_strided.default])
ACTIVATIONS_PER_WEIGHT = 4
"""On a CPU: 1.9 (ResNet-50, two images) is too few, 4.6 (ConvNeXt-V2 atto) enough."""
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
    """

    convolutions: bool = True
    padding: bool = True

    def __call__(self, graph: torch.fx.Graph, promised: Set[torch.fx.Node]) -> None:
        """Plan a functional ATen graph, before it is split into forward and backward.

        Args:
            graph: it.
            promised: nodes whose strides somebody relies on: results, gradients, new values of inputs.
        """
        seen = observed(graph)
        promised = promised | seen
        if self.convolutions:
            _without_biases(graph, [n for n in graph.nodes if n.target in _CONVOLUTIONS and _of_volumes(n)])
            _plan_convolutions(graph, promised)
        if self.padding:
            _padded_products(graph, promised, seen)


def _plan_convolutions(graph: torch.fx.Graph, promised: Set[torch.fx.Node]) -> None:
    convolutions = [n for n in graph.nodes if n.target in _CONVOLUTIONS and _plain_convolution(n)]
    if convolutions:
        _without_biases(graph, convolutions)
        if _worth_it(convolutions):
            _channels_last(graph, convolutions, promised)
    convolutions = [n for n in graph.nodes if n.target in _CONVOLUTIONS and _cpu_convolution(n)]
    if convolutions and _worth_it_on_cpu(graph, convolutions):
        _channels_last(graph, convolutions, promised)


# ------------------------------------------------------------------------------------------------ convolutions


def _plain_convolution(node: torch.fx.Node) -> bool:
    """A convolution of two dimensions on a GPU, in a dtype that cuDNN's tensor cores take."""
    x, weight = image_and_weight(node)
    if x is None or weight is None or not x.is_cuda or x.dim() != 4 or weight.dim() != 4:
        return False
    return x.dtype in HALF or (x.dtype == torch.float32 and bool(torch.backends.cudnn.allow_tf32))


def _of_volumes(node: torch.fx.Node) -> bool:
    """A convolution of three dimensions on a GPU: its layout stays, but aten adds its bias in a kernel of its own."""
    x, weight = image_and_weight(node)
    return x is not None and weight is not None and x.is_cuda and x.dim() == weight.dim() == 5


def _cpu_convolution(node: torch.fx.Node) -> bool:
    x, weight = image_and_weight(node)
    if x is None or weight is None or x.device.type != "cpu" or x.dtype != torch.float32:
        return False
    return x.dim() == weight.dim() == 4 and all(isinstance(n, int) for n in (*x.shape, *weight.shape))


def _worth_it_on_cpu(graph: torch.fx.Graph, convolutions: Iterable[torch.fx.Node]) -> bool:
    """Is this a training step with many more activations than weights, which leaves its channels together?

    Inference graphs are decided by races (`layouts.py`).
    """
    activations, weights, trains = 0, 0, False
    for node in convolutions:
        x, weight = image_and_weight(node)
        if node.target is not _CONVOLUTIONS[0]:
            trains = True
        elif x is not None and weight is not None:
            activations += x.numel() + node.meta["val"].numel()
            weights += weight.numel()
    return trains and activations > ACTIVATIONS_PER_WEIGHT * weights and not scatters_channels(graph)


def _worth_it(convolutions: Iterable[torch.fx.Node]) -> bool:
    """Grouped convolutions (other than depthwise ones) and those of few channels are faster as they are."""
    gain = 0
    for node in convolutions:
        (_, weight), groups = image_and_weight(node), node.args[8 if node.target is _CONVOLUTIONS[0] else 9]
        if weight is None or (groups != 1 and weight.shape[1] != 1):
            return False
        sizes = [n for n in weight.shape[:2] if isinstance(n, int)]
        gain += 1 if groups != 1 or max(sizes, default=64) > 16 else 0
    return gain > 0


def _without_biases(graph: torch.fx.Graph, convolutions: list[torch.fx.Node]) -> None:
    """Take biases out of convolutions: cuDNN adds them in a kernel of its own, ours fuses the addition with what follows.

    `convolution(x, w, b)` becomes `convolution(x, w) + b`, and the bias's gradient a sum.
    """
    for position, node in enumerate(convolutions):
        if node.target is aten.convolution.default and node.args[2] is not None:
            val, bias = value_of(node), value_of(node.args[2])
            if val is None or bias is None or bias.dtype != val.dtype:
                continue
            ones = [1] * (val.dim() - 2)
            with graph.inserting_before(node):
                product = graph.call_function(node.target, (*node.args[:2], None, *node.args[3:]))
                product.meta = dict(node.meta)
                shaped = graph.call_function(aten.view.default, (node.args[2], [1, -1, *ones]))
                shaped.meta = {k: v for k, v in node.meta.items() if k != "val"}
                shaped.meta["val"] = _like(bias, (1, bias.shape[0], *ones), (bias.shape[0], 1, *ones))
            # The node itself stays what others refer to.
            node.target, node.args = aten.add.Tensor, (product, shaped)
            convolutions[position] = product
        elif node.target is aten.convolution_backward.default:
            mask: Any = node.args[10]
            if not mask[2]:
                continue
            dims = len(node.args[4])  # type: ignore[arg-type]  # of the stride
            getter = next((u for u in node.users if u.target is operator.getitem and u.args[1] == 2), None)
            if getter is not None:
                getter.target, getter.args = aten.sum.dim_IntList, (node.args[0], [0, *range(2, 2 + dims)])
            node.args = (*node.args[:10], [*mask[:2], False])
            values = node.meta["val"]
            node.meta["val"] = (*values[:2], None)


def _like(val: torch.Tensor, sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> torch.Tensor:
    mode = getattr(val, "fake_mode", None)
    if mode is None:
        return val.new_empty_strided(sizes, strides)
    with mode, torch.no_grad():
        return torch.empty_strided(sizes, strides, dtype=val.dtype, device=val.device)


def _channels_last(graph: torch.fx.Graph, convolutions: list[torch.fx.Node], promised: Set[torch.fx.Node]) -> None:
    ours = set(convolutions)
    last: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node in ours:
            node.meta[CHANNELS_LAST] = True
            marked = True
        elif node.target is operator.getitem:
            source = node.args[0]
            # The second result of a convolution's backward is the weight's gradient.
            marked = source in last and not (source in ours and node.args[1] != 0)
        else:
            marked = _follows(node, last)
        if marked:
            last.add(node)
            _turn(node, promised)


def _follows(node: torch.fx.Node, last: Set[torch.fx.Node]) -> bool:
    """Is the node computed element by element, or channel by channel, from something channels-last?"""
    if node.target in _MOVES_DIMENSIONS:
        return False
    if find_lowering(node.target) is None and node.target not in _LAYOUT_KEEPING:
        return False
    vals = [v for v in _leaves(node.meta.get("val")) if v.dim() == 4]
    return bool(vals) and any(s in last and _same_rank(s) for s in node.all_input_nodes)


_LAYOUT_KEEPING = (
    aten.max_pool2d_with_indices_backward.default,
    aten.avg_pool2d.default,
    aten.avg_pool2d_backward.default,
    aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool2d_backward.default,
)
"""Operators without a lowering whose GPU kernels answer in the layout of their input."""


def _same_rank(node: torch.fx.Node) -> bool:
    return any(v.dim() == 4 for v in _leaves(node.meta.get("val")))


def _leaves(val: object) -> list[torch.Tensor]:
    return [v for v in (val if isinstance(val, (tuple, list)) else (val,)) if isinstance(v, torch.Tensor)]


def _turn(node: torch.fx.Node, promised: Set[torch.fx.Node]) -> None:
    """Write channels-last strides into the node's `val`, if nobody relies on what it has."""
    val = node.meta.get("val")
    if node in promised:
        return
    if isinstance(val, (tuple, list)):
        free = {u.args[1] for u in node.users if u.target is operator.getitem and u not in promised}
        kept = 1 if node.target is aten.convolution_backward.default else len(val)
        node.meta["val"] = tuple(
            _turned(v) if isinstance(v, torch.Tensor) and n in free and n < kept else v for n, v in enumerate(val)
        )
    elif isinstance(val, torch.Tensor):
        node.meta["val"] = _turned(val)


def _turned(val: torch.Tensor) -> torch.Tensor:
    if val.dim() != 4 or not all(isinstance(n, int) and n > 0 for n in val.shape[1:]) or not val.is_contiguous():
        return val
    return _like(val, tuple(val.shape), channels_last_strides(tuple(val.shape)))


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
    if left is None or right is None or not left.is_cuda or left.dtype not in HALF:
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
        val = _like(out, (rows + padding.rows, wide), (wide, 1))
        result = _made(graph, node, node.target, operands, val)
        if padding.rows and padding.columns:
            result = _part(graph, node, result, 0, 0, rows)
    # The node itself stays what others refer to.
    node.target = aten.slice.Tensor
    node.args = (result, 1, 0, columns) if padding.columns else (result, 0, 0, rows)
    if padding.columns:
        node.meta["val"] = _like(out, (rows, columns), (wide, 1))


def _extended_bias(graph: torch.fx.Graph, before: torch.fx.Node, bias: Any, more: int) -> Any:
    if not more:
        return bias
    val = bias.meta["val"]
    return _made(
        graph, before, aten.constant_pad_nd.default, (bias, [0, more]), _like(val, (val.shape[0] + more,), (1,))
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

    val = _like(node.meta["val"], (rows, 1), (1, 1))
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
        val = _like(out, (count, wide), (wide, 1))
        product = _made(graph, node, target, (*operands[:-2], part, operands[-1]), val)
        if others:
            beside = [_part(graph, node, other, 0, *reach) for other in others]
            val = _like(out, (count, columns), (columns, 1))
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
    return _made(graph, like, aten.slice.Tensor, (source, dim, first, last), _like(val, sizes, val.stride()))


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
            graph, before, aten.permute.default, (base, [1, 0]), _like(val, val.shape[::-1], val.stride()[::-1])
        )
    key = (operand, *more)
    if key not in padded:
        val = operand.meta["val"]
        rows, columns = val.shape[0] + more[0], val.shape[1] + more[1]
        strides = (1, rows) if val.stride(0) == 1 and val.stride(1) != 1 else (columns, 1)
        args = (operand, [0, more[1], 0, more[0]])
        # As early as it can be, so that all products find it made.
        with graph.inserting_after(operand) if operand.op == "call_function" else graph.inserting_before(before):
            padded[key] = _made(graph, before, aten.constant_pad_nd.default, args, _like(val, (rows, columns), strides))
        padded[key].meta[ZERO_PADDED] = True
        if not BACKWARD.marks(operand):
            BACKWARD.drop(padded[key])
    return padded[key]
