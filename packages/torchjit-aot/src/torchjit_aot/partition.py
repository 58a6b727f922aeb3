"""Cut the joint graph: what the forward computes, what it saves, and what the backward computes again.

A minimum cut chooses the saved tensors. The network has a vertex pair per value that the backward needs and that does
not depend on tangents; the edge inside a pair carries the bytes of the value. Values that may not be computed again
(matmuls, random numbers, unknown operators) hang on the source; values that the backward reads hang on the sink. What
lies between the cut and the sink is computed again, inside the kernels that read it.

Two allowances widen what may be computed again: a share of the step's modelled time, spent on cheap values that a
matrix product of the backward wants in memory; and a memory budget below 1, for which also costly values go: those that
a knapsack leaves out (what is kept fills the room, and computing the rest again takes the least modelled time), or
those with the least time per byte, whichever is cheaper after the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias, final

import attrs
import torch
from torch import fx

from torchjit_aot.autograd_nodes.needs import Needs, ancestors, backward_values, protect_inputs, reached
from torchjit_aot.costs import bytes_of, is_alias, is_fusible, is_reduction, is_symbolic, owner_of
from torchjit_aot.dinic import FlowNetwork
from torchjit_aot.formulas import Formula, find_formulas
from torchjit_aot.joint import JointGraph
from torchjit_aot.knapsack import best_to_keep
from torchjit_aot.recompute_policy import MATERIALIZED, banned_nodes, parents_of
from torchjit_aot.recurrent import read_by_recurrent_layers
from torchjit_aot.timing import seconds_of, seconds_of_step

__all__ = ["Partition", "Partitioner", "backward_values", "min_cut_partition", "save_what_is_read"]


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


_TRIES = 4
_MANY = 8
_MANY_HALVES = 10
"""Equal values of these numbers or more are computed again all or none, or every second of them: pairs of blocks, then, of which there are five."""
_CHEAPEST = "the cheapest place to cut; what follows is computed again"

Partitioner: TypeAlias = Callable[[JointGraph], Partition]


def min_cut_partition(
    joint: JointGraph,
    *,
    recompute_materialized: bool = False,
    recompute_time: float = 0.0,
    memory_budget: float = 1.0,
    exact: bool = False,
) -> Partition:
    """Save the fewest bytes such that the backward can compute the rest again for next to nothing.

    Args:
        joint: the functional joint graph.
        recompute_materialized: also compute again what a matmul or another opaque operator of the backward reads.
        recompute_time: the share of the step's modelled time that such values may cost.
        memory_budget: from 1 (what is above) to 0 (save only inputs, random numbers and what is tagged so): the share
            of the bytes between these two that may be saved. What goes is what costs the least modelled time.
        exact: what is computed again has the bits that it had in the forward, if operators give the same bits again.

    Raises:
        ValueError: the budget or the time is out of range.
    """
    if not 0.0 <= memory_budget <= 1.0 or recompute_time < 0.0:
        raise ValueError(
            f"memory_budget is from 0 to 1, recompute_time not negative: {memory_budget}, {recompute_time}"
        )
    cutter = _Cutter(joint, materialize=recompute_materialized, exact=exact)
    found = cutter.cut(frozenset())
    if found is None:
        return save_what_is_read(joint)
    if recompute_time > 0.0 and not recompute_materialized:
        found = cutter.spend_time(found, recompute_time * seconds_of_step(joint))
    if memory_budget < 1.0:
        found = cutter.fit(found, memory_budget)
    return found


@final
class _Cutter:
    """Cuts one joint graph under different allowances.

    Args:
        joint: the graph.
        materialize: as `recompute_materialized` above.
        exact: as above.
    """

    def __init__(self, joint: JointGraph, *, materialize: bool, exact: bool = False) -> None:
        self.unsafe = protect_inputs(joint)
        needs = backward_values(joint)
        self.formulas = find_formulas(joint, exact=exact)
        offered = [n for node, f in self.formulas.items() if node in needs.shared for n in f.reads]
        self.needs = Needs(needs.backward, needs.shared | ancestors(offered), needs.read)
        remembered = {
            owner_of(s)
            for i, s in enumerate(joint.slots)
            if i in joint.dependence.read_slots and isinstance(s, fx.Node)
        } & self.needs.shared
        remembered |= {owner_of(node) for node in read_by_recurrent_layers(joint.graph)} & self.needs.shared
        self.kept = {node for node in remembered if not _never_saved(node, self.unsafe)}
        self.order = _in_order(joint, self.needs, self.formulas)
        self.position = {node: i for i, node in enumerate(self.order)}
        self.price = _Prices(joint)
        self.materialize = materialize

    def cut(self, allowed: AbstractSet[fx.Node]) -> Partition | None:
        """The cheapest cut if the values in `allowed` may be computed again too; None if there is none."""
        order, position, needs = self.order, self.position, self.needs
        source, sink = 2 * len(order), 2 * len(order) + 1
        network = FlowNetwork(2 * len(order) + 2)
        kept = self.kept - allowed
        banned = banned_nodes(order, needs, self.formulas, materialize=self.materialize, allowed=allowed, kept=kept)
        infinite = 128 * sum(bytes_of(node.meta["val"]) for node in order) + 128 * len(order) + 128
        for node, i in position.items():
            network.add_edge(2 * i, 2 * i + 1, infinite if _never_saved(node, self.unsafe) else self.price(node))
            if node in banned:
                network.add_edge(source, 2 * i, infinite)
            else:
                for parent in parents_of(node, self.formulas):
                    network.add_edge(2 * position[parent] + 1, 2 * i, infinite)
            if node in needs.read or node in kept:
                network.add_edge(2 * i + 1, sink, infinite)
        if network.max_flow(source, sink) >= infinite:
            return None
        after = network.sink_side(sink)
        saved = tuple(node for node, i in position.items() if after[2 * i + 1] and not after[2 * i])
        return Partition(saved, tuple(banned.get(node, _CHEAPEST) for node in saved), self.formulas)

    def spend_time(self, start: Partition, seconds: float) -> Partition:
        """Compute cheap values again although an operator wants them in memory, the largest gain per second first."""
        offers: dict[tuple[float, float], list[fx.Node]] = {}
        for node, why in zip(start.saved, start.why, strict=True):
            if why.endswith(MATERIALIZED):
                cost = seconds_of(node)
                offers.setdefault((cost / max(1, bytes_of(node.meta["val"])), cost), []).append(node)
        chosen: set[fx.Node] = set()
        for (_, cost), nodes in sorted(offers.items(), key=lambda offer: offer[0]):
            taken = _in_step(nodes, len(nodes) if cost * len(nodes) <= seconds else int(seconds / cost))
            seconds -= cost * len(taken)
            chosen.update(taken)
        better = self.cut(chosen) if chosen else None
        return better if better is not None and self.bytes(better) < self.bytes(start) else start

    def fit(self, start: Partition, budget: float) -> Partition:
        """The partition within the budget that costs the least modelled time: by a knapsack, or by time per byte."""
        ranked = self._by_worth()
        least = self.cut(frozenset(ranked)) or start
        target = self.bytes(least) + budget * max(0, self.bytes(start) - self.bytes(least))
        best = least
        for found in (self._in_order_of_worth(ranked, target), self._packed(start, target)):
            if found is not None and self.seconds(found) <= self.seconds(best):
                best = found
        return best if self.bytes(best) <= self.bytes(start) else start

    def _in_order_of_worth(self, ranked: list[fx.Node], target: float) -> Partition | None:
        """Allow as few values as the target asks for."""
        low, high, best = 0, len(ranked), None
        while low < high:
            middle = (low + high) // 2
            tried = self.cut(frozenset(ranked[:middle]))
            if tried is not None and self.bytes(tried) <= target:
                high, best = middle, tried
            else:
                low = middle + 1
        return best

    def _packed(self, start: Partition, target: float) -> Partition | None:
        """Keep what fills the target and takes the longest to compute again; None if the cut then needs more for that."""
        items = [node for node in start.saved if node.op == "call_function" and not is_symbolic(node)]
        chains = [self._chain([node], {*start.saved} - {node}) for node in items]
        sizes = [bytes_of(node.meta["val"]) for node in items]
        worths = [sum(map(seconds_of, chain)) for chain in chains]
        room = int(target)
        for _ in range(_TRIES):
            kept = set(best_to_keep(sizes, worths, room))
            allowed = {n for i, chain in enumerate(chains) if i not in kept for n in chain}
            tried = self.cut(allowed)
            excess = self.bytes(tried) - target if tried is not None else 0
            if tried is None or excess <= 0:
                return tried
            room -= int(excess) + 1  # for what the cut saves so that the rest can be computed again
            if room < 0:
                return None
        return None

    def _chain(self, wanted: Sequence[fx.Node], stop: AbstractSet[fx.Node]) -> set[fx.Node]:
        """What has to run to compute these values from those in `stop`."""

        def sources(node: fx.Node) -> list[fx.Node]:
            parents = parents_of(node, self.formulas)
            return [n for n in parents if n not in stop and n.op == "call_function"]

        return reached((n for n in wanted if n not in stop and n.op == "call_function"), sources)

    def seconds(self, partition: Partition) -> float:
        """Modelled time of what the backward computes again."""
        saved = set(partition.saved)
        return sum(map(seconds_of, self._chain([node for node in self.needs.read if node not in saved], saved)))

    def bytes(self, partition: Partition) -> int:
        """Bytes that are saved besides the inputs."""
        return sum(bytes_of(node.meta["val"]) for node in partition.saved if node.op != "placeholder")

    def _by_worth(self) -> list[fx.Node]:
        """The values that could be computed again, the cheapest per byte first. Parts of one operator go together."""
        offers = []
        for node in self.order:
            if node.op == "call_function" and not is_symbolic(node) and not is_alias(node):
                size = bytes_of(node.meta["val"]) if not isinstance(node.meta["val"], (tuple, list)) else 1
                offers.append((seconds_of(node) / max(1, size), node))
        return [node for _, node in sorted(offers, key=lambda offer: offer[0])]


def _in_step(nodes: Sequence[fx.Node], room: int) -> Sequence[fx.Node]:
    """At most so many of these equal values, which are in graph order.

    Of many, as a model of equal blocks has, all, every second or none: then the blocks stay equal, and a few are compiled for all.
    """
    if room >= len(nodes) or len(nodes) < _MANY:
        return nodes[:room]
    halves = nodes[::2]
    return halves if len(halves) <= room and len(nodes) >= _MANY_HALVES else ()


def _in_order(joint: JointGraph, needs: Needs, formulas: Mapping[fx.Node, Formula]) -> list[fx.Node]:
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
    """What saving a value costs, in units of 1/64 byte: a 64th more for what the forward would not write to memory otherwise.

    So the scores of a loss are saved with a maximum and a sum for each row rather than their log-softmax, which has as many bytes less
    these few. Memory that the caller holds in any case costs next to nothing (parameters) or a quarter (inputs, results).
    """

    def __init__(self, joint: JointGraph) -> None:
        nodes = [slot for slot in joint.slots if isinstance(slot, fx.Node)]
        self._returned = {owner_of(node) for node in nodes}

    def __call__(self, node: fx.Node) -> int:
        if node.op == "placeholder":
            return 1 if node.meta.get("static") else 16 * bytes_of(node.meta["val"])
        if is_symbolic(node):
            return 2
        unit = 16 if owner_of(node) in self._returned else 64
        size = bytes_of(node.meta["val"])
        if _finishes_a_reduction(node):
            return unit * size + 8
        return unit * size + (size + 32 if is_fusible(node) else 16)


def _finishes_a_reduction(node: fx.Node) -> bool:
    """Is it the costly function of a row's sum, which the backward would compute again at each element of the row?"""
    return node.target is torch.ops.aten.log.default and is_reduction(node.all_input_nodes[0])


def save_what_is_read(joint: JointGraph) -> Partition:
    """The plain partition: save every value that the backward reads and compute nothing again, as eager PyTorch does."""
    protect_inputs(joint)
    needs = backward_values(joint)
    saved = tuple(node for node in joint.graph.nodes if node in needs.read)
    return Partition(saved, ("the backward reads it",) * len(saved))
