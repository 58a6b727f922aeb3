"""Equal blocks of a graph: the graph with a few of them, and which nodes it stands for.

A model of 48 equal blocks is traced, lowered and scheduled with three or four, and what became of one of these is repeated. What is equal is
found in the graph itself, whoever captured it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_torch.equal_spans import Item, Run, find_run

__all__ = ["Blocks", "Reduced", "described", "find_blocks", "label_of"]

_NOT_COMPARED = frozenset({
    "val", "stack_trace", "location", "module_path", "nn_module_stack", "seq_nr", "ac_graph_id", "original_aten", "from_node", "source_fn_stack", "torchjit_block",
})  # fmt: skip
"""Keys of `meta` that say where a node comes from; `val` is compared by what it is like, the number of a checkpoint by whether there is one."""


@final
@attrs.frozen(eq=False)
class Reduced:
    """A graph with some of its equal blocks.

    Attributes:
        gm: the smaller graph. Its nodes have the names that they have in the whole one.
        run: the blocks of the whole one; leaves are placeholders and attributes.
        nodes: the calls of the whole graph, in order: the items of the run.
        leaves: the placeholders of the whole graph, in order.
        kept: positions among `leaves` of the smaller graph's placeholders.
        outputs: per output of the whole graph.
        skipped: how many blocks the smaller graph lacks.
        copies: from the nodes of the whole graph to those of the smaller one.
    """

    gm: torch.fx.GraphModule
    run: Run
    nodes: tuple[torch.fx.Node, ...]
    leaves: tuple[torch.fx.Node, ...]
    kept: tuple[int, ...]
    outputs: tuple[Any, ...]
    skipped: int
    copies: dict[torch.fx.Node, torch.fx.Node]


@final
@attrs.frozen(eq=False)
class Blocks:
    """A graph and its equal blocks; attributes as in `Reduced`."""

    gm: torch.fx.GraphModule
    run: Run
    nodes: tuple[torch.fx.Node, ...]
    leaves: tuple[torch.fx.Node, ...]

    def reduced(self, kept: int, *, all_outputs: bool = False) -> Reduced | None:
        """The graph with so many of its blocks; None where something else than a result needs others.

        Args:
            all_outputs: it has all the results of the whole graph: no other block has any.
        """
        return None if self.run.count < kept + 2 else _Reducing(self, kept).reduced(all_outputs)


def find_blocks(
    gm: torch.fx.GraphModule,
    fewest: int,
    leaf_label: Callable[[torch.fx.Node], Hashable] | None = None,
    *,
    values: bool = True,
) -> Blocks | None:
    """The equal blocks of a graph; None where it has no run of so many.

    Args:
        gm: a graph of functions and methods, with `meta["val"]`. It is left as it is.
        fewest: blocks.
        leaf_label: what inputs of two blocks must have in common; by default what their values are like.
        values: the values of calls are known, and must be alike.
    """
    leaves = tuple(n for n in gm.graph.nodes if n.op == "placeholder")
    nodes = tuple(n for n in gm.graph.nodes if n.op in ("call_function", "call_method"))
    if len(nodes) < fewest or len(nodes) + len(leaves) + 1 < len(gm.graph.nodes):
        return None  # attributes are constants of the program's own
    place = {node: k for k, node in enumerate(nodes)}
    results = Counter(n for n in gm.graph.output_node().all_input_nodes)
    items = [_item(node, place, results[node], values) for node in nodes]
    run = find_run(items, fewest, {leaf: (leaf_label or _leaf_label)(leaf) for leaf in leaves})
    return None if run is None else Blocks(gm, run, nodes, leaves)


# ---------------------------------------------------------------------- nodes as items
def _item(node: torch.fx.Node, place: dict[torch.fx.Node, int], results: int, values: bool) -> Item:
    """A call as an item.

    Args:
        place: the position of each call.
        results: is it a result of the graph?
        values: as in `find_blocks`.
    """
    references: list[Hashable] = []
    label = (_label(node, lambda n: references.append(place.get(n, n)), values), results)
    return Item(label, tuple(references))


def label_of(node: torch.fx.Node) -> Hashable:
    """All of a node but where it comes from and which its operands are."""
    return _label(node, lambda n: None, True)


def _label(node: torch.fx.Node, see: Callable[[torch.fx.Node], None], values: bool) -> Hashable:
    def shape(value: Any) -> Hashable:
        if isinstance(value, torch.fx.Node):
            see(value)
            return _NODE
        if isinstance(value, (tuple, list)):
            return (type(value), *map(shape, value))
        if isinstance(value, dict):
            return (dict, *((key, shape(v)) for key, v in value.items()))
        if isinstance(value, slice):
            return (slice, shape(value.start), shape(value.stop), shape(value.step))
        if isinstance(value, float):
            return (float, repr(value))  # tells -0.0 from 0.0, and finds that NaN is NaN
        return (type(value), value) if isinstance(value, Hashable) else object()

    target = None if node.op == "placeholder" else node.target
    like = described(node.meta.get("val")) if values else None
    return (node.op, target, shape(node.args), shape(node.kwargs), like, _marks(node))


_NODE = object()


def _marks(node: torch.fx.Node) -> Hashable:
    """What else is written on a node that may decide how it is compiled."""
    if "ac_policy" in node.meta:
        return object()  # a function of the program's own, which may decide by what is not here
    marks = {key: value for key, value in node.meta.items() if key not in _NOT_COMPARED}
    inside = "ac_graph_id" in node.meta
    return (inside, *sorted((k, repr(v)) for k, v in marks.items())) if marks or inside else ()


def described(value: Any) -> Hashable:
    """What a traced value is like: equal for two that are compiled alike."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            return object()
        sizes, strides = _numbers(value.shape), _numbers(value.stride())
        return (
            sizes,
            strides,
            value.dtype,
            value.device,
            value.is_conj(),
            value.is_neg(),
            _number(value.storage_offset()),
        )
    if isinstance(value, (tuple, list)):
        return tuple(map(described, value))
    return _number(value)


