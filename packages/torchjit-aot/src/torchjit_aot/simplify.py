"""Passes over the functional joint graph: common subexpressions, no-ops, and numbers computed while compiling."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import Argument, Target

from torchjit_aot.autograd_nodes.needs import backward_values
from torchjit_aot.costs import copies_an_input, is_alias, is_fusible
from torchjit_aot.joint import JointGraph
from torchjit_torch.node_meta import BACKWARD, RECOMPUTE
from torchjit_torch.operators import is_random, writes_to

__all__ = ["merge_equal", "remove_no_ops", "rename", "returned_storages", "same_kind"]

aten = torch.ops.aten


def merge_equal(joint: JointGraph) -> tuple[JointGraph, int]:
    """Let equal calls be one node, in place: same operator, same arguments, no effect, no random numbers.

    Results that the caller gets stay apart, so that writing to one does not change another.

    Returns:
        The joint graph, and how many nodes went.
    """
    seen: dict[Hashable, fx.Node] = {}
    returned = returned_storages(joint)
    gone: dict[fx.Node, fx.Node] = {}
    for node in list(joint.graph.nodes):
        if node.op != "call_function" or not _is_pure(node.target):
            continue
        key = _key(node)
        first = seen.get(key) if key is not None else None
        if first is None or node in returned or first in returned or _is_sized_otherwise(node, first):
            if key is not None:
                seen[key] = node
            continue
        node.replace_all_uses_with(first)
        gone[node] = first
        joint.graph.erase_node(node)
    return rename(joint, gone), len(gone)


def _is_sized_otherwise(node: fx.Node, first: fx.Node) -> bool:
    """Does it have symbols of its own, as each selection has that depends on data? What follows is made of them."""
    a, b = node.meta.get("val"), first.meta.get("val")
    return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and _numbers(a) != _numbers(b)


def returned_storages(joint: JointGraph) -> set[fx.Node]:
    """The slots, gradients and final values of inputs, with what they are views of."""
    ends = [n for n in (*joint.slots, *joint.grads, *joint.mutated.values()) if isinstance(n, fx.Node)]
    found: set[fx.Node] = set()
    for end in ends:
        node = end
        while node not in found:
            found.add(node)
            looks_at = node.args[0] if node.args and (is_alias(node) or node.target is operator.getitem) else None
            if not isinstance(looks_at, fx.Node):
                break
            node = looks_at
    return found


def _is_pure(target: Target) -> bool:
    if target is operator.getitem:
        return True
    if not isinstance(target, OpOverload):
        return False
    return (
        target.namespace in ("aten", "prims")
        and not is_random(target)
        and not writes_to(target)
        and bool(target._schema.returns)
    )


def _key(node: fx.Node) -> Hashable:
    # what a checkpointed region computes again in the backward must not become the forward's: that saves it
    part = (bool(RECOMPUTE.of(node)), bool(BACKWARD.of(node)) and not is_fusible(node))
    try:
        key = (node.target, _frozen(node.args), _frozen(node.kwargs), part)
        hash(key)
    except TypeError:
        return None
    return key


def _frozen(value: Argument) -> Hashable:
    if isinstance(value, (tuple, list)):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _frozen(v)) for k, v in value.items())
    if isinstance(value, float):
        return (float, value.hex())  # 0.0 and -0.0 are equal, and nan is not equal to itself
    return value if isinstance(value, fx.Node) else (type(value), value)


def remove_no_ops(joint: JointGraph) -> tuple[JointGraph, int]:
    """Drop calls that give their argument: casts to the same dtype, views to the same sizes, copies nobody needs.

    A copy of an input is needed by a backward that sees the value: the caller may write to the input before that runs.

    Returns:
        The joint graph, and how many nodes went.
    """
    returned = returned_storages(joint)
    copies = {node for node in joint.graph.nodes if copies_an_input(node)} if joint.has_backward else set()
    kept = returned | (copies & backward_values(joint).shared if copies else copies)
    gone: dict[fx.Node, fx.Node] = {}
    for node in list(joint.graph.nodes):
        if node.op != "call_function" or node in kept:
            continue
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or not same_kind(source.meta.get("val"), node.meta.get("val")):
            continue
        if node.target in _NO_OPS and _NO_OPS[node.target](node):
            node.replace_all_uses_with(source)
            gone[node] = source
            joint.graph.erase_node(node)
    return rename(joint, gone), len(gone)


def same_kind(a: Any, b: Any) -> bool:
    return (
        isinstance(a, torch.Tensor)
        and isinstance(b, torch.Tensor)
        and (a.dtype, a.device, a.layout) == (b.dtype, b.device, b.layout)
        and (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
        and _numbers(a) == _numbers(b)
    )


def _numbers(tensor: torch.Tensor) -> tuple[Any, ...]:
    found = (*tensor.shape, *tensor.stride())
    return tuple(n if isinstance(n, int) else str(n) for n in found)


def _always(node: fx.Node) -> bool:
    return True


def _keeps_pinning(node: fx.Node) -> bool:
    return not node.kwargs.get("pin_memory") and not node.kwargs.get("non_blocking")


_NO_OPS: dict[Target, Callable[[fx.Node], bool]] = {
    aten.view.default: _always,
    aten._unsafe_view.default: _always,
    aten.reshape.default: _always,
    aten.expand.default: _always,
    aten.permute.default: lambda node: list(node.args[1]) == list(range(len(node.args[1]))),  # type: ignore[arg-type]
    aten.slice.Tensor: _always,
    aten._to_copy.default: _keeps_pinning,
    aten.clone.default: _always,
    aten.alias.default: _always,
    aten.detach.default: _always,
    aten.lift_fresh_copy.default: _always,
}
"""Operators that do nothing when the result has the argument's sizes, strides and dtype. The graph has no writes."""


def rename(joint: JointGraph, gone: dict[fx.Node, fx.Node]) -> JointGraph:
    """Let the joint graph refer to the nodes that took the places of others."""
    if not gone:
        return joint

    def now(node: fx.Node) -> fx.Node:
        while node in gone:
            node = gone[node]
        return node

    return joint.moved(now, joint.graph)
