"""A model of how long operators take: the larger of arithmetic and memory traffic, on a data-centre accelerator.

Only ratios count: the model ranks values by time per byte and says what share of a step something costs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from torchjit_aot.costs import bytes_of, is_alias, is_symbolic, size_hint
from torchjit_aot.joint import JointGraph

__all__ = ["flops_of", "seconds_of", "seconds_of_step"]

aten = torch.ops.aten
_FLOPS = {2: 5.0e14, 4: 2.5e14, 8: 3.0e13}
"""Multiply-adds count two; by the size of an element."""
_BANDWIDTH = 3.3e12
_PRODUCTS = {
    aten.mm.default: (0, 1),
    aten.addmm.default: (1, 2),
    aten.bmm.default: (0, 1),
    aten.baddbmm.default: (1, 2),
    **{
        op.default: (0, 1)
        for name in ("_int_mm", "_scaled_mm", "_scaled_mm_v2", "_grouped_mm")
        if (op := getattr(aten, name, None)) is not None  # older versions of torch have fewer
    },
}


def _elements(node: object) -> int:
    val = node.meta["val"] if isinstance(node, fx.Node) else None
    return math.prod(size_hint(n) for n in val.shape) if isinstance(val, torch.Tensor) else 0


def flops_of(node: fx.Node) -> float:
    """Floating-point operations of matrix products, convolutions and attention; 0 for what moves memory."""
    if node.target in _PRODUCTS:
        return _flops_of_product(node)
    name = getattr(node.target, "_opname", "")
    count = _COUNTS.get(name)
    if count is not None:
        return count(node)
    return _flops_of_attention(node, name.endswith("_backward")) if "scaled_dot_product" in name else 0.0


def _shape(value: object) -> Sequence[Any]:
    assert isinstance(value, fx.Node)
    return value.meta["val"].shape  # type: ignore[no-any-return]


def _flops_of_product(node: fx.Node) -> float:
    left, right = (node.args[i] for i in _PRODUCTS[node.target])
    if (len(_shape(left)), len(_shape(right))) == (3, 2):  # each matrix with a group of the columns
        return 2.0 * _elements(right) * size_hint(_shape(left)[-2])
    return 2.0 * _elements(left) * size_hint(_shape(right)[-1])


def _flops_of_convolution(result: object, weight: object) -> float:
    return 2.0 * _elements(result) * _elements(weight) / max(1, size_hint(_shape(weight)[0]))


def _flops_of_gradients(node: fx.Node) -> float:
    each = _flops_of_convolution(node.args[0], node.args[2])
    return each * sum(v is not None for v in list(node.meta["val"])[:2])


_COUNTS: dict[str, Callable[[fx.Node], float]] = {
    "convolution": lambda node: _flops_of_convolution(node, node.args[1]),
    "convolution_backward": _flops_of_gradients,
}


def _flops_of_attention(node: fx.Node, backward: bool) -> float:
    if not isinstance(node.args[0], fx.Node):
        return 0.0
    query, key = node.args[backward : backward + 2]
    return (10.0 if backward else 4.0) * _elements(query) * size_hint(_shape(key)[-2])


def seconds_of(node: fx.Node) -> float:
    """Modelled time of one call of the operator by itself."""
    if node.op != "call_function" or is_alias(node) or is_symbolic(node) or node.target is operator.getitem:
        return 0.0
    val = node.meta["val"]
    tensors = [v for v in (val if isinstance(val, (tuple, list)) else [val]) if isinstance(v, torch.Tensor)]
    moved = sum(map(bytes_of, tensors)) + sum(bytes_of(n.meta["val"]) for n in node.all_input_nodes)
    width = tensors[0].element_size() if tensors else 4
    return max(flops_of(node) / _FLOPS.get(width, 2.5e14), moved / _BANDWIDTH)


def seconds_of_step(joint: JointGraph) -> float:
    """Modelled time of the whole joint graph: what computes, and half of the traffic of the rest, for fusion."""
    total = 0.0
    for node in joint.graph.nodes:
        time = seconds_of(node)
        total += time if flops_of(node) else 0.5 * time
    return total
