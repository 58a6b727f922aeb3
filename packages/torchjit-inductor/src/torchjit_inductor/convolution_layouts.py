"""Where the convolutions of a joint graph have their channels innermost, and who adds their biases.

**GPUs.** cuDNN's fast kernels want the channels innermost; given anything else it converts, before and after. So does a graph
where its convolutions are stored another way than what the user gives and gets: a pass over memory for each of those. A *region* is
convolutions and what is computed element by element, or channel by channel, between them; its images are channels-last where what
the convolutions gain (`convolution_times.py`) is more than the passes at its borders take. A kernel that reads one layout and writes the
other takes no longer than one that does not, so that a convolution gains with the first thing that is computed from it, and alone nothing.
Depthwise convolutions that are sums over windows (`lowering/window_sums.py`) are such kernels.

**CPUs.** oneDNN takes either layout, and converts what it is given into its own: activations of a row-major image cost that
conversion, in channels-last nearly nothing, but then the gradients of the weights are converted back. Mobile nets train 1.2
times as fast with their channels innermost, a ResNet at 0.8 of the speed; so it depends on which of the two are more.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_inductor.convolution_times import ConvolutionTimes, count, pass_seconds
from torchjit_inductor.ir.dtypes import HALF
from torchjit_inductor.layouts import (
    channels_last_strides,
    fake_like,
    image_and_weight,
    is_row_major,
    scatters_channels,
    typical,
    value_of,
)
from torchjit_inductor.lowering.registry import find_lowering
from torchjit_inductor.lowering.window_sums import is_window_sum

__all__ = ["CHANNELS_LAST", "IMAGE_RANKS", "SAME_PLACE", "plan_convolutions"]

aten = torch.ops.aten
CHANNELS_LAST = "torchjit_channels_last"
"""Key of a convolution's `meta`: its operands go in with the channels innermost."""
IMAGE_RANKS = (4, 5)
"""Dimensions of a batch of images, or of volumes, that may have its channels innermost."""
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
ACTIVATIONS_PER_WEIGHT = 4
"""On a CPU: 1.9 (ResNet-50, two images) is too few, 4.6 (ConvNeXt-V2 atto) enough."""

_CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
_LIBRARY = frozenset([*_CONVOLUTIONS, aten.mm.default, aten.addmm.default, aten.bmm.default])
"""Operators with lowerings that mostly stay with a library: they compute nothing on the way."""
_MOVES_DIMENSIONS = frozenset([*SAME_PLACE, aten.expand.default, aten.unsqueeze.default, aten.as_strided.default])
_LAYOUT_KEEPING = frozenset(
    [
        aten.max_pool2d_with_indices_backward.default,
        aten.avg_pool2d.default,
        aten.avg_pool2d_backward.default,
        aten._adaptive_avg_pool2d.default,
        aten._adaptive_avg_pool2d_backward.default,
    ]
)
"""Operators without a lowering whose GPU kernels answer in the layout of their input."""

_OVER_A_DIMENSION = (aten._softmax.default, aten._log_softmax.default)


def plan_convolutions(graph: torch.fx.Graph, promised: Set[torch.fx.Node], times: ConvolutionTimes) -> None:
    """Choose the layouts of a functional ATen graph's images, and take biases out of convolutions.

    Args:
        graph: of forward and backward.
        promised: nodes whose strides somebody relies on.
        times: of convolutions on GPUs.
    """
    convolutions = [n for n in graph.nodes if n.target in _CONVOLUTIONS]
    on_cpu = [n for n in convolutions if _is_cpu_convolution(n)]
    on_gpu = [n for n in convolutions if _is_on_gpu(n) and not _is_summed(n)]
    _plan_on_gpus(graph, on_gpu, promised, times)  # which puts others in the place of some
    _plan_on_cpus(graph, on_cpu, promised)


def _plan_on_gpus(
    graph: torch.fx.Graph, convolutions: list[torch.fx.Node], promised: Set[torch.fx.Node], times: ConvolutionTimes
) -> None:
    planned = [_with_bias_outside(graph, n) if n in promised or _bias_joins_a_kernel(n) else n for n in convolutions]
    for region in _regions(graph, {n for n in planned if _takes_tensor_cores(n)}):
        fixed = promised | _read_as_they_were(region)
        if _pays(region, fixed, times):
            region.replace([_with_bias_outside(graph, n) for n in region.convolutions])
            _store_channels_last(region, fixed)


