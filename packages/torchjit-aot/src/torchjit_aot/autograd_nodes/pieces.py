"""Cuts a backward graph into pieces, so that the gradients of some inputs are there before the rest is computed; see docs/design/0036."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any, TypeAlias, final

import attrs
import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from torchjit_aot.autograd_nodes.needs import effects_of_backward
from torchjit_aot.autograd_nodes.nodes import sizes_told, sizes_used
from torchjit_aot.costs import bytes_of, is_alias, is_symbolic, owner_of
from torchjit_aot.graph_writer import GraphWriter
from torchjit_aot.joint import JointGraph
from torchjit_aot.split import BuiltGraph

__all__ = ["Groups", "PieceGraph", "cut_in_pieces", "groups_of"]

aten = torch.ops.aten

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""Positions of a joint graph's inputs: those together whose gradients go to autograd together, in order."""

_MOST = 16
"""Pieces of one backward: with these all but a sixteenth of what the hooks start can be hidden."""


def groups_of(joint: JointGraph, built: BuiltGraph, limits: Sequence[int]) -> Groups | None:
    """Which gradients go together: in the order in which they are computed, as many as a limit has bytes.

    Args:
        joint: what was traced.
        built: its backward.
        limits: bytes of the first groups; the last one is that of all others.

    Returns:
        None: one group has them all, or the backward does what its order matters for.
    """
    if (
        joint.mutated_under_grad
        or joint.bases
        or effects_of_backward(joint)
        or built.gm.graph.find_nodes(op="get_attr")
    ):
        return None
    ready = _Backward(joint, built).ready
    asked = sorted((i for i, grad in enumerate(joint.grads) if grad is not None), key=ready.__getitem__)
    sizes = {i: bytes_of(joint.inputs[i].meta["val"]) for i in asked if joint.sources[i].leaf is joint.sources[i].value}
    least = sum(sizes.values()) // _MOST
    groups: list[list[int]] = [[]]
    filled = 0
    for i in asked:
        limit = limits[min(len(groups), len(limits)) - 1]
        if filled >= max(limit, least) and ready[i] > ready[groups[-1][-1]]:
            groups.append([])
            filled = 0
        groups[-1].append(i)
        filled += sizes.get(i, 0)
    return tuple(map(tuple, groups)) if len(groups) > 1 else None


@final
class _Backward:
    """A backward graph, with where gradients are there and may be handed out.

    Attributes:
        calls: in order.
        placeholders: of the graph.
        gradients: for each input of the joint graph the node, or None.
        ready: for each of these the position of the last call that it needs or that reads the input itself: a hook may change that (an
            optimizer's step as part of the backward).
    """

    def __init__(self, joint: JointGraph, built: BuiltGraph) -> None:
        graph = built.gm.graph
        self.built = built
        self.calls: list[fx.Node] = [node for node in graph.nodes if node.op == "call_function"]
        self.placeholders: list[fx.Node] = [node for node in graph.nodes if node.op == "placeholder"]
        outputs: Any = graph.output_node().args[0]
        self.gradients: tuple[fx.Node | None, ...] = tuple(outputs)
        self._at = {node: k for k, node in enumerate(self.calls)}
        own = dict(zip(built.inputs, self.placeholders, strict=True))
        self.ready = [
            -1 if gradient is None else max(self._at.get(gradient, -1), self._last_reader(own.get(node)))
            for node, gradient in zip(joint.inputs, self.gradients, strict=True)
        ]

    def _last_reader(self, placeholder: fx.Node | None) -> int:
        """Also through views, which look at the input's memory."""
        last, waiting = -1, [] if placeholder is None else [placeholder]
        while waiting:
            for user in waiting.pop().users:
                last = max(last, self._at.get(user, -1))
                if is_alias(user):
                    waiting.append(user)
        return last

    def homes(self, groups: Groups) -> dict[fx.Node, int]:
        """The piece that computes each call."""
        ends = list(itertools.accumulate((max(self.ready[i] for i in group) for group in groups), max))
        ends[-1] = len(self.calls)
        homes: dict[fx.Node, int] = {}
        piece = 0
        for k, node in enumerate(self.calls):
            while k > ends[piece]:
                piece += 1
            whole = node.args[0] if node.target is operator.getitem and not is_alias(node) else None
            homes[node] = (
                homes[whole] if isinstance(whole, fx.Node) and whole in homes else piece
            )  # items of a tuple are where it is
        return homes


@final
@attrs.define(eq=False)
class PieceGraph:
    """A piece that is not compiled yet. Values are counted as in `delivery.Piece`.

    Attributes:
        built: the graph; None if there is nothing to compute.
        reads, gives, gradients: as there.
    """

    built: BuiltGraph | None
    reads: tuple[int, ...]
    gives: int
    gradients: tuple[int | None, ...]


