"""The program of all blocks, made from the program of three.

The smaller program is looked through for a part that is done twice, one behind the other: equal kernels and calls, between buffers that
correspond, on inputs that follow one another, for nodes of the graph that are one block apart. All of this is compared, nothing is
assumed; where it does not hold the whole graph is compiled. The second of the two is then repeated for each block that the smaller graph lacks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping
from typing import Any, final

import attrs
import torch

from torchjit_core.expr import Expr
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, Origin, rename_buffers
from torchjit_inductor.steps import ExternStep, HostNumber, KernelStep, Program, Step, TensorRef
from torchjit_torch.equal_blocks import Reduced
from torchjit_torch.equal_spans import Item, Run, find_run

__all__ = ["NotRepeated", "expanded"]


class NotRepeated(Exception):
    """The smaller program does not say what the whole one is; the message says why."""


def expanded(program: Program, reduced: Reduced) -> Program:
    """The program of the whole graph.

    Args:
        program: of `reduced.gm`, scheduled.

    Raises:
        NotRepeated: it has no part that may be repeated.
    """
    if (
        program.mutated
        or program.products
        or program.run_symbols
        or any(isinstance(i, HostNumber) for i in program.inputs)
    ):
        raise NotRepeated("it writes to inputs, or its sizes or numbers are known only when it runs")
    return _Expansion(program, reduced).program()


@final
class _Expansion:
    """One program's expansion.

    The steps are `[head][first][second][tail]`. `shift` is how many blocks further than in the smaller graph something lies: none in the
    head and the first part, one more in each repetition of the second, all that are skipped in the tail.
    """

    def __init__(self, program: Program, reduced: Reduced) -> None:
        self.small, self.reduced, self.whole_run = program, reduced, reduced.run
        self.inputs = [n if isinstance(n, str) else None for n in program.inputs]
        self.leaf_of = {n: reduced.leaves[k] for n, k in zip(self.inputs, reduced.kept, strict=True) if n is not None}
        self.writer: dict[str, tuple[int, int]] = {}
        for position, step in enumerate(program.steps):
            for slot, name in enumerate(step.writes):
                self.writer.setdefault(name, (position, slot))
        self.node_span = _spans_of_nodes(reduced)
        self.steady: set[str] = set()  # what the head computes for all blocks
        self.run = self._repeated_part()
        self.second = self.run.start + self.run.period
        self.third = self.second + self.run.period
        self._check_borders()
        self.taken = {*program.buffers, *program.constants}
        self.leaf_names: dict[Any, str] = {}
        self.buffers: dict[str, Buffer] = {}
        self.made: dict[tuple[str, int], str] = {}

    # ---------------------------------------------------------------- what is done twice
    def _repeated_part(self) -> Run:
        """Two equal parts whose nodes are one block apart.

        Raises:
            NotRepeated: there are none.
        """
        items = [self._item(step) for step in self.small.steps]
        labels = {leaf: self._leaf_label(leaf) for leaf in self.leaf_of.values()}
        run = find_run(items, 2, labels)
        if run is None:
            raise NotRepeated("no two parts of the program are equal")
        for position in range(run.start, run.start + run.period):
            first, second = self.small.steps[position], self.small.steps[position + run.period]
            self._check_nodes(first, second)
            self._check_operands(first, second, run)
        for leaf, (chain, place) in run.chains.places.items():
            members = run.chains.members[chain]
            known = self.whole_run.chains.places.get(leaf)
            if place + 1 < len(members) and (known is None or self._after(known) is not members[place + 1]):
                raise NotRepeated("the inputs of two equal parts are not one block apart")
        return run

    def _after(self, place: tuple[int, int]) -> object:
        members = self.whole_run.chains.members[place[0]]
        return members[place[1] + 1] if place[1] + 1 < len(members) else None

    def _leaf_label(self, leaf: Any) -> Hashable:
        name = next(n for n, held in self.leaf_of.items() if held is leaf)
        return _layout(self.small.buffers[name]) if name in self.small.buffers else None

    def _item(self, step: Step) -> Item:
        references: list[Hashable] = []

        def seen(name: str) -> Hashable:
            place = self.writer.get(name)
            if name in self.leaf_of:
                references.append(self.leaf_of[name])
                return "leaf"
            if place is None:
                references.append(self._constant(name))
                return "constant"
            references.append(place[0])
            return place[1]

        written = tuple(_layout(self.small.buffers[n]) for n in step.writes if n in self.small.buffers)
        return Item((_structure(step, seen), written, self._within(step)), tuple(references))

    def _within(self, step: Step) -> Hashable:
        """Which nodes it computes, whatever the block."""
        found = []
        for origin in _origins(step):
            position, span = self.node_span.get(origin.node, (0, -1))
            inside = 0 <= span < self.whole_run.count
            found.append((position - self.whole_run.start) % self.whole_run.period if inside else origin.node)
        return tuple(found)

    def _constant(self, name: str) -> Hashable:
        """A tensor that the program holds, the first of those that are equal to it."""
        held = self.small.constants.get(name)
        if held is None:
            return name
        for other, tensor in self.small.constants.items():
            if other == name or _same(tensor, held):
                return other
        return name

    # ---------------------------------------------------------------- which block each node belongs to
    def _check_nodes(self, first: Step, second: Step) -> None:
        """Raises:
        NotRepeated: the second does not compute the nodes that are one block behind those of the first.
        """
        moved = [self._next(origin.node) for origin in _origins(first)]
        if moved != [origin.node for origin in _origins(second)]:
            raise NotRepeated("two equal parts compute nodes that are not one block apart")

    def _check_operands(self, first: Step, second: Step, run: Run) -> None:
        """What both read of the head is the same for all blocks.

        Raises:
            NotRepeated: it is of a block, further away than the blocks that are kept can tell.
        """
        for a, b in zip((*first.reads, *first.writes), (*second.reads, *second.writes), strict=True):
            if a == b and b in self.leaf_of and self.leaf_of[b] in self.whole_run.chains.places:
                raise NotRepeated("an input of one block is read by two")
            if b in self.writer and self.writer[b][0] < run.start:
                if a != b:
                    raise NotRepeated("a part reads what another one has computed that is not before it")
                self.steady.add(b)

    def _next(self, name: str) -> str | None:
        position, span = self.node_span.get(name, (0, -1))
        if span < 0:
            return name
        following = position + self.whole_run.period
        nodes = self.reduced.nodes
        if span + 1 < len(nodes) and following < self.whole_run.start + self.whole_run.period * (
            self.whole_run.count - self.reduced.skipped
        ):
            return nodes[following].name
        return None

    def _check_borders(self) -> None:
        """The head computes nothing of later blocks than the first part does, the tail nothing of earlier ones than the second.

        Raises:
            NotRepeated: otherwise.
        """
        steps = self.small.steps
        first, second = steps[self.run.start : self.second], steps[self.second : self.third]
        head = max(self._blocks(steps[: self.run.start]), default=-1)
        tail = min(self._blocks(steps[self.third :]), default=len(self.reduced.nodes))
        if head > max(self._blocks(first), default=-1) or tail < min(self._blocks(second), default=tail):
            raise NotRepeated("blocks are computed out of their order")
        early = {
            o.node for step in steps[self.third :] for o in _origins(step) if self.node_span.get(o.node, (0, 0))[1] < 0
        }
        chains = self.whole_run.chains.places
        if any(
            node.name in early and any(n in chains for n in node.all_input_nodes)
            for node in self.reduced.nodes[: self.whole_run.start]
        ):
            raise NotRepeated("what comes before the blocks is computed behind them")

    def _blocks(self, steps: tuple[Step, ...]) -> list[int]:
        """The blocks that nodes of these steps belong to; what comes before the first one is -1, behind the last a large number."""
        spans = [self.node_span[o.node][1] for step in steps for o in _origins(step) if o.node in self.node_span]
        return [span for span in spans if span >= 0]

    # ---------------------------------------------------------------- names
    def _input(self, leaf: Any, shift: int) -> str:
        """The name of the input so many blocks further."""
        if leaf in self.whole_run.chains.places:
            chain, place = self.whole_run.chains.places[leaf]
            members = self.whole_run.chains.members[chain]
            if place + shift >= len(members):
                raise NotRepeated(f"no block has an input behind {leaf}")
            leaf = members[place + shift]
        return self.leaf_names[leaf]

    def _name(self, name: str, shift: int) -> str:
        """What a buffer of the smaller program is called so many blocks further."""
        if name in self.leaf_of:
            return self._input(self.leaf_of[name], shift)
        place = self.writer.get(name)
        if shift == 0 or place is None:
            return name
        if place[0] < self.run.start:
            if name not in self.steady and max(self._blocks((self.small.steps[place[0]],)), default=-1) >= 0:
                raise NotRepeated("the tail reads what an early block has computed")
            return name
        if place[0] >= self.third:
            return name  # there is one tail
        if place[0] < self.second:
            twin = self._twin(place)
            return self._name(twin, shift - 1)
        return self.made[name, shift]

    def _twin(self, place: tuple[int, int]) -> str:
        """Of a buffer that the first part writes: the second's."""
        return self.small.steps[place[0] + self.run.period].writes[place[1]]

    def _fresh(self, stem: str) -> str:
        name = next(
            n for n in itertools.chain([stem], (f"{stem}_{k}" for k in itertools.count(1))) if n not in self.taken
        )
        self.taken.add(name)
        return name

    # ---------------------------------------------------------------- the whole program
    def program(self) -> Program:
        """Raises:
        NotRepeated: a result, or something in the tail, is not one that follows from the second part.
        """
        small, skipped = self.small, self.reduced.skipped
        self._name_inputs()
        self.buffers = {n: b for n, b in small.buffers.items() if n not in self.leaf_of} | self.buffers
        steps: list[Step] = [self._moved(step, 0) for step in small.steps[: self.third]]
        for shift in range(1, skipped + 1):
            part = small.steps[self.second : self.third]
            for name in dict.fromkeys(
                n for step in part for n in step.writes if self._is_from(n, self.second, self.third)
            ):
                made = self.made[name, shift] = self._fresh(f"{name}_{shift}")
                self.buffers[made] = attrs.evolve(small.buffers[name], name=made)
            steps += [self._moved(step, shift) for step in part]
        steps += [self._moved(step, skipped) for step in small.steps[self.third :]]
        where = self.reduced.kept
        return Program(
            small.name,
            tuple(self._whole_inputs()),
            self.buffers,
            tuple(steps),
            tuple(self._outputs()),
            frozenset(),
            {s: (where[k], kind, dim) for s, (k, kind, dim) in small.symbol_sources.items()},
            small.constants,
            (),
            {},
        )

    def _is_from(self, name: str, start: int, end: int) -> bool:
        return name in self.writer and start <= self.writer[name][0] < end and name in self.small.buffers

    def _name_inputs(self) -> None:
        by_leaf = {leaf: name for name, leaf in self.leaf_of.items()}
        self.leaf_names.update(by_leaf)
        for leaf in self.reduced.leaves:
            example = by_leaf.get(self._example(leaf))
            if example is None:
                continue  # a number, or nobody reads it
            name = self.leaf_names.setdefault(leaf, by_leaf.get(leaf) or self._fresh(leaf.name))
            self.buffers[name] = attrs.evolve(self.small.buffers[example], name=name)

    def _example(self, leaf: Any) -> Any:
        """The leaf of the smaller graph that is like this one."""
        if leaf not in self.whole_run.chains.places:
            return leaf
        chain, place = self.whole_run.chains.places[leaf]
        members = self.whole_run.chains.members[chain]
        return members[min(place, len(members) - self.reduced.skipped - 1)]

    def _whole_inputs(self) -> list[Any]:
        small = dict(zip(self.reduced.kept, self.small.inputs, strict=True))
        return [self.leaf_names.get(leaf, small.get(k)) for k, leaf in enumerate(self.reduced.leaves)]

    def _outputs(self) -> list[Any]:
        """The results of the whole graph, in order."""
        run, period = self.whole_run, self.whole_run.period
        place = {node: k for k, node in enumerate(self.reduced.nodes)}
        known: dict[Any, Any] = {}
        found = iter(self.small.outputs)
        for value in self.reduced.outputs:
            if (
                not isinstance(value, torch.fx.Node)
                or not run.start + (run.count - self.reduced.skipped) * period <= place.get(value, -1) < run.end
            ):
                known[id(value) if not isinstance(value, torch.fx.Node) else value] = next(found)
        made = []
        for value in self.reduced.outputs:
            if not isinstance(value, torch.fx.Node):
                made.append(known[id(value)])
            elif not run.start <= place.get(value, -1) < run.end:
                made.append(self._result(known[value], 0 if place.get(value, -1) < run.start else self.reduced.skipped))
            else:
                made.append(self._result_of_block(place[value], known))
        return made

    def _result_of_block(self, position: int, known: Mapping[Any, Any]) -> Any:
        """A result of a block: the one of the second part, so many blocks further, or what lies before the first or behind the last of these."""
        run, skipped = self.whole_run, self.reduced.skipped
        block = run.span_of(position)
        within = position - block * run.period
        by_block = [known[self.reduced.nodes[within + k * run.period]] for k in range(run.count - skipped)]
        anchor = next((k for k, value in enumerate(by_block) if self._is_of_second(value)), None)
        if anchor is None:
            if all(not isinstance(v, TensorRef) for v in by_block) and len(set(map(repr, by_block))) == 1:
                return by_block[0]
            raise NotRepeated("a result of each block is stored elsewhere than in the repeated part")
        self._check_twins(by_block, anchor)
        if block <= anchor:
            return self._result(by_block[block], 0)
        if block >= anchor + skipped:
            return self._result(by_block[block - skipped], skipped)
        return self._result(by_block[anchor], block - anchor)

    def _is_of_second(self, value: Any) -> bool:
        return isinstance(value, TensorRef) and self._is_from(value.buffer, self.second, self.third)

    def _check_twins(self, by_block: list[Any], anchor: int) -> None:
        """Raises:
        NotRepeated: the results of the blocks are not stored one behind the other.
        """
        before = by_block[anchor - 1] if anchor else None
        right = isinstance(before, TensorRef) and self._is_from(before.buffer, self.run.start, self.second)
        if (
            not right
            or self._name_of_twin(before) != by_block[anchor].buffer
            or _view(before) != _view(by_block[anchor])
        ):
            raise NotRepeated("a result of the first part is not stored as that of the second")
        early, late = by_block[: anchor - 1], by_block[anchor + 1 :]
        if not all(
            isinstance(v, TensorRef) and not self._is_from(v.buffer, self.run.start, len(self.small.steps))
            for v in early
        ):
            raise NotRepeated("a result of an early block is stored late")
        if not all(
            isinstance(v, TensorRef) and self._is_from(v.buffer, self.third, len(self.small.steps)) for v in late
        ):
            raise NotRepeated("a result of a late block is stored early")

    def _name_of_twin(self, value: Any) -> str:
        return self._twin(self.writer[value.buffer])

    def _result(self, value: Any, shift: int) -> Any:
        return attrs.evolve(value, buffer=self._name(value.buffer, shift)) if isinstance(value, TensorRef) else value

    # ---------------------------------------------------------------- steps
    def _moved(self, step: Step, shift: int) -> Step:
        def now(name: str) -> str:
            return self._name(name, shift)

        if isinstance(step, KernelStep):
            names = {n: new for n in step.kernel.buffers if (new := now(n)) != n}
            return KernelStep(step.kernel, {**step.names, **names}) if names else step
        return attrs.evolve(
            step,
            args=_with_names(step.args, now),
            kwargs=_with_names(step.kwargs, now),
            outputs=tuple(None if n is None else now(n) for n in step.outputs),
            reads=tuple(map(now, step.reads)),
            mutates=tuple(map(now, step.mutates)),
            aliases=tuple(map(now, step.aliases)),
            origin=self._origin(step.origin, shift),
        )

    def _origin(self, origin: Origin, shift: int) -> Origin:
        position, span = self.node_span.get(origin.node, (0, -1))
        moved = position + shift * self.whole_run.period
        if shift == 0 or span < 0 or moved >= self.whole_run.end:
            return origin
        return attrs.evolve(origin, node=self.reduced.nodes[moved].name)