def _plan_on_cpus(graph: torch.fx.Graph, convolutions: list[torch.fx.Node], promised: Set[torch.fx.Node]) -> None:
    if not convolutions or not _worth_it_on_cpu(graph, convolutions):
        return
    for region in _regions(graph, set(convolutions)):
        if not _is_alone(region):
            _store_channels_last(region, promised)


# --------------------------------------------------------------------------------------------------- which ones


def _is_on_gpu(node: torch.fx.Node) -> bool:
    x, weight = image_and_weight(node)
    return x is not None and weight is not None and x.device.type == "cuda"


def _is_summed(node: torch.fx.Node) -> bool:
    """Is it a depthwise convolution that a kernel of ours computes, in any layout?"""
    if node.target is not aten.convolution.default:
        return False
    x, weight = image_and_weight(node)
    if x is None or weight is None:
        return False
    return is_window_sum(x.device, x.dtype, tuple(weight.shape), node.args[3:])


def _takes_tensor_cores(node: torch.fx.Node) -> bool:
    """A convolution of two or three dimensions in a dtype that cuDNN's tensor cores take."""
    x, weight = image_and_weight(node)
    if x is None or weight is None or x.dim() not in IMAGE_RANKS or weight.dim() != x.dim():
        return False
    return x.dtype in HALF or (x.dtype == torch.float32 and bool(torch.backends.cudnn.allow_tf32))


def _is_cpu_convolution(node: torch.fx.Node) -> bool:
    x, weight = image_and_weight(node)
    if x is None or weight is None or x.device.type != "cpu" or x.dtype != torch.float32:
        return False
    return x.dim() == weight.dim() == 4


def _is_alone(region: _Region) -> bool:
    """Has the region one convolution, forward or backward or both, and nothing that gains from channels innermost by itself?

    That is a pooling, and what puts the channels innermost anyway. Measured in training, one thread, AVX-512: nine convolutions with operations of ten kinds
    behind them 1.05 to 1.2 times as fast row-major, which eager does, too; with a layer norm over permuted channels 0.89 (docs/benchmarks/cpu.md).
    """
    targets = [node.target for node in region.convolutions]
    if max(map(targets.count, _CONVOLUTIONS)) > 1:
        return False
    return not any("pool" in getattr(node.target, "_opname", "") or _is_read_turned(node) for node in region.nodes)


def _is_read_turned(node: torch.fx.Node) -> bool:
    """Is the node read as a tensor that has its channels, the second dimension, as the last one?"""
    for user in node.users:
        if user.target is aten.permute.default:
            order: Any = user.args[1]
            if len(order) in IMAGE_RANKS and order[-1] == 1:
                return True
    return False


def _worth_it_on_cpu(graph: torch.fx.Graph, convolutions: Iterable[torch.fx.Node]) -> bool:
    """Is this a training step with many more activations than weights, which leaves its channels together?

    Inference graphs are decided by races (`layouts.py`).
    """
    activations, weights, trains = 0.0, 0.0, False
    for node in convolutions:
        x, weight = image_and_weight(node)
        if node.target is not _CONVOLUTIONS[0]:
            trains = True
        elif x is not None and weight is not None:
            activations += count(x) + count(node.meta["val"])
            weights += count(weight)
    return trains and activations > ACTIVATIONS_PER_WEIGHT * weights and not scatters_channels(graph)


# ------------------------------------------------------------------------------------------------------- biases


def _bias_joins_a_kernel(node: torch.fx.Node) -> bool:
    """Is the result read by a kernel of ours, which adds the bias on the way? The library adds it in a pass of its own, in place.

    So does a kernel for a result that the user gets, at 1.2 times the speed. The bias's gradient is a sum in any case, which aten computes so, too.
    """
    if node.target is aten.convolution_backward.default:
        return True
    return any(_is_computed(user) for user in _readers(node))


