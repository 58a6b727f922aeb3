"""Cut the joint graph: what the forward computes, what it saves, and what the backward computes again.

A minimum cut chooses the saved tensors. The network has a vertex pair per value that the backward needs and that does
not depend on tangents; the edge inside a pair carries the bytes of the value. Values that may not be computed again
(matmuls, reductions, random numbers, unknown operators) hang on the source; values that the backward reads hang on the
sink. What lies between the cut and the sink is computed again, inside the kernels that read it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, final

import attrs
import torch
from torch import fx

from torchjit_aot.costs import bytes_of, is_alias, is_fusible, is_symbolic
from torchjit_aot.dinic import FlowNetwork
from torchjit_aot.formulas import Formula, find_formulas
from torchjit_aot.joint import JointGraph
from torchjit_aot.schemas import is_random

__all__ = ["Partition", "Partitioner", "backward_values", "min_cut_partition", "save_what_is_read"]

aten = torch.ops.aten
_MOST_READS = 4
"""A value whose recomputation reads more tensors of its size than this is saved: chains of residual sums end there."""


@final
@attrs.frozen(eq=False)
class Partition:
    """What to save.

    Attributes:
        saved: the values, in graph order; placeholders are saved as the tensors that the caller passed.
        why: one line for each.
        formulas: how the backward gets some of the values that are not saved.
    """

    saved: tuple[fx.Node, ...]
    why: tuple[str, ...]
    formulas: Mapping[fx.Node, Formula] = attrs.field(factory=dict, repr=False)


Partitioner: TypeAlias = Callable[[JointGraph], Partition]


def _ancestors(nodes: Sequence[fx.Node], stop: set[fx.Node] | None = None) -> set[fx.Node]:
    found: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            if stop is None or node not in stop:
                stack.extend(node.all_input_nodes)
    return found


def _descendants(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    found = set(nodes)
    stack = list(nodes)
    while stack:
        for user in stack.pop().users:
            if user not in found:
                found.add(user)
                stack.append(user)
    return found


@final
@attrs.frozen(eq=False)
class _Needs:
    """The backward's side of the joint graph.

    Attributes:
        backward: nodes that depend on tangents and that a gradient needs.
        shared: nodes that do not depend on tangents, and that the backward needs directly or for recomputation.
        read: the part of `shared` that `backward` nodes (or the gradients themselves) read.
    """

    backward: set[fx.Node]
    shared: set[fx.Node]
    read: set[fx.Node]


def _asked_for(joint: JointGraph) -> list[fx.Node]:
    """Expensive operators that the backward itself called without tangents, as a checkpointed region does: they stay."""
    return [
        node
        for node in joint.graph.nodes
        if node.meta.get("backward") and node.op == "call_function" and not _repeats(node)
    ]


def _repeats(node: fx.Node) -> bool:
    return is_fusible(node) or node.target is operator.getitem


def backward_values(joint: JointGraph) -> _Needs:
    """Split what the gradients need by whether it depends on tangents."""
    grads = [grad for grad in joint.grads if grad is not None]
    needed = _ancestors(grads)
    dependent = _descendants(joint.tangents + _asked_for(joint))
    backward = needed & dependent
    shared = needed - dependent
    read = {node for node in shared if any(user in backward for user in node.users)}
    return _Needs(backward, shared, read | (set(grads) & shared))


def protect_mutated_inputs(joint: JointGraph) -> set[fx.Node]:
    """The inputs that are written to, with their views: they have other values when the backward runs.

    Where the backward reads one of them directly, a clone takes its place.
    """
    mutated = [joint.inputs[i] for i in joint.mutated]
    unsafe = set(mutated)
    for node in joint.graph.nodes:
        if is_alias(node) and any(source in unsafe for source in node.all_input_nodes):
            unsafe.add(node)
    if not unsafe:
        return unsafe
    needs = backward_values(joint)
    for node in mutated:
        if not any(view in needs.read for view in unsafe & _descendants([node])):
            continue
        with joint.graph.inserting_after(node):
            clone = joint.graph.call_function(aten.clone.default, (node,))
        clone.meta = {key: value for key, value in node.meta.items() if key != "static"}
        for user in list(node.users):
            if user is not clone:
                user.replace_input_with(node, clone)
        unsafe -= _descendants([node]) - {node}
    return unsafe


def min_cut_partition(joint: JointGraph, *, recompute_materialized: bool = False) -> Partition:
    """Save the fewest bytes such that the backward can compute the rest again for next to nothing.

    Args:
        joint: the functional joint graph.
        recompute_materialized: also compute again what a matmul or another opaque operator of the backward reads.
    """
    unsafe = protect_mutated_inputs(joint)
    needs = backward_values(joint)
    formulas = find_formulas(joint)
    offered = {n for node, f in formulas.items() if node in needs.shared for n in f.reads}
    needs = _Needs(needs.backward, needs.shared | _ancestors(list(offered)), needs.read)
    order = _in_order(joint, needs, formulas)
    position = {node: i for i, node in enumerate(order)}
    source, sink = 2 * len(order), 2 * len(order) + 1
    network = FlowNetwork(2 * len(order) + 2)
    banned = _banned(order, needs, formulas, recompute_materialized)
    infinite = 64 * sum(bytes_of(node.meta["val"]) for node in order) + 64 * len(order) + 64
    price = _Prices(joint)
    for node, i in position.items():
        network.add_edge(2 * i, 2 * i + 1, infinite if _never_saved(node, unsafe) else price(node))
        if node in banned:
            network.add_edge(source, 2 * i, infinite)
        else:
            for parent in _parents(node, formulas):
                network.add_edge(2 * position[parent] + 1, 2 * i, infinite)
        if node in needs.read:
            network.add_edge(2 * i + 1, sink, infinite)
    if network.max_flow(source, sink) >= infinite:
        return save_what_is_read(joint)
    after = network.sink_side(sink)
    saved = tuple(node for node, i in position.items() if after[2 * i + 1] and not after[2 * i])
    return Partition(saved, tuple(_why(node, banned) for node in saved), formulas)


def _parents(node: fx.Node, formulas: Mapping[fx.Node, Formula]) -> Sequence[fx.Node]:
    """What the node is computed from when the backward computes it."""
    formula = formulas.get(node)
    return node.all_input_nodes if formula is None else formula.reads


def _in_order(joint: JointGraph, needs: _Needs, formulas: Mapping[fx.Node, Formula]) -> list[fx.Node]:
    """The shared nodes, each after what it is computed from."""
    at = {node: i for i, node in enumerate(joint.graph.nodes)}

    def key(node: fx.Node) -> tuple[int, int]:
        formula = formulas.get(node)
        return (at[node], 0) if formula is None else (max(at[node], *(at[n] for n in formula.reads)), 1)

    return sorted(needs.shared, key=key)


def _never_saved(node: fx.Node, unsafe: set[fx.Node]) -> bool:
    """Views are made again from what they look at; a tuple is saved by its items."""
    return node in unsafe or is_alias(node) or isinstance(node.meta["val"], (tuple, list))


@final
class _Prices:
    """What saving a value costs, in units of 1/16 byte, and a little more for what the forward would not write to memory.

    Memory that the caller holds in any case costs next to nothing (parameters) or a quarter (inputs, results).
    """

    def __init__(self, joint: JointGraph) -> None:
        nodes = [slot for slot in joint.slots if isinstance(slot, fx.Node)]
        self._returned = {_owner(node) for node in nodes}

    def __call__(self, node: fx.Node) -> int:
        if node.op == "placeholder":
            return 1 if node.meta.get("static") else 4 * bytes_of(node.meta["val"])
        if is_symbolic(node):
            return 2
        unit = 4 if _owner(node) in self._returned else 16
        return unit * bytes_of(node.meta["val"]) + (8 if is_fusible(node) else 4)


def _owner(node: fx.Node) -> fx.Node:
    """The node whose memory this one looks at."""
    while is_alias(node):
        first = node.args[0]
        assert isinstance(first, fx.Node)
        node = first
    return node


def _banned(
    order: Sequence[fx.Node], needs: _Needs, formulas: Mapping[fx.Node, Formula], recompute_materialized: bool
) -> dict[fx.Node, str]:
    """The values that are not computed again, with the reason. Walks in graph order."""
    banned: dict[fx.Node, str] = {}
    reads: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in order:
        why = _reason_not_to_repeat(node, needs, node in formulas, recompute_materialized)
        if why is None:
            size = bytes_of(node.meta["val"])
            cone = frozenset().union(*(reads[parent] for parent in _parents(node, formulas)))
            large = frozenset(leaf for leaf in cone if 2 * bytes_of(leaf.meta["val"]) >= size)
            if len(large) <= _MOST_READS or is_alias(node) or is_symbolic(node):
                reads[node] = large
                continue
            why = "recomputing it would read many tensors"
        banned[node] = why
        reads[node] = frozenset([node]) if not isinstance(node.meta["val"], (tuple, list)) else frozenset()
    return banned


def _reason_not_to_repeat(node: fx.Node, needs: _Needs, has_formula: bool, recompute_materialized: bool) -> str | None:
    if node.op == "placeholder":
        return "an input"
    if is_random(node.target):
        return "random numbers are drawn once"
    if not is_fusible(node) and not has_formula:
        whole = node.args[0] if node.args else None
        if node.op == "call_function" and isinstance(whole, fx.Node) and isinstance(whole.meta["val"], (tuple, list)):
            return f"a result of {_name(whole)}"
        return f"{_name(node)} is not computed twice"
    if not node.all_input_nodes:
        return None  # made of nothing: never worth saving
    if not recompute_materialized and not is_alias(node) and not is_symbolic(node):
        for user in _through_views(node):
            if user in needs.backward and not is_fusible(user) and bytes_of(node.meta["val"]) > 8:
                return f"{_name(user)} of the backward reads it from memory"
    return None


def _through_views(node: fx.Node) -> list[fx.Node]:
    found: list[fx.Node] = []
    stack = list(node.users)
    while stack:
        user = stack.pop()
        if is_alias(user):
            stack.extend(user.users)
        else:
            found.append(user)
    return found


def _name(node: fx.Node) -> str:
    return getattr(node.target, "__name__", str(node.target))


def _why(node: fx.Node, banned: dict[fx.Node, str]) -> str:
    return banned.get(node, "the cheapest place to cut; what follows is computed again")


def save_what_is_read(joint: JointGraph) -> Partition:
    """The plain partition: save every value that the backward reads and compute nothing again, as eager PyTorch does."""
    protect_mutated_inputs(joint)
    needs = backward_values(joint)
    saved: dict[fx.Node, None] = {}
    for node in joint.graph.nodes:
        if node in needs.read:
            saved[node] = None
    return Partition(tuple(saved), tuple("the backward reads it" for _ in saved))
