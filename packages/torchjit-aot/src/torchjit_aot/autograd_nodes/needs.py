"""The backward's side of a joint graph: what it needs of the forward."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, final

import attrs
import torch
from torch import fx

from torchjit_aot.costs import is_alias, is_fusible
from torchjit_torch.node_meta import BACKWARD
from torchjit_torch.operators import has_effect

if TYPE_CHECKING:  # a process that loads stored entries traces nothing
    from torchjit_aot.joint import JointGraph

__all__ = ["Needs", "ancestors", "backward_values", "effects_of_backward", "protect_inputs", "reached"]

aten = torch.ops.aten


def reached(nodes: Iterable[fx.Node], following: Callable[[fx.Node], Iterable[fx.Node]]) -> set[fx.Node]:
    """The nodes, and what follows from them one by one."""
    found: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(following(node))
    return found


def ancestors(nodes: Iterable[fx.Node], stop: AbstractSet[fx.Node] = frozenset()) -> set[fx.Node]:
    """The nodes, and what they are computed from; not what those in `stop` are."""
    return reached(nodes, lambda node: () if node in stop else node.all_input_nodes)


def _descendants(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    return reached(nodes, lambda node: node.users)


@final
@attrs.frozen(eq=False)
class Needs:
    """The backward's side of the joint graph.

    Attributes:
        backward: nodes that depend on tangents and that a gradient or an effect of the backward needs.
        shared: nodes that do not depend on tangents, and that the backward needs directly or for recomputation.
        read: the part of `shared` that `backward` nodes (or the gradients themselves) read.
    """

    backward: set[fx.Node]
    shared: set[fx.Node]
    read: set[fx.Node]


def _asked_for(joint: JointGraph) -> list[fx.Node]:
    """Expensive operators that the backward itself called without tangents, as a checkpointed region does: they stay."""
    return [
        node for node in joint.graph.nodes if BACKWARD.of(node) and node.op == "call_function" and not _repeats(node)
    ]


def effects_of_backward(joint: JointGraph) -> list[fx.Node]:
    """What the backward does besides computing gradients: custom operators."""
    return [node for node in joint.graph.nodes if BACKWARD.of(node) and has_effect(node.target)]


def _repeats(node: fx.Node) -> bool:
    return is_fusible(node) or node.target is operator.getitem


def backward_values(joint: JointGraph) -> Needs:
    """Split what the gradients need by whether it depends on tangents."""
    grads = [grad for grad in joint.grads if grad is not None]
    needed = ancestors([*grads, *effects_of_backward(joint)])
    dependent = _descendants([*joint.tangents, *_asked_for(joint)])
    backward = needed & dependent
    shared = needed - dependent
    read = {node for node in shared if any(user in backward for user in node.users)}
    return Needs(backward, shared, read | (set(grads) & shared))


def _is_inference(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_inference()


def protect_inputs(joint: JointGraph) -> set[fx.Node]:
    """The inputs that cannot be saved, with their views: those that are written to or reshaped, which are others when the

    backward runs, and inference tensors, which autograd does not save. Where the backward reads one of them directly, a
    clone takes its place.
    """
    changed = {*joint.mutated, *(i for i, _, _ in joint.reshaped)}
    changing = [node for i, node in enumerate(joint.inputs) if i in changed or _is_inference(joint.sources[i].real)]
    views = {node: reached([node], lambda source: filter(is_alias, source.users)) for node in changing}
    unsafe: set[fx.Node] = set().union(*views.values())
    needs = backward_values(joint) if unsafe else None
    for node in changing:
        if needs is not None and not views[node].isdisjoint(needs.read):
            _read_a_clone(joint.graph, node)
            unsafe -= views[node] - {node}
    return unsafe


def _read_a_clone(graph: fx.Graph, node: fx.Node) -> None:
    with graph.inserting_after(node):
        clone = graph.call_function(aten.clone.default, (node,))
    clone.meta = {key: value for key, value in node.meta.items() if key != "static"}
    for user in list(node.users):
        if user is not clone:
            user.replace_input_with(node, clone)
