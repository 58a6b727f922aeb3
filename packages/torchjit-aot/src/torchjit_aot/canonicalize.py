"""Small rewrites that make graphs equal which mean the same, before the partition."""

from __future__ import annotations

import torch

from torchjit_aot.joint import JointGraph

__all__ = ["canonicalize"]

aten = torch.ops.aten


def canonicalize(joint: JointGraph) -> None:
    """Rewrite in place.

    The backward of batch norm names the running statistics although it does not read them in training; without them
    they need not be saved (the forward overwrites them).
    """
    for node in joint.graph.nodes:
        if node.target is aten.native_batch_norm_backward.default and node.args[7] is True:
            node.args = (*node.args[:3], None, None, *node.args[5:])
