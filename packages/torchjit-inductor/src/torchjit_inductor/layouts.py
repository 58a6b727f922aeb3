"""Whether the convolutions of an inference graph run in channels-last layout: short races of the largest ones decide.

Inside a graph only its outputs have promised strides. Where convolutions are clearly faster with their channels innermost,
everything between them is stored that way: one decision for the graph, since every change of layout costs a pass over
memory and a decision for each convolution would flip with the noise of its race.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.fx

from torchjit_core.expr import as_expr, constant, maximum
from torchjit_inductor.benchmark_choice import AutotuneCache
from torchjit_inductor.lowering.sizes import NotLowered, expression
from torchjit_inductor.memory_readers import observed

__all__ = [
    "channels_last_strides",
    "fake_like",
    "image_and_weight",
    "is_row_major",
    "preferred_layouts",
    "scatters_channels",
    "typical",
    "value_of",
]

GAIN = 1.1
"""The raced convolutions together must take at most this share of the time, else the default stays.

Above 1: what lies between them (means over an image, pooling, depthwise parts) gains more than the race shows.
"""
GAIN_REARRANGED = 1.0
"""The same where channels are concatenated or cut, which takes longer with the channels innermost.

Measured (ratio of the race; speed over eager row-major and channels-last): GhostNet 0.90, 1.3 and 1.7; DenseNet-121 0.87, 1.36 and 1.2.
Not where they are shuffled: with the channels innermost a shuffle reads in order (`cpp/phases.py`). ShuffleNet: 1.02, and 1.11
to 1.28 times the speed of row-major storage.
"""
SHARE = 0.8
"""Races stop when this share of the operations has been raced."""
WEIGHT_HEAVY = 4
"""With so many weights for each activation a convolution stays row-major: converting its weights costs more than its images.

Measured on an Intel machine with AVX-512, one thread: 512 x 512 x 3 x 3 on 7 x 7 takes 10.3 ms row-major and 20.6 channels-last, 320 to 512
channels on 14 x 14 3.5 and 9.3; at 2.3 weights an activation the two are equal.
"""
BATCH = 2
"""Images of a race: the choice hardly depends on their number, the time of the race does."""

_CONVOLUTION = torch.ops.aten.convolution.default
_BARRIERS = frozenset(
    [
        "view",
        "_unsafe_view",
        "reshape",
        "permute",
        "transpose",
        "t",
        "expand",
        "unsqueeze",
        "squeeze",
        "bmm",
        "mm",
        "addmm",
        "select",
        "slice",
        "as_strided",
    ]
)
"""Ops across which a layout does not carry."""


def preferred_layouts(gm: torch.fx.GraphModule, cache: AutotuneCache) -> set[torch.fx.Node]:
    """The nodes whose result should be stored channels-last, and the convolutions that should read their input so.

    Where there are any, convolutions that are not among them should read theirs row-major.
    """
    shapes: Counter[tuple[object, ...]] = Counter()
    sample: dict[tuple[object, ...], torch.fx.Node] = {}
    convolutions = [n for n in gm.graph.nodes if n.op == "call_function" and n.target is _CONVOLUTION]
    heavy = {n for n in convolutions if _weight_heavy(n)}
    convolutions = [n for n in convolutions if n not in heavy]
    convolutions = _in_company(convolutions)
    eligible = []
    for node in convolutions:
        key = _race_key(node)
        if key is not None:
            eligible.append(node)
            shapes[key] += 1
            sample.setdefault(key, node)
    if not eligible or len(eligible) < len(convolutions) / 2:
        return set()
    work = {key: count * _flops(sample[key]) for key, count in shapes.items()}
    total, raced, row_major, last = sum(work.values()), 0.0, 0.0, 0.0
    for key in sorted(work, key=lambda k: -work[k]):
        a, b = cache.times(("layout", *key), _contest(sample[key]))
        row_major, last, raced = row_major + a * shapes[key], last + b * shapes[key], raced + work[key]
        if raced >= SHARE * total:
            break
    cut = any(map(_joins_or_cuts, gm.graph.nodes)) and not any(map(_shuffles, gm.graph.nodes))
    gain = GAIN_REARRANGED if cut else GAIN
    return _between(convolutions) - heavy - observed(gm.graph) if last < gain * row_major else set()


def scatters_channels(graph: torch.fx.Graph) -> bool:
    """Are channels shuffled, or joined from more than two images? A training step then loses more than its convolutions gain.

    Speed of channels-last to row-major training, two threads and one (docs/benchmarks/cpu.md): GhostNet, which joins two images at a
    time, 1.16 and 1.08, SqueezeNet 1.05, CSPResNet 0.96; ShuffleNet 0.96 and 0.73, DenseNet-121 0.59 and 0.55.
    """
    joined = [node for node in graph.nodes if node.target is torch.ops.aten.cat.default and _joins_or_cuts(node)]
    return any(len(node.args[0]) > 2 for node in joined) or any(map(_shuffles, graph.nodes))


def _joins_or_cuts(node: torch.fx.Node) -> bool:
    """Is an image joined with others, or cut, along its channels?"""
    aten = torch.ops.aten
    along = (aten.slice.Tensor, aten.split.Tensor, aten.split_with_sizes.default, aten.cat.default)
    if node.target not in along or _image(node) is None:
        return False
    position = 1 if node.target in (aten.slice.Tensor, aten.cat.default) else 2
    dim = node.args[position] if len(node.args) > position else node.kwargs.get("dim", 0)
    return dim in (1, -3)


def _shuffles(node: torch.fx.Node) -> bool:
    """Does an image get a fifth dimension, through which its channels change places?"""
    source, made = _image(node), node.meta.get("val")
    if node.target not in (torch.ops.aten.view.default, torch.ops.aten.reshape.default) or source is None:
        return False
    if not isinstance(made, torch.Tensor) or made.dim() != 5:
        return False
    images, parts = source.shape[0], made.shape[0]
    # Comparing symbolic sizes would decide something about them.
    return isinstance(images, int) and isinstance(parts, int) and images == parts


def _image(node: torch.fx.Node) -> torch.Tensor | None:
    """The first operand, if it has four dimensions."""
    source = node.all_input_nodes[0].meta.get("val") if node.op == "call_function" and node.all_input_nodes else None
    return source if isinstance(source, torch.Tensor) and source.dim() == 4 else None


def channels_last_strides(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Strides of a batch of images, of any number of dimensions, with the channels innermost."""
    _, channels, *spatial = sizes
    strides = [channels]
    for n in reversed(spatial):
        strides.append(strides[-1] * n)
    whole, *rest = reversed(strides)
    return (whole, channels - channels + 1, *rest)


