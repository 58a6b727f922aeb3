"""Finds what the gradients of a joint graph depend on, and which results' backwards have operators in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import fx

from torchjit_aot.autograd_nodes.dependence import Dependence
from torchjit_aot.costs import is_symbolic, owner_of
from torchjit_aot.symbols import SYMBOLIC_TYPES
from torchjit_torch.node_meta import BACKWARD, RECOMPUTE

if TYPE_CHECKING:  # a process that loads stored entries traces nothing
    from torchjit_aot.joint import JointGraph

__all__ = ["component_reads", "trace_dependence"]

aten = torch.ops.aten
_ADDITION = aten.add.Tensor


def trace_dependence(joint: JointGraph) -> Dependence:
    """Look at a functional joint graph that no pass has changed."""
    behind = _tangent_bits(joint)
    masks = [behind.get(grad, 0) if grad is not None else 0 for grad in joint.grads]
    return Dependence(
        tangents=tuple(tuple(k for k in range(len(joint.tangents)) if mask >> k & 1) for mask in masks),
        components=_components(joint, behind),
        differentiable=_differentiable_inputs(joint),
        read_slots=_read_slots(joint),
    )


def _tangent_bits(joint: JointGraph) -> dict[fx.Node, int]:
    """For each node that depends on tangents: a bit for each of them."""
    behind: dict[fx.Node, int] = {node: 1 << k for k, node in enumerate(joint.tangents)}
    for node in joint.graph.nodes:
        if node not in behind:
            bits = 0
            for source in node.all_input_nodes:
                bits |= behind.get(source, 0)
            if bits:
                behind[node] = bits
    return behind


def _components(joint: JointGraph, behind: dict[fx.Node, int]) -> tuple[tuple[int, ...], ...]:
    """The components of tangents.

    Only the sum of two gradients of an input is no operator in this sense: eager mode adds them when they arrive.
    """
    results = {grad for grad in joint.grads if grad is not None}
    sums: set[fx.Node] = set()
    for node in reversed(joint.graph.nodes):
        adds = node.target is _ADDITION and node in behind and (node in results or node.users)
        if adds and all(user in sums for user in node.users):
            sums.add(node)
    groups = {1 << k for k in range(len(joint.tangents))}
    for node, bits in behind.items():
        if node not in sums:
            joined = {group for group in groups if group & bits}
            groups = groups - joined | {sum(joined)}
    in_order = sorted(groups, key=lambda group: group & -group)  # by the first member
    return tuple(tuple(k for k in range(group.bit_length()) if group >> k & 1) for group in in_order)


def component_reads(joint: JointGraph, saved: Sequence[fx.Node]) -> tuple[tuple[int, ...], ...]:
    """For each component the positions, among the saved tensors, of those that its backward reads."""
    behind = _tangent_bits(joint)
    stops = set(saved)
    reaches: dict[fx.Node, int] = {}
    for node in reversed(joint.graph.nodes):
        bits = 0
        for user in node.users:
            bits |= behind.get(user, 0) or (0 if user in stops else reaches.get(user, 0))
        reaches[node] = bits
    tensors = [node for node in saved if isinstance(node.meta["val"], torch.Tensor)]
    return tuple(
        tuple(n for n, node in enumerate(tensors) if any(reaches.get(node, 0) >> k & 1 for k in members))
        for members in joint.dependence.components
    )


def _differentiable_inputs(joint: JointGraph) -> frozenset[int]:
    """Through floating numbers only: not through sizes, indices and masks."""
    behind = {grad for grad in joint.grads if grad is not None}
    for node in reversed(joint.graph.nodes):
        if node in behind:
            behind.update(source for source in node.all_input_nodes if _may_be_differentiated(source.meta.get("val")))
    return frozenset(
        i
        for i, (node, grad) in enumerate(zip(joint.inputs, joint.grads, strict=True))
        if grad is not None and node in behind
    )


def _may_be_differentiated(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.is_floating_point() or value.is_complex()
    return not isinstance(value, (int, float, bool, *SYMBOLIC_TYPES))  # the results of an operator with several


_SIZES_ONLY = frozenset(
    {
        aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.empty_like.default, aten.rand_like.default,
        aten.new_zeros.default, aten.new_ones.default, aten.new_full.default, aten.new_empty.default,
        aten.new_empty_strided.default,
    }
)  # fmt: skip
"""Operators that read the sizes of a tensor, which eager PyTorch's formulas do not save for it."""


def _read_slots(joint: JointGraph) -> frozenset[int]:
    """Those of checkpointed regions are not among them: there eager PyTorch reads what it computes again."""
    read: set[fx.Node] = set()
    for node in joint.graph.nodes:
        if BACKWARD.of(node) and node.target not in _SIZES_ONLY and not is_symbolic(node):
            read.update(owner_of(source) for source in node.all_input_nodes if not BACKWARD.of(source))
    slots = {i: owner_of(slot) for i, slot in enumerate(joint.slots) if isinstance(slot, fx.Node)}
    return frozenset(i for i, o in slots.items() if o in read and o.op == "call_function" and not RECOMPUTE.marks(o))