def cut_in_pieces(joint: JointGraph, built: BuiltGraph, groups: Groups) -> tuple[list[PieceGraph], int]:
    """The pieces of a backward, one for each group, and how many values there are.

    Args:
        joint: what it is of.
        built: the graph, with all passes done; it is not changed.
        groups: every input that has a gradient is in one.
    """
    return _Cutter(joint, built, groups).cut()


def _copied(inputs: Sequence[fx.Node], calls: Sequence[fx.Node]) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """A graph of these inputs and calls, and what stands in it for each of them."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in inputs:
        copies[node] = made = graph.placeholder(node.name)
        made.meta = dict(node.meta) if node.op == "placeholder" else {"val": node.meta["val"]}
    for node in calls:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    return graph, copies


@final
class _Cutter:
    def __init__(self, joint: JointGraph, built: BuiltGraph, groups: Groups) -> None:
        self._joint, self._built, self._groups = joint, built, groups
        self._whole = _Backward(joint, built)
        self._home = self._whole.homes(groups)
        self._parts = [self._part(k) for k in range(len(groups))]
        self._values = {node: i for i, node in enumerate(self._whole.placeholders)}
        self._count = len(self._values)

    def cut(self) -> tuple[list[PieceGraph], int]:
        with self._joint.fake_mode, torch.no_grad():
            return [self._piece(k) for k in range(len(self._groups))], self._count

    def _part(self, k: int) -> tuple[list[fx.Node], dict[fx.Node, None]]:
        """The calls that piece `k` does, in order: its own, and views and numbers that earlier pieces have, too; and what else it reads."""
        taken = {node for node in self._whole.calls if self._home[node] == k}
        gradients = [node for i in self._groups[k] if (node := self._whole.gradients[i]) is not None]
        reads: dict[fx.Node, None] = {}
        waiting = [
            *(source for node in self._whole.calls if node in taken for source in node.all_input_nodes),
            *gradients,
        ]
        while waiting:
            node = waiting.pop()
            if node in taken or node in reads:
                continue
            if node.op == "call_function" and (is_alias(node) or is_symbolic(node)):
                taken.add(node)
                waiting += node.all_input_nodes
            else:
                reads[node] = None
        return [node for node in self._whole.calls if node in taken], reads

    def _piece(self, k: int) -> PieceGraph:
        calls, reads = self._parts[k]
        wanted = self._wanted_later(k)
        gradients = [self._whole.gradients[i] for i in self._groups[k]]
        if not calls:
            return PieceGraph(None, (), self._count, tuple(None if g is None else self._values[g] for g in gradients))
        ordered = [*sorted(reads, key=self._values.__getitem__), *self._tellers(calls, reads)]
        graph, copies = _copied(ordered, calls)
        own = [node for node in calls if node in wanted and self._home[node] == k and not is_symbolic(node)]
        gives = self._count
        for place, node in enumerate(own):
            self._values[node] = gives + place
        outputs = [copies[node] for node in own]
        numbers: list[int | None] = []
        for gradient in gradients:
            number = None if gradient is None else self._values.get(gradient)
            if gradient is not None and number is None:
                number = gives + len(outputs)
                outputs.append(self._apart(graph, copies[gradient], gradient, wanted))
            numbers.append(number)
        self._count += len(outputs)
        graph.output(tuple(outputs))
        return PieceGraph(self._finish(graph, ordered), tuple(self._values[n] for n in ordered), gives, tuple(numbers))

    def _wanted_later(self, k: int) -> set[fx.Node]:
        """What pieces behind `k` read or hand out, of what they do not compute."""
        return {node for _, reads in self._parts[k + 1 :] for node in reads}

    def _apart(self, graph: fx.Graph, made: fx.Node, gradient: fx.Node, wanted: set[fx.Node]) -> fx.Node:
        """A gradient that is no view of what later pieces read: autograd keeps it, and it may be written to."""
        if owner_of(gradient) not in {owner_of(node) for node in wanted}:
            return made
        return GraphWriter(graph, gradient).call(aten.clone.default, (made,))

    def _tellers(self, calls: Sequence[fx.Node], reads: dict[fx.Node, None]) -> list[fx.Node]:
        """Inputs of the backward that alone tell a size that varies."""
        missing = {size for node in (*calls, *reads) for size in sizes_used(node)}
        missing -= {size for node in reads for size in sizes_told(node)}
        found = []
        for node in self._whole.placeholders:
            if node not in reads and not missing.isdisjoint(sizes_told(node)):
                missing -= sizes_told(node)
                found.append(node)
        return found

    def _finish(self, graph: fx.Graph, inputs: Sequence[fx.Node]) -> BuiltGraph:
        gm = _LazyGraphModule({}, graph, class_name="backward_piece")
        gm.meta = dict(self._built.gm.meta)
        static = {self._whole.placeholders[i] for i in self._built.static}
        return BuiltGraph(gm, tuple(inputs), frozenset(i for i, node in enumerate(inputs) if node in static))
