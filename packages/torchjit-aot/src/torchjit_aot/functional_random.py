"""Random numbers as a function of a seed, so that the backward can draw the forward's again instead of keeping them.

On request (`AotSettings.functional_random`): then the numbers are not those of eager PyTorch. Each call of the graph draws
one seed for each random operator from the default generator. An operator becomes arithmetic on its seed and on the
positions of its elements, by the counter-based generator Philox2x32-10; the cut treats that as any other pointwise
computation, and saves the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from torchjit_aot.decompositions import decompose
from torchjit_aot.graph_writer import GraphWriter
from torchjit_aot.joint import JointGraph
from torchjit_torch.node_meta import RECOMPUTE
from torchjit_torch.operators import is_random

__all__ = ["draw_from_seeds", "philox"]

aten = torch.ops.aten
Size: TypeAlias = int | torch.SymInt

_ROUNDS, _MULTIPLIER, _WEYL = 10, 0xD256D193, 0x9E3779B9
_WORD = 0xFFFFFFFF
_DIGITS = {torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}
"""Bits of a number in [0, 1) that the dtype holds exactly: rounding would give 1 now and then."""


def _high(bits: Tensor) -> Tensor:
    return torch.bitwise_right_shift(bits, 32) & _WORD


def philox(index: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
    """Two words of 32 random bits for each index.

    Args:
        index: what to encrypt, int64, not negative.
        seed: int64, without dimensions.

    Returns:
        Two int64 tensors of `index`'s shape, from 0 to 2**32 - 1.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    key, left, right = seed & _WORD, index & _WORD, _high(index) ^ _high(seed)
    for _ in range(_ROUNDS):
        product = left * _MULTIPLIER
        left, right = _high(product) ^ key ^ right, product & _WORD
        key = (key + _WEYL) & _WORD
    return left, right


def _words(seed: Tensor, count: Size) -> tuple[Tensor, Tensor]:
    return philox(torch.arange(count, device=seed.device), seed)


def _uniform(seed: Tensor, count: Size, dtype: torch.dtype) -> Tensor:
    """Numbers in [0, 1)."""
    left, right = _words(seed, count)
    if dtype == torch.float64:
        bits = torch.bitwise_right_shift(left, 5) * 2**26 + torch.bitwise_right_shift(right, 6)
        return bits.to(dtype) * 2.0**-53
    digits = _DIGITS[dtype]
    return torch.bitwise_right_shift(left, 32 - digits).to(dtype) * 2.0**-digits


def _normal(seed: Tensor, count: Size, dtype: torch.dtype) -> Tensor:
    """Numbers with mean 0 and variance 1, by Box and Muller."""
    work = torch.float64 if dtype == torch.float64 else torch.float32
    left, right = (bits.to(work) for bits in _words(seed, count))
    radius = torch.sqrt(-2.0 * torch.log((left + 1.0) * 2.0**-32))
    return (radius * torch.cos(right * (2.0 * math.pi * 2.0**-32))).to(dtype)


def _laid_out_like(flat: Tensor, like: Tensor) -> Tensor:
    """The numbers with the sizes of `like` and the strides of `torch.empty_like`."""
    strides = torch.empty_like(like).stride()
    if not all(type(n) is int for n in (*like.shape, *strides)):
        return flat.view(like.shape)
    order = sorted(range(like.dim()), key=lambda dim: -strides[dim])
    back = [order.index(dim) for dim in range(len(order))]
    return flat.view([like.shape[dim] for dim in order]).permute(back)