# ---------------------------------------------------------------------- steps without names
def _structure(step: Step, seen: Callable[[str], Hashable]) -> Hashable:
    """All of a step but the names of its buffers, each of which `seen` gets, in order."""
    if isinstance(step, KernelStep):
        kernel = step.kernel
        twin = _without_names(kernel)
        return (kernel.device, twin.outer, twin.inner, twin.stores, tuple(map(seen, step.buffers)))

    def shape(value: Any) -> Hashable:
        if isinstance(value, TensorRef):
            return (seen(value.buffer), *_view(value))
        if isinstance(value, (tuple, list)):
            return (type(value), *map(shape, value))
        if isinstance(value, dict):
            return (dict, *((k, shape(v)) for k, v in value.items()))
        if isinstance(value, float):
            return (float, repr(value))
        if isinstance(value, HostNumber) or not isinstance(value, Hashable):
            return object()
        return (type(value), value)

    numbers = (step.number, step.sizes, step.tested)
    if numbers != (None, (), ()):
        return object()
    outputs = tuple(None if n is None else seen(n) for n in step.outputs)
    lists = tuple(tuple(map(seen, names)) for names in (step.reads, step.mutates, step.aliases))
    return (step.op, shape(step.args), shape(step.kwargs), outputs, step.single, lists)


