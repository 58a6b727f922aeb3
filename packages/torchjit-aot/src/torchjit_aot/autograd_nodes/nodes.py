"""Results of one graph that get nodes of autograd of their own, because of where the inputs come from.

For autograd a compiled graph is one node, and its engine goes on from it to every input, also where there is no gradient for one.
For a leaf that is harmless. An input that is no leaf has nodes behind it, which eager PyTorch would not get to: a graph that was
freed by another backward, an operator that has no derivative. So where such an input is behind some of the results and not behind
others, and their backwards share no operator, these are results of different nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, final

import attrs
import torch
from torch import fx

from torchjit_aot.autograd_nodes.needs import effects_of_backward
from torchjit_aot.autograd_nodes.undefined_tangents import prune
from torchjit_aot.joint import JointGraph
from torchjit_aot.split import BuiltGraph
from torchjit_aot.symbols import SYMBOLIC_TYPES, expression_of

__all__ = ["Part", "parts_of", "sizes_told", "sizes_used"]


@final
@attrs.frozen(eq=False)
class Part:
    """Some results of a graph, with their backward.

    Attributes:
        joint: the joint graph, seen as if it had these results and no others.
        slots: the results, as positions in the `slots` of the whole.
        saved: what the backward reads, in its order.
        build: makes the backward's graph: the saved values are its first placeholders, the tangents its last.
    """

    joint: JointGraph
    slots: tuple[int, ...]
    saved: tuple[fx.Node, ...]
    build: Callable[[], BuiltGraph]


def parts_of(joint: JointGraph, saved: Sequence[fx.Node], build: Callable[[], BuiltGraph]) -> tuple[Part, ...]:
    """The parts; one with all results, constants among them, where one node does.

    Args:
        joint: the whole.
        saved: what its backward reads.
        build: makes the backward's graph of the whole.
    """
    whole = Part(joint, tuple(range(len(joint.slots))), tuple(saved), build)
    if len(joint.dependence.components) < 2 or _is_one_node(joint, saved):
        return (whole,)
    together = _with_same_inputs_behind(joint)
    if len(together) < 2:
        return (whole,)
    parts = [_part(joint, sorted(tangents), build) for tangents in together]
    alone = tuple(part for part in parts if part is not None)
    return alone if len(alone) == len(parts) else (whole,)


def _is_one_node(joint: JointGraph, saved: Sequence[fx.Node]) -> bool:
    """Must all results be those of one node?"""
    if effects_of_backward(joint):
        return True
    if any(joint.grads[i] is not None or joint.inputs[i] in saved for i in joint.mutated_under_grad):
        return True  # one part would be given what another has written
    gradients = zip(joint.grads, joint.dependence.tangents, strict=True)
    return any(grad is not None and not behind for grad, behind in gradients)  # a gradient that is always there


def _with_same_inputs_behind(joint: JointGraph) -> list[list[int]]:
    """The tangents, those together whose results have the same inputs that are no leaves behind them."""
    behind = joint.dependence.tangents
    far = _with_nodes_behind(joint)
    together: dict[frozenset[int], list[int]] = {}
    for component in joint.dependence.components:
        key = frozenset(i for i in far if not set(behind[i]).isdisjoint(component))
        together.setdefault(key, []).extend(component)
    behind_any = {k for ks in behind for k in ks}
    for key in [key for key, tangents in together.items() if behind_any.isdisjoint(tangents)]:
        # Zeros whatever the tangent (`torch.normal(w, 1.0)`): a node of their own would have no input, and they no history.
        rest = together.pop(key)
        if not together:
            return []
        next(iter(together.values())).extend(rest)
    return list(together.values())


def _with_nodes_behind(joint: JointGraph) -> list[int]:
    """The inputs with a gradient that are no leaves."""
    return [
        i
        for i, (grad, source) in enumerate(zip(joint.grads, joint.sources, strict=True))
        if grad is not None and (source.leaf is not source.value or i in joint.base_inputs)
    ]


def _part(joint: JointGraph, tangents: Sequence[int], build: Callable[[], BuiltGraph]) -> Part | None:
    missing = [k not in tangents for k in range(len(joint.tangents))]

    def build_part() -> tuple[BuiltGraph, bool]:
        pruned = prune(build(), missing, joint.dependence.tangents, joint.fake_mode)
        alone = not any(read and gone for read, gone in zip(pruned.reads, missing, strict=True))
        return _without_unread(pruned.built, len(tangents)), alone

    built, alone = build_part()
    if not alone:
        return None  # it asks for the sizes of a tangent of the others
    slots = tuple(joint.differentiable[k] for k in tangents)
    dependence = joint.dependence.of_part(tangents, slots)
    seen = attrs.evolve(
        joint,
        tangents=tuple(joint.tangents[k] for k in tangents),
        slots=tuple(joint.slots[i] for i in slots),
        differentiable=tuple(range(len(slots))),
        grads=tuple(grad if ks else None for grad, ks in zip(joint.grads, dependence.tangents, strict=True)),
        plan=attrs.evolve(
            joint.plan,
            slots=[joint.plan.slots[i] for i in slots],
            apart={slots.index(i) for i in joint.plan.apart if i in slots},
        ),
        mutated_under_grad={i: slots.index(slot) for i, slot in joint.mutated_under_grad.items() if slot in slots},
        dependence=dependence,
    )
    return Part(seen, slots, built.inputs[: len(built.inputs) - len(tangents)], lambda: build_part()[0])


def _without_unread(built: BuiltGraph, tangents: int) -> BuiltGraph:
    """Take out, in place, the saved values that are not read, but for those that alone tell a size."""
    graph = built.gm.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    saved = placeholders[: len(placeholders) - tangents]
    read = [node for node in placeholders if node.users]
    told = {size for node in read for size in sizes_told(node)}
    gone = set()
    for node in saved:
        if not node.users and sizes_used(node) <= told:
            gone.add(node)
            graph.erase_node(node)
    built.gm.recompile()
    kept = [i for i, node in enumerate(placeholders) if node not in gone]
    static = frozenset(place for place, i in enumerate(kept) if i in built.static)
    return attrs.evolve(built, inputs=tuple(built.inputs[i] for i in kept), static=static)


def sizes_told(node: fx.Node) -> set[str]:
    """The numbers that vary and that a placeholder tells, by name."""
    return {text for text in _expressions(node) if text.isidentifier()}


def sizes_used(node: fx.Node) -> set[str]:
    """Those that its sizes, strides or value are computed from. Names of functions count as well."""
    return {name for text in _expressions(node) for name in re.findall(r"[A-Za-z_]\w*", text)}


def _expressions(node: fx.Node) -> list[str]:
    """The texts of the numbers that vary."""
    value: Any = node.meta["val"]
    numbers = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
    return [str(expression_of(n)) for n in numbers if isinstance(n, SYMBOLIC_TYPES)]