def _between(convolutions: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """Convolutions, and all that lies before and behind them up to a change of shape."""
    found: set[torch.fx.Node] = set(convolutions)
    stack = list(convolutions)
    while stack:
        node = stack.pop()
        for near in (*node.all_input_nodes, *node.users):
            if near not in found and near.op == "call_function" and _carries_layout(near):
                found.add(near)
                stack.append(near)
    return found


def _in_company(convolutions: list[torch.fx.Node]) -> list[torch.fx.Node]:
    """Those with another one, or a pooling, in what a layout carries to. The others would pay for two changes of it alone.

    Measured, one thread, AVX-512: nine convolutions of two images, what they give as the next operation of eleven kinds got it. With
    channels innermost 0.60 to 1.1 times eager's speed alone, with a softmax over channels, an upsampling or a mean that scales them, row-major 0.97 to 1.2;
    with a max pool 1.2 times the speed of row-major ones (docs/benchmarks/cpu.md).
    """
    kept: set[torch.fx.Node] = set()
    seen: set[torch.fx.Node] = set()
    for node in convolutions:
        if node not in seen:
            around = _between([node])
            together = {other for other in convolutions if other in around}
            seen |= together
            if len(together) > 1 or any(map(_pools, around)):
                kept |= together
    return [node for node in convolutions if node in kept]


def _pools(node: torch.fx.Node) -> bool:
    return "pool" in getattr(node.target, "_opname", "")


def _carries_layout(node: torch.fx.Node) -> bool:
    val = node.meta.get("val")
    if isinstance(val, (tuple, list)):
        val = val[0] if val else None
    name = getattr(node.target, "_opname", "") or str(getattr(node.target, "__name__", ""))
    if not isinstance(val, torch.Tensor) or val.dim() != 4 or str(name).split(".")[0] in _BARRIERS:
        return False
    return is_row_major(val) and typical(val.shape[1]) != 1


def _race_key(node: torch.fx.Node) -> tuple[object, ...] | None:
    """What a race of this convolution depends on, or None where the choice does not arise."""
    (a, w), (bias, *options) = image_and_weight(node), node.args[2:]
    if a is None or w is None:
        return None
    if a.dim() != 4 or w.dim() != 4 or not _is_plain_image(a):
        return None
    sizes, out = [*map(typical, (*a.shape, *w.shape))], [*map(typical, node.meta["val"].shape)]
    if options[3] or min(*sizes[2:4], *out[2:]) < 2 or 0 in sizes or not all(map(_is_known, options)):
        return None
    return (min(sizes[0], BATCH), *sizes[1:], bias is None, str(options))


def _is_plain_image(val: torch.Tensor) -> bool:
    return val.device.type == "cpu" and val.dtype == torch.float32 and is_row_major(val)


def _is_known(option: object) -> bool:
    """Is it an integer, or several?"""
    return all(isinstance(n, int) for n in (option if isinstance(option, (list, tuple)) else (option,)))


def _weight_heavy(node: torch.fx.Node) -> bool:
    x, weight = image_and_weight(node)
    if x is None or weight is None or _race_key(node) is None:
        return False
    return _elements(weight.shape) >= WEIGHT_HEAVY * (_elements(x.shape) + _elements(node.meta["val"].shape))


def typical(size: Any) -> int:
    """A size, or the value that a symbolic one was traced with: for choices that change no result. 1 where only the run knows it.

    Comparing the symbolic size itself would decide something about all calls.
    """
    return size if isinstance(size, int) else int(getattr(size.node, "hint", None) or 1)


def _elements(sizes: Iterable[Any]) -> int:
    return math.prod(map(typical, sizes))


def is_row_major(val: torch.Tensor) -> bool:
    """Is it dense and row-major for all values of its symbols? Asking the tensor would decide something about them."""
    if all(isinstance(n, int) for n in (*val.shape, *val.stride())):
        return val.is_contiguous()
    try:
        sizes, strides = ([as_expr(expression(n)) for n in all_of] for all_of in (val.shape, val.stride()))
    except NotLowered:
        return False
    # torch counts a size of 0 as 1 in strides, where it asks for that; without elements they do not matter.
    step = least = constant(1)
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if stride not in (step, least) and size.value != 1:
            return False
        step, least = step * size, least * maximum(1, size)
    return True


def value_of(node: object) -> torch.Tensor | None:
    """The fake tensor of a node; None for anything else."""
    val = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return val if isinstance(val, torch.Tensor) else None


def fake_like(val: torch.Tensor, sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> torch.Tensor:
    """A tensor of the value's dtype and device with other sizes and strides, fake where that is."""
    mode = getattr(val, "fake_mode", None)
    if mode is None:
        return val.new_empty_strided(sizes, strides)
    with mode, torch.no_grad():
        return torch.empty_strided(sizes, strides, dtype=val.dtype, device=val.device)


def image_and_weight(node: torch.fx.Node) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The operands of a convolution or of its backward."""
    first = 0 if node.target is _CONVOLUTION else 1
    return value_of(node.args[first]), value_of(node.args[first + 1])


def _flops(node: torch.fx.Node) -> float:
    weight: Any = node.args[1]
    return 2.0 * _elements(node.meta["val"].shape) * _elements(weight.meta["val"].shape[1:])


def _contest(node: torch.fx.Node) -> Callable[[], tuple[Callable[[], object], Callable[[], object]]]:
    (a, w), (bias, *options) = image_and_weight(node), node.args[2:]

    def contest() -> tuple[Callable[[], object], Callable[[], object]]:
        if a is None or w is None:
            raise TypeError("a convolution of something else than tensors")
        images, *rest = map(typical, a.shape)
        kind: Any = {"dtype": torch.float32, "device": "cpu"}  # the program may have other defaults
        plain = torch.full((min(images, BATCH), *rest), 0.5, **kind)
        last = plain.contiguous(memory_format=torch.channels_last)
        filters = torch.full([*map(typical, w.shape)], 0.5, **kind)
        shift = None if bias is None else torch.ones(filters.shape[0], **kind)

        def run(image: torch.Tensor) -> None:
            torch.ops.aten.convolution.default(image, filters, shift, *options)

        return lambda: run(plain), lambda: run(last)

    return contest