def _without_names(kernel: LoopKernel) -> LoopKernel:
    """The kernel over buffers that are numbered."""
    names = {name: f"b{k}" for k, name in enumerate(kernel.buffers)}
    return attrs.evolve(kernel, stores=rename_buffers(kernel.stores, names))


def _view(ref: Any) -> tuple[tuple[Expr, ...], tuple[Expr, ...], Expr]:
    return ref.sizes, ref.strides, ref.offset


def _layout(buffer: Buffer) -> Hashable:
    return buffer.dtype, buffer.device, buffer.sizes, buffer.strides


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    alike = (a.dtype, a.device, a.shape, a.stride()) == (b.dtype, b.device, b.shape, b.stride())
    return alike and torch.equal(a, b)


def _with_names(tree: Any, now: Callable[[str], str]) -> Any:
    if isinstance(tree, TensorRef):
        return attrs.evolve(tree, buffer=now(tree.buffer))
    if isinstance(tree, (tuple, list)):
        return type(tree)(_with_names(item, now) for item in tree)
    if isinstance(tree, dict):
        return {key: _with_names(item, now) for key, item in tree.items()}
    return tree


def _origins(step: Step) -> tuple[Origin, ...]:
    return (step.origin,) if isinstance(step, ExternStep) else step.kernel.origins


def _spans_of_nodes(reduced: Reduced) -> dict[str, tuple[int, int]]:
    """By name, for the nodes of the smaller graph: the position in the whole one, and the block; -1 and a large number outside of blocks."""
    run, kept = reduced.run, reduced.run.count - reduced.skipped
    found = {}
    for position, node in enumerate(reduced.nodes):
        span = run.span_of(position)
        if position < run.start:
            found[node.name] = (position, -1)
        elif span < kept:
            found[node.name] = (position, span)
        elif position >= run.end:
            found[node.name] = (position, len(reduced.nodes))
    return found
