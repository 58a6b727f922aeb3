"""The joint graph of many equal blocks, made from the joint graph of a few.

The captured graph is looked through for a run of equal blocks, and a smaller one with four of them is traced, with its backward, and simplified. Each node
of that trace knows which block of the captured graph it comes from. If what became of the blocks 1 and 2 is equal, forward and backward,
operator by operator and operand by operand, block 2 is copied for each block that was left out: forward in order, backward in
reverse, on the parameters of those. Otherwise the whole graph is traced.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch
from torch import fx

from torchjit_aot.aliasing import FromInput
from torchjit_aot.autograd_nodes.dependence import Dependence
from torchjit_aot.inputs import GraphInput, fake_inputs
from torchjit_aot.joint import JointGraph
from torchjit_aot.record import SOURCE_KEYS, add_placeholder
from torchjit_torch.equal_blocks import Blocks, Reduced, described, find_blocks, label_of
from torchjit_torch.node_meta import BACKWARD, Key

__all__ = ["NotRepeated", "blocks_of", "marked", "with_all_blocks"]

KEPT = 4
"""Blocks that are traced: the two in the middle are compared, those around them meet what is not a block."""
_FEWEST = 7
_FIRST, _SECOND = 1, 2

Place: TypeAlias = "tuple[int, int]"
"""The block of a captured node (-1: before the blocks, `KEPT`: behind them), and its number in it."""
_PLACE: Key[Place] = Key("torchjit_block")


class NotRepeated(Exception):
    """What became of one block does not tell what becomes of others; the message says why."""


def blocks_of(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> tuple[Blocks, Reduced] | None:
    """The equal blocks of a captured graph and the graph with four of them; None where it has none, or needs all of them."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if (
        len(placeholders) != len(example_inputs)
        or any(True for _ in gm.parameters())
        or any(True for _ in gm.buffers())
    ):
        return None
    reals = dict(zip(placeholders, example_inputs, strict=True))
    # Not all captured nodes have values. What blocks are equal that get equal ones is compared in the joint graph.
    blocks = find_blocks(gm, _FEWEST, lambda leaf: _kind(leaf, reals[leaf]), values=False)
    reduced = None if blocks is None else blocks.reduced(KEPT, all_outputs=True)
    return None if blocks is None or reduced is None else (blocks, reduced)


def _kind(leaf: fx.Node, real: Any) -> Hashable:
    """What of an input decides how it is traced; what is no tensor is like nothing else."""
    if not isinstance(real, torch.Tensor):
        return object()
    marks = leaf.meta.get("static"), leaf.meta.get("address_stays")
    try:
        return (
            described(leaf.meta.get("val", real)),
            marks,
            type(real),
            real.requires_grad,
            real.is_leaf,
            real.is_inference(),
        )
    except RuntimeError:  # a view whose base was written since
        return object()


def marked(reduced: Reduced) -> fx.GraphModule:
    """The smaller graph, whose nodes know their places."""
    run = reduced.run
    for position, node in enumerate(reduced.nodes):
        copy = reduced.copies.get(node)
        if copy is not None:
            span = -1 if position < run.start else KEPT if position >= run.end else run.span_of(position)
            _PLACE.put(copy, (span, position if span in (-1, KEPT) else (position - run.start) % run.period))
    return reduced.gm


def with_all_blocks(
    joint: JointGraph, reduced: Reduced, gm: fx.GraphModule, example_inputs: Sequence[Any]
) -> JointGraph:
    """The joint graph of the whole graph.

    Args:
        joint: of the smaller one, simplified.
        reduced: says what that stands for.
        gm, example_inputs: the whole graph's.

    Raises:
        NotRepeated: the two blocks in the middle are not equal, or the graph does more than to compute results.
    """
    effects = (
        joint.written, joint.mutated, joint.mutated_under_grad, joint.versions_move, joint.versions, joint.slot_versions,
        joint.reshaped, joint.bases, joint.freed, joint.constants, joint.plan.steps, joint.plan.apart,
    )  # fmt: skip
    if any(effects):
        raise NotRepeated("it writes to tensors, holds some, or returns views")
    _, sources = fake_inputs(gm, example_inputs, {})
    return _Whole(joint, reduced, sources).joint_graph()