# ------------------------------------------------------------------------- the operators
def _native_dropout(seed: Tensor, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0.0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = _laid_out_like(_uniform(seed, x.numel(), torch.float32) >= p, x)
    return x * mask * (0.0 if p == 1.0 else 1.0 / (1.0 - p)), mask


def _bernoulli_p(seed: Tensor, x: Tensor, p: float = 0.5) -> Tensor:
    return _laid_out_like((_uniform(seed, x.numel(), torch.float32) < p).to(x.dtype), x)


def _bernoulli(seed: Tensor, x: Tensor) -> Tensor:
    return (_laid_out_like(_uniform(seed, x.numel(), torch.float32), x) < x).to(x.dtype)


def _of_kind(kwargs: dict[str, Any], like: Tensor | None = None) -> torch.dtype:
    given = kwargs.get("dtype")
    return given or (torch.get_default_dtype() if like is None else like.dtype)


_Draw: TypeAlias = Callable[[Tensor, Size, torch.dtype], Tensor]


def _of_size(draw: _Draw) -> Callable[..., Tensor]:
    return lambda seed, size, **kwargs: draw(seed, math.prod(size), _of_kind(kwargs)).view(size)


def _like(draw: _Draw) -> Callable[..., Tensor]:
    return lambda seed, x, **kwargs: _laid_out_like(draw(seed, x.numel(), _of_kind(kwargs, x)), x)


def _uniform_between(seed: Tensor, x: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    return _like(_uniform)(seed, x) * (high - low) + low


def _normal_around(seed: Tensor, x: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    return _like(_normal)(seed, x) * std + mean


_RULES: dict[OpOverload, Callable[..., Any]] = {
    aten.native_dropout.default: _native_dropout,
    aten.bernoulli.p: _bernoulli_p,
    aten.bernoulli.default: _bernoulli,
    aten.rand.default: _of_size(_uniform),
    aten.randn.default: _of_size(_normal),
    aten.rand_like.default: _like(_uniform),
    aten.randn_like.default: _like(_normal),
    aten.uniform.default: _uniform_between,
    aten.normal_functional.default: _normal_around,
}
_OPERATOR_OF = {rule: operator for operator, rule in _RULES.items()}


def draw_from_seeds(joint: JointGraph) -> JointGraph:
    """Replace the random operators that have a rule. The others draw as eager PyTorch does.

    None is replaced beside an operator that may set the generator: its seed would be drawn before.
    """
    if any(is_random(node.target) and node.target.namespace not in ("aten", "prims") for node in joint.graph.nodes):
        return joint
    by_device: dict[torch.device, list[fx.Node]] = {}
    for node in joint.graph.nodes:
        if node.target in _RULES and _has_rule(node):
            by_device.setdefault(_tensor(node).device, []).append(node)
    for device, nodes in by_device.items():
        _give_seeds(joint.graph, device, nodes)
    if by_device:
        joint = decompose(joint, {rule: rule for rule in _OPERATOR_OF}, frozenset())
        for node in joint.graph.nodes:
            if node.target in _OPERATOR_OF:  # its result would have had other strides
                node.target, node.args = _OPERATOR_OF[node.target], node.args[1:]
    return joint


def _tensor(node: fx.Node) -> Tensor:
    value = node.meta["val"]
    return value[0] if isinstance(value, (tuple, list)) else value  # type: ignore[no-any-return]


def _has_rule(node: fx.Node) -> bool:
    plain = node.kwargs.get("generator") is None and node.kwargs.get("layout") in (None, torch.strided)
    return plain and (_tensor(node).dtype in _DIGITS or _tensor(node).dtype == torch.float64)


def _give_seeds(graph: fx.Graph, device: torch.device, nodes: Sequence[fx.Node]) -> None:
    """Let the nodes call the rules, each with a seed of its own as the first argument."""

    limits = torch.iinfo(torch.int64)
    with graph.inserting_before(nodes[0]):
        options = {"dtype": torch.int64, "device": device, "pin_memory": False}
        seeds = GraphWriter(graph, nodes[0]).call(aten.randint.low, (limits.min, limits.max, [len(nodes)]), options)
    RECOMPUTE.drop(seeds)
    for position, node in enumerate(nodes):
        with graph.inserting_before(node):
            seed = GraphWriter(graph, node).call(aten.select.int, (seeds, 0, position))
        node.target, node.args = _RULES[node.target], (seed, *node.args)  # type: ignore[index]