def _readers(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Who reads the node, or a view of all of it."""
    return [reader for user in node.users for reader in (_readers(user) if user.target in SAME_PLACE else [user])]


def _is_computed(node: torch.fx.Node) -> bool:
    """Is the node, or what it takes out of a tuple, computed by a kernel of ours?"""
    if node.target is operator.getitem:
        return isinstance(node.args[0], torch.fx.Node) and _is_computed(node.args[0])
    if node.op != "call_function" or find_lowering(node.target) is None:
        return False
    return node.target not in _LIBRARY or _is_summed(node)


def _with_bias_outside(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    """The convolution without its bias: `convolution(x, w, b)` becomes `convolution(x, w) + b`, and the bias's gradient a sum.

    cuDNN adds biases in a kernel of its own, ours fuses the addition with what follows.
    """
    if node.target is aten.convolution.default:
        return _plus_bias(graph, node)
    _sum_bias_gradient(node)
    return node


def _plus_bias(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    val, bias = value_of(node), value_of(node.args[2])
    if val is None or bias is None or bias.dtype != val.dtype:
        return node
    ones = [1] * (val.dim() - 2)
    with graph.inserting_before(node):
        product = graph.call_function(aten.convolution.default, (*node.args[:2], None, *node.args[3:]))
        product.meta = dict(node.meta)
        shaped = graph.call_function(aten.view.default, (node.args[2], [1, -1, *ones]))
        shaped.meta = {k: v for k, v in node.meta.items() if k != "val"}
        shaped.meta["val"] = fake_like(bias, (1, bias.shape[0], *ones), (bias.shape[0], *[1] * (val.dim() - 1)))
    # The node itself stays what others refer to.
    node.target, node.args = aten.add.Tensor, (product, shaped)
    return product


def _sum_bias_gradient(node: torch.fx.Node) -> None:
    mask: Any = node.args[10]
    gradient = value_of(node.args[0])
    if not mask[2] or gradient is None:
        return
    getter = next((u for u in node.users if u.target is operator.getitem and u.args[1] == 2), None)
    if getter is not None:
        getter.target, getter.args = aten.sum.dim_IntList, (node.args[0], [0, *range(2, gradient.dim())])
    node.args = (*node.args[:10], [*mask[:2], False])
    values = node.meta["val"]
    node.meta["val"] = (*values[:2], None)


# ------------------------------------------------------------------------------------------------------ regions


@final
@attrs.define(eq=False)
class _Region:
    """Convolutions, and what is computed from their results without changing places.

    Attributes:
        convolutions: those of `nodes`, in the graph's order.
        nodes: all, by the order in which they joined.
    """

    convolutions: list[torch.fx.Node] = attrs.field(factory=list)
    nodes: dict[torch.fx.Node, None] = attrs.field(factory=dict)

    def replace(self, convolutions: list[torch.fx.Node]) -> None:
        """Have these for the convolutions; what they were stays among the nodes."""
        self.convolutions = convolutions
        self.nodes.update(dict.fromkeys(convolutions))


def _regions(graph: torch.fx.Graph, convolutions: Collection[torch.fx.Node]) -> list[_Region]:
    """The graph's regions around these convolutions."""
    within: dict[torch.fx.Node, _Region] = {}
    for node in graph.nodes:
        sources = _sources(node, convolutions, within) if node.op == "call_function" else None
        if sources is None:
            continue
        region = _joined([within[s] for s in sources], within)
        region.nodes[node] = None
        within[node] = region
        if node in convolutions:
            region.convolutions.append(node)
    return list({id(region): region for region in within.values()}.values())


def _joined(regions: Sequence[_Region], within: dict[torch.fx.Node, _Region]) -> _Region:
    """One region of several, the largest of which takes in the others; a new one where there is none."""
    found = {id(region): region for region in regions}
    if not found:
        return _Region()
    whole = max(found.values(), key=lambda region: len(region.nodes))
    for region in found.values():
        if region is not whole:
            whole.convolutions.extend(region.convolutions)
            whole.nodes.update(region.nodes)
            within.update(dict.fromkeys(region.nodes, whole))
    return whole


def _sources(
    node: torch.fx.Node, convolutions: Collection[torch.fx.Node], within: Mapping[torch.fx.Node, object]
) -> list[torch.fx.Node] | None:
    """The operands from which a node has its region; None: it has none."""
    if node in convolutions:
        return [s for s in _images(node) if s in within]
    if node.target is operator.getitem:
        source: Any = node.args[0]
        # The second result of a convolution's backward is the weight's gradient.
        is_image = source not in convolutions or node.args[1] == 0
        return [source] if source in within and is_image else None
    if not _keeps_places(node):
        return None
    return [s for s in node.all_input_nodes if s in within and _has_images(s)] or None


def _images(convolution: torch.fx.Node) -> list[torch.fx.Node]:
    """The operands that are images: of a backward also the gradient."""
    count = 1 if convolution.target is aten.convolution.default else 2
    return [each for each in convolution.args[:count] if isinstance(each, torch.fx.Node)]


def _keeps_places(node: torch.fx.Node) -> bool:
    """Are images computed element by element, or channel by channel?"""
    if node.target in _MOVES_DIMENSIONS or not (_is_computed(node) or node.target in _LAYOUT_KEEPING):
        return False
    return _has_images(node)


def _has_images(node: torch.fx.Node) -> bool:
    return any(v.dim() in IMAGE_RANKS for v in _leaves(node.meta.get("val")))


def _leaves(val: object) -> list[torch.Tensor]:
    return [v for v in (val if isinstance(val, (tuple, list)) else (val,)) if isinstance(v, torch.Tensor)]


# ------------------------------------------------------------------------------------------ what a layout costs


def _pays(region: _Region, promised: Set[torch.fx.Node], times: ConvolutionTimes) -> bool:
    """Do the convolutions gain more with their channels innermost than the passes take that convert at the borders?"""
    if not any(map(_is_computed, region.nodes)) or any(map(_reduces_rows, region.nodes)):
        return False  # a lone convolution: cuDNN's own passes are as good
    passes = _passes(region, promised)
    return times.gain(region.convolutions) > pass_seconds(sum(passes), len(passes))


def _reduces_rows(node: torch.fx.Node) -> bool:
    """Is each row of an image normalised by itself? Its elements are far apart where the channels are innermost.

    A layer norm over rows of 64 elements of 32 x 64 x 32 x 64 x 64 takes 2.5 ms there and 0.7 row-major.
    """
    val = value_of(node.args[0]) if node.args else None
    if val is None or val.dim() not in IMAGE_RANKS:
        return False
    if node.target is aten.native_layer_norm.default:
        normalised: Any = node.args[1]
        return len(normalised) < val.dim() - 1  # without the channels
    return node.target in _OVER_A_DIMENSION and node.args[1] in (-1, val.dim() - 1)


def _passes(region: _Region, promised: Set[torch.fx.Node]) -> list[float]:
    """Bytes that each pass moves that there would not be without."""
    entering = dict.fromkeys(s for node in region.convolutions for s in _images(node) if s not in region.nodes)
    moved = [_times_moved_in(s, region) * _bytes(s) for s in entering]
    moved += [_times_moved_out(n) * _bytes(n) for n in region.nodes if n in promised]
    for node in region.convolutions:
        _, weight = image_and_weight(node)
        if weight is not None and _turns(weight):
            # A backward also gives the weight's gradient.
            moved.append((2 if node.target is aten.convolution.default else 4) * _size(weight))
    return [each for each in moved if each]


def _times_moved_in(source: torch.fx.Node, region: _Region) -> int:
    """How often an operand from outside is moved to be there with its channels innermost."""
    if not _is_computed(source) or source.target in SAME_PLACE:
        return 2  # read and written
    # Whatever computes it can store it so, beside what others read or instead of that.
    return 0 if all(user in region.nodes for user in source.users) else 1


def _times_moved_out(node: torch.fx.Node) -> int:
    """How often a promised result is moved to be there in eager's layout."""
    if _is_computed(node):
        return 1 if any(user.op == "call_function" for user in node.users) else 0
    return 2


def _read_as_they_were(region: _Region) -> frozenset[torch.fx.Node]:
    """Volumes that an operator of the library reads which knows one layout only; those of images know both."""
    return frozenset(
        node
        for node in region.nodes
        if any(v.dim() == 5 for v in _leaves(node.meta.get("val"))) and any(map(_is_of_one_layout, _readers(node)))
    )


def _is_of_one_layout(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem and find_lowering(node.target) is None


def _bytes(node: torch.fx.Node) -> float:
    """Of the node's value, if it is an image that has another layout with its channels innermost."""
    val = value_of(node)
    return _size(val) if val is not None and _turns(val) else 0


def _size(val: torch.Tensor) -> float:
    return count(val) * val.element_size()


# ------------------------------------------------------------------------------------------------------ strides


def _store_channels_last(region: _Region, promised: Set[torch.fx.Node]) -> None:
    """Give the region's images their channels innermost, but for those whose strides somebody relies on."""
    for node in region.nodes:
        _turn(node, promised)
    for node in region.convolutions:
        node.meta[CHANNELS_LAST] = True


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
    if not _may_turn(val):
        return val
    return fake_like(val, tuple(val.shape), channels_last_strides(tuple(val.shape)))


def _may_turn(val: torch.Tensor) -> bool:
    """Is it an image in row-major order, of known or unknown size?"""
    return val.dim() in IMAGE_RANKS and all(typical(n) > 0 for n in val.shape[1:]) and is_row_major(val)


def _turns(val: torch.Tensor) -> bool:
    """Does it lie elsewhere once it has its channels innermost?"""
    return _may_turn(val) and typical(val.shape[1]) > 1 and math.prod(map(typical, val.shape[2:])) > 1