def _numbers(values: Sequence[Any]) -> Hashable:
    return tuple(v if type(v) is int else _number(v) for v in values)


def _number(value: Any) -> Hashable:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return (type(value), str(value))
    return (type(value), value) if value is None or isinstance(value, (bool, int, float, str)) else object()


def _leaf_label(node: torch.fx.Node) -> Hashable:
    value = node.meta.get("val")
    # A number that is an input is the same for all blocks or none of this.
    return (described(value), _marks(node)) if isinstance(value, torch.Tensor) else object()


# ---------------------------------------------------------------------- the smaller graph
@final
class _Reducing:
    """Writes the smaller graph: the first blocks, then what follows the last one as if it followed the last that is kept."""

    def __init__(self, blocks: Blocks, kept: int) -> None:
        self.gm, self.nodes, self.leaves, self.run = blocks.gm, blocks.nodes, blocks.leaves, blocks.run
        self.place = {node: k for k, node in enumerate(self.nodes)}
        self.skipped = self.run.count - kept
        self.first_skipped = self.run.start + kept * self.run.period
        self.copies: dict[torch.fx.Node, torch.fx.Node] = {}
        self.graph = torch.fx.Graph()

    def reduced(self, all_outputs: bool) -> Reduced | None:
        """The smaller graph; None if something else than a result refers to a block that it lacks."""
        kept = tuple(k for k, leaf in enumerate(self.leaves) if not self._is_skipped_leaf(leaf))
        for k in kept:
            self.copies[self.leaves[k]] = self.graph.node_copy(self.leaves[k])
        try:
            for position, node in enumerate(self.nodes):
                if position < self.first_skipped:
                    self._copy(node, lambda n: self.copies[n])
                elif position >= self.run.end:
                    self._copy(node, self._behind)
        except KeyError:
            return None
        result = self.gm.graph.output_node().args[0]
        outputs: tuple[Any, ...] = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        try:
            made = torch.fx.node.map_arg(result, self._behind) if all_outputs else self._outputs(outputs)
        except KeyError:
            return None
        if made is None:
            return None
        self.graph.output(made)
        gm = torch.fx.GraphModule({}, self.graph)
        gm.meta = dict(self.gm.meta)
        return Reduced(gm, self.run, self.nodes, self.leaves, kept, outputs, self.skipped, self.copies)

    def _is_skipped_leaf(self, leaf: torch.fx.Node) -> bool:
        chain, place = self.run.chains.places.get(leaf, (0, -1))
        return place >= 0 and place >= len(self.run.chains.members[chain]) - self.skipped

    def _copy(self, node: torch.fx.Node, now: Any) -> None:
        self.copies[node] = self.graph.node_copy(node, now)

    def _behind(self, node: torch.fx.Node) -> torch.fx.Node:
        """What stands for an operand of a node behind the run.

        Raises:
            KeyError: nothing.
        """
        if node not in self.place:
            return self.copies[earlier_leaf(self.run, node, self.skipped)]
        position = self.place[node]
        if self.run.start <= position < self.run.end:
            return self.copies[self.nodes[self._moved(position)]]
        return self.copies[node]

    def _moved(self, position: int) -> int:
        moved = position - self.skipped * self.run.period
        if moved < self.run.start:
            raise KeyError(position)
        return moved

    def _outputs(self, outputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The results that do not come from blocks, and those of the blocks that are kept."""
        made: list[Any] = []
        for value in outputs:
            if not isinstance(value, torch.fx.Node):
                made.append(value)
            elif value not in self.place:
                if value in self.run.chains.places:
                    return None
                made.append(self.copies[value])
            elif not self.run.start <= self.place[value] < self.run.end or self.place[value] < self.first_skipped:
                made.append(self.copies[value])
        return tuple(made)


def earlier_leaf(run: Run, leaf: Hashable, spans: int) -> Any:
    """The leaf that stands so many spans before this one, if it belongs to a chain; else itself.

    Raises:
        KeyError: there is none.
    """
    if leaf not in run.chains.places:
        return leaf
    chain, place = run.chains.places[leaf]
    if place < spans:
        raise KeyError(leaf)
    return run.chains.members[chain][place - spans]