@final
class _Whole:
    """Copies the smaller joint graph, with more of block 2.

    `shift` is how many blocks further something lies than in the smaller graph: none up to block 2, one more in each copy of it, all that
    are skipped from block 3 on.
    """

    def __init__(self, joint: JointGraph, reduced: Reduced, sources: Sequence[GraphInput]) -> None:
        self.small, self.reduced, self.sources = joint, reduced, tuple(sources)
        self.skipped = reduced.skipped
        self.leaf_of = {node: reduced.leaves[k] for node, k in zip(joint.inputs, reduced.kept, strict=True)}
        self.position = {leaf: k for k, leaf in enumerate(reduced.leaves)}
        kept = [reduced.leaves[k] for k in reduced.kept]
        self.gradient_of = dict(zip(kept, joint.grads, strict=True))
        self.order = [n for n in joint.graph.nodes if n.op != "placeholder"]
        self.twin: dict[fx.Node, fx.Node] = {}  # from the nodes of block 1 to those of block 2
        self.later: dict[fx.Node, fx.Node] = {}  # from what block 2 reads of block 3 to what block 1 reads of block 2
        self.steady: set[fx.Node] = set()  # what all blocks read
        for backward in (False, True):
            self._compare(backward)
        self.graph = fx.Graph()
        self.made: dict[tuple[fx.Node, int], fx.Node] = {}
        self.inputs: tuple[fx.Node, ...] = ()

    # ---------------------------------------------------------------- blocks 1 and 2
    def _block(self, node: fx.Node) -> int:
        place = _PLACE.of(node)
        return -1 if place is None else place[0]

    def _part(self, block: int, backward: bool) -> tuple[fx.Node, ...]:
        return tuple(n for n in self.order if self._block(n) == block and bool(BACKWARD.of(n)) is backward)

    def _compare(self, backward: bool) -> None:
        """Find that blocks 1 and 2 are equal.

        Raises:
            NotRepeated: they are not, or nodes of blocks do not stand together.
        """
        first, second = self._part(_FIRST, backward), self._part(_SECOND, backward)
        if len(first) != len(second) or (not first and not backward):
            raise NotRepeated("one block became more operators than another")
        self._check_order(backward)
        self.twin.update(zip(first, second, strict=True))
        for a, b in zip(first, second, strict=True):
            self._compare_nodes(a, b)

    def _check_order(self, backward: bool) -> None:
        """Raises:
        NotRepeated: the operators of a block do not stand together, or the blocks not in their order.
        """
        blocks = [self._block(n) for n in self.order if bool(BACKWARD.of(n)) is backward]
        runs = [b for k, b in enumerate(blocks) if k == 0 or blocks[k - 1] != b]
        if sorted(runs, reverse=backward) != runs or len(set(runs)) < len(runs):
            raise NotRepeated("the blocks' operators are not in the blocks' order")

    def _compare_nodes(self, a: fx.Node, b: fx.Node) -> None:
        """One of block 1 and its twin. Raises NotRepeated if they differ, as in what they read."""
        if _label(a) != _label(b) or self._role(a) != self._role(b):
            raise NotRepeated(f"{a.target} in one block, {b.target} in another")
        for x, y in zip(a.all_input_nodes, b.all_input_nodes, strict=True):
            self._compare_operands(x, y)
        if [k for k, n in _operands(a)] != [k for k, n in _operands(b)]:
            raise NotRepeated("operands in another order")

    def _role(self, node: fx.Node) -> Hashable:
        """Is it a result? Those of blocks are only gradients, see `_gradients`."""
        return node in self.small.slots

    def _compare_operands(self, x: fx.Node, y: fx.Node) -> None:
        """Of block 1 and of block 2.

        Raises:
            NotRepeated: they are not the same for all blocks, nor one block apart.
        """
        if x.op == "placeholder" or y.op == "placeholder":
            self._compare_inputs(x, y)
            return
        block, other = self._block(x), self._block(y)
        if x is y:
            if block in (_FIRST, _SECOND):
                raise NotRepeated("two blocks read what one of them has computed")
            self.steady.add(x)
        elif self.twin.get(x) is not y:
            apart = other == block + 1 and block in (0, _SECOND)
            if not apart or _PLACE.of(x)[1] != _PLACE.of(y)[1] or _label(x) != _label(y):  # type: ignore[index]
                raise NotRepeated("a block reads another value of the one before it than the next one does")
            if block == _SECOND and self.later.setdefault(y, x) is not x:
                raise NotRepeated("a block reads one value of the next one in two ways")

    def _compare_inputs(self, x: fx.Node, y: fx.Node) -> None:
        places = self.reduced.run.chains.places
        a, b = places.get(self.leaf_of.get(x)), places.get(self.leaf_of.get(y))
        if a is None and b is None and x is y:
            return
        if a is None or b is None or a[0] != b[0] or b[1] != a[1] + 1:
            raise NotRepeated("two blocks read inputs that do not follow one another")

    # ---------------------------------------------------------------- the whole graph
    def joint_graph(self) -> JointGraph:
        """Raises:
        NotRepeated: something outside of the blocks reads what few blocks cannot tell.
        """
        small = self.small
        tangents = {node: self._copy_placeholder(node) for node in small.tangents}
        self.made.update({(node, shift): made for node, made in tangents.items() for shift in range(self.skipped + 1)})
        self.inputs = tuple(self._add_input(k) for k in range(len(self.sources)))
        for backward in (False, True):
            self._write([n for n in self.order if bool(BACKWARD.of(n)) is backward], backward)
        slots = tuple(self._outside(s) if isinstance(s, fx.Node) else s for s in small.slots)
        grads = tuple(self._gradient(leaf) for leaf in self.reduced.leaves)
        like = [self.reduced.kept.index(self._example(leaf)) for leaf in self.reduced.leaves]
        dependence = small.dependence
        found = Dependence(
            tuple(dependence.tangents[k] for k in like) if dependence.tangents else (),
            dependence.components,
            frozenset(k for k, example in enumerate(like) if example in dependence.differentiable),
            dependence.read_slots,
        )
        small.plan.outputs[:] = [self._output(ref) for ref in small.plan.outputs]
        return attrs.evolve(
            small, graph=self.graph, inputs=self.inputs, constants=(), tangents=tuple(tangents.values()), slots=slots, grads=grads,
            sources=self.sources, dependence=found,
        )  # fmt: skip

    def _copy_placeholder(self, node: fx.Node) -> fx.Node:
        made = add_placeholder(self.graph, node.name)
        made.meta = dict(node.meta)
        return made

    def _add_input(self, k: int) -> fx.Node:
        """The placeholder of the input `k` of the whole graph."""
        example = self.small.inputs[self.reduced.kept.index(self._example(self.reduced.leaves[k]))]
        made = add_placeholder(self.graph, self.sources[k].name)
        made.meta = {**example.meta, "val": self.sources[k].value}
        return made

    def _example(self, leaf: fx.Node) -> int:
        """The position of the leaf that the smaller graph has in this one's place."""
        if leaf not in self.reduced.run.chains.places:
            return self.position[leaf]
        chain, place = self.reduced.run.chains.places[leaf]
        members: Sequence[Any] = self.reduced.run.chains.members[chain]
        early = min(place, _SECOND)
        late = place - self.skipped
        return self.position[members[late if late > early else early]]

    def _write(self, nodes: Sequence[fx.Node], backward: bool) -> None:
        second = [n for n in nodes if self._block(n) == _SECOND]
        at = [k for k, n in enumerate(nodes) if self._block(n) == _SECOND]
        if not at:
            for node in nodes:
                self._copy(node, self._shift_of(node))
            return
        for node in nodes[: at[0]]:
            self._copy(node, self._shift_of(node))
        for shift in range(self.skipped, -1, -1) if backward else range(self.skipped + 1):
            for node in second:
                self._copy(node, shift)
        for node in nodes[at[-1] + 1 :]:
            self._copy(node, self._shift_of(node))

    def _shift_of(self, node: fx.Node) -> int:
        """Of a node that there is once."""
        return self.skipped if self._block(node) > _SECOND else 0

    def _copy(self, node: fx.Node, shift: int) -> None:
        of_second = self._block(node) == _SECOND
        read = functools.partial(self._operand, shift=shift, of_second=of_second)
        args, kwargs = fx.node.map_arg(node.args, read), fx.node.map_arg(node.kwargs, read)
        made = self.graph.create_node(node.op, node.target, args, kwargs, _base_name(node), node.type)
        made.meta = dict(node.meta)
        if of_second and shift:
            captured = self._captured(node, shift).meta
            made.meta.update({key: captured[key] for key in SOURCE_KEYS if key in captured})
        self.made[node, shift] = made

    def _captured(self, node: fx.Node, shift: int) -> fx.Node:
        """The node of the captured graph that a copy of a node of block 2 comes from."""
        run, place = self.reduced.run, _PLACE.of(node)
        assert place is not None
        return self.reduced.nodes[run.start + (_SECOND + shift) * run.period + place[1]]

    def _operand(self, node: fx.Node, shift: int, of_second: bool) -> fx.Node:
        """What stands for an operand in a copy that lies so many blocks further."""
        if node.op == "placeholder":
            return self.made[node, shift] if node not in self.leaf_of else self._input(node, shift)
        block = self._block(node)
        if node in self.steady or block in (-1, KEPT):
            return self.made[node, self._shift_of(node)]
        if block == _SECOND:
            return self.made[node, shift]
        if block == _FIRST:
            return self.made[node, 0] if shift == 0 else self.made[self.twin[node], shift - 1]
        if block == 0:
            if shift:
                raise NotRepeated("what follows the blocks reads what the first one has computed")
            return self.made[node, 0]
        if shift == self.skipped:
            return self.made[node, shift]
        if not of_second or node not in self.later:
            raise NotRepeated("an early block reads what a late one has computed")
        return self.made[self.later[node], shift + 1]

    def _input(self, node: fx.Node, shift: int) -> fx.Node:
        leaf: Any = self.leaf_of[node]
        if leaf in self.reduced.run.chains.places:
            chain, place = self.reduced.run.chains.places[leaf]
            members: Sequence[Any] = self.reduced.run.chains.members[chain]
            if place + shift >= len(members):
                raise NotRepeated("there is no such input")
            leaf = members[place + shift]
        return self.inputs[self.position[leaf]]

    def _outside(self, node: fx.Node) -> fx.Node:
        """A result of the graph: from before the blocks, or from behind them."""
        if node.op == "placeholder":
            return self._operand(node, self.skipped, False)
        block = self._block(node)
        return self._operand(node, 0 if block == -1 else self.skipped, False)

    def _output(self, ref: Any) -> Any:
        """A result as the runtime makes it; inputs have other numbers now."""
        if not isinstance(ref, FromInput):
            return ref
        leaf = self.reduced.leaves[self.reduced.kept[ref.index]]
        if leaf in self.reduced.run.chains.places:
            raise NotRepeated("a block's input is a result")
        return FromInput(self.position[leaf])

    def _gradient(self, leaf: fx.Node) -> fx.Node | None:
        """The node of an input's gradient."""
        if leaf in self.reduced.run.chains.places:
            return self._gradient_in_chain(*self.reduced.run.chains.places[leaf])
        grad = self.gradient_of[leaf]
        return None if grad is None else self._gradient_node(grad, self._shift_of(grad))

    def _gradient_in_chain(self, chain: int, place: int) -> fx.Node | None:
        """Of an input that each block has one of: as it is made in block 2, so many blocks further."""
        members: Sequence[Any] = self.reduced.run.chains.members[chain]
        grads = [self.gradient_of[member] for member in members[: len(members) - self.skipped]]
        if all(grad is None for grad in grads):
            return None
        anchor = self._made_in_second(grads)
        further = max(0, min(place - anchor, self.skipped))
        found = grads[place - further]
        assert found is not None
        return self._gradient_node(found, further)

    def _made_in_second(self, grads: Sequence[fx.Node | None]) -> int:
        """The place of the gradient that is made in block 2.

        Raises:
            NotRepeated: there is none, or what stands around it is not made in the blocks around.
        """
        blocks = [None if grad is None else self._block(grad) for grad in grads]
        anchor = blocks.index(_SECOND) if _SECOND in blocks else 0
        before = grads[anchor - 1] if anchor else None
        if before is None or self.twin.get(before) is not grads[anchor]:
            raise NotRepeated("gradients of the blocks' parameters are not made in their blocks")
        late = any(block is None or block <= _SECOND for block in blocks[anchor + 1 :])
        if late or any(block is None or block >= _SECOND for block in blocks[:anchor]):
            raise NotRepeated("gradients of the blocks' parameters are made out of order")
        return anchor

    def _gradient_node(self, grad: fx.Node, shift: int) -> fx.Node:
        if grad.op == "placeholder":
            raise NotRepeated("a gradient is an input")
        return self.made[grad, shift]


def _base_name(node: fx.Node) -> str:
    """The name without its number. For a name that is taken, torch 2.11 tries all numbers from 1 on; for a base it goes on from its last one."""
    base, _, number = node.name.rpartition("_")
    return base if base and number.isdecimal() else node.name


def _label(node: fx.Node) -> Hashable:
    return label_of(node), bool(BACKWARD.of(node))


def _operands(node: fx.Node) -> list[tuple[int, fx.Node]]:
    """Each place of an operand, by the number of the node among the different ones."""
    numbers: dict[fx.Node, int] = {}
    found: list[tuple[int, fx.Node]] = []

    def see(n: fx.Node) -> fx.Node:
        found.append((numbers.setdefault(n, len(numbers)), n))
        return n

    fx.node.map_arg((node.args, node.kwargs), see)
    return found
