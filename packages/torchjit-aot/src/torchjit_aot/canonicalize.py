"""Small rewrites that make graphs equal which mean the same, before the partition."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._prims_common import make_contiguous_strides_for

from torchjit_aot.joint import JointGraph

__all__ = ["canonicalize"]

aten = torch.ops.aten


def canonicalize(joint: JointGraph) -> JointGraph:
    """Rewrite in place.

    The backward of batch norm names the running statistics although it does not read them in training; without them
    they need not be saved (the forward overwrites them).
    """
    for node in joint.graph.nodes:
        if node.target is aten.native_batch_norm_backward.default and node.args[7] is True:
            node.args = (*node.args[:3], None, None, *node.args[5:])
        elif node.op == "call_function" and node.target in _FILLS:
            _forget_the_example(node)
    return joint


_FILLS = {
    aten.zeros.default: 0,
    aten.ones.default: 1,
    aten.zeros_like.default: 0,
    aten.ones_like.default: 1,
    aten.new_zeros.default: 0,
    aten.new_ones.default: 1,
    aten.full_like.default: None,
    aten.new_full.default: None,
}
"""Operators that fill a tensor, and with what; None: it is the last argument."""


def _forget_the_example(node: fx.Node) -> None:
    """`zeros_like(x)` to `full(sizes, 0)`: its value does not depend on `x`, so `x` need not live for it."""
    val = node.meta["val"]
    if not all(type(n) is int for n in val.shape) or val.layout != torch.strided:
        return
    # `is_contiguous` leaves out the strides of dimensions of size 1, which `full` would not have.
    if tuple(val.stride()) != make_contiguous_strides_for(val.shape):
        return
    number: Any = _FILLS[node.target]  # type: ignore[index]
    if number is None:
        number = node.args[-1]
        if not isinstance(number, (int, float, bool, complex)):
            return
    node.target = aten.full.default
    node.args = ([int(n) for n in val.shape], number)
    node.kwargs = {"dtype": val.dtype, "device": val.device, "pin_memory": False}
