"""Reductions of much into little: first by many programs into scratch memory, then by few into the result.

A kernel with few outer iterations and long reductions becomes up to three: `partial` reduces parts of the inner loops
and does the stores that need no reduction, `join` reduces the parts' results, and `apply` does what needs the joined
results at every inner iteration. `apply` is pointwise, or, where there are reductions of reductions, split in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

import attrs

from torchjit_core.expr import Expr, Symbol, as_expr, constant, minimum
from torchjit_inductor.estimates import estimate, points
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir import values as ir
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store, flat_index, iterations
from torchjit_inductor.ir.operations import identity
from torchjit_inductor.ir.values import IN_ORDER, Value
from torchjit_inductor.schedule.digits import merged, with_split_loops
from torchjit_inductor.schedule.stages import in_memory_order, mean_of, scratch_buffer, stage_kernel
from torchjit_inductor.steps import KernelStep, Program, Step
from torchjit_inductor.triton.contraction import has_dot
from torchjit_inductor.triton.plan import CACHED, MULTIPROCESSORS, reads_columns, two_each, walks_columns
from torchjit_inductor.triton.rows_and_columns import with_columns
from torchjit_inductor.triton.unrolled import unrolled

__all__ = ["is_apart", "is_shared", "split", "split_product", "split_program"]

_PROGRAMS = 4 * MULTIPROCESSORS  # enough to fill the GPU
_SMALLEST = 4096  # elements that are worth a program of their own
_IN_REGISTERS = 64  # elements of a column that a program with 128 bytes of each row keeps, and does not read twice
_COLUMNS = 64  # that one program holds
_MANY = 16  # programs
_ROWS = 128  # of a tile of columns
_LINE = 128
"""Bytes of memory that programs best read as one."""
_LARGE = 5 * 2**20
"""Bytes from which it is worth kernels of their own that lines are read as one."""
_KINDS = frozenset(("sum", "prod", "max", "min", "any", "all", "welford_mean", "welford_m2"))


def split_program(
    program: Program,
    hints: Mapping[Symbol, int],
    product_parts: Callable[[LoopKernel, Mapping[str, Buffer]], int] = lambda kernel, buffers: 1,
) -> Program:
    """The program with merged loops in its CUDA kernels, and with reductions split where that fills the GPU better.

    Args:
        program: after fusion.
        hints: typical values of the size symbols.
        product_parts: how many a kernel that multiplies matrices is to be cut into.
    """
    buffers = dict(program.buffers)
    steps: list[Step] = []
    together, done = with_columns(program)
    buffers.update(together.buffers)
    for step in together.steps:
        if isinstance(step, KernelStep) and step.kernel.device.type == "cuda" and step.kernel not in done:
            kernel = unrolled(_in_columns(merged(step.kernel), buffers, hints), buffers, hints)
            if has_dot(kernel):
                stages, scratch = split_product(kernel, buffers, product_parts(kernel, buffers))
            else:
                stages, scratch = split(kernel, buffers, hints)
            buffers.update((b.name, b) for b in scratch)
            steps += [KernelStep(stage) for stage in stages]
        else:
            steps.append(step)
    return attrs.evolve(program, buffers=buffers, steps=tuple(steps))


def _in_columns(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> LoopKernel:
    """The kernel with loops of their own for digits of rows' numbers, where memory runs along one of these: channels of images, say."""
    if not kernel.inner or has_dot(kernel):
        return kernel
    split = with_split_loops(kernel, 1)
    return merged(split) if split is not kernel and reads_columns(split, buffers, hints) else kernel


def split(
    kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]
) -> tuple[tuple[LoopKernel, ...], tuple[Buffer, ...]]:
    """The stages of a kernel: itself, or two or three with scratch memory between them.

    Args:
        kernel: with merged loops.
        buffers: of the graph.
        hints: typical values of the size symbols.

    Returns:
        The kernels in order, and the scratch buffers.
    """
    cut = _cut(kernel, buffers, hints)
    if cut is None:
        return (kernel,), ()
    (*stages, last), scratch = _Split(kernel, cut, buffers).stages()
    again = bool(last.inner) and any(_stage_of(s) == 2 for s in kernel.stores)
    more, extra = split(last, buffers, hints) if again else ((last,), ())
    return (*stages, *more), (*scratch, *extra)


def is_apart(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> bool:
    """Has a reduction stages of its own for what is done at every inner point, because programs would read too much twice, or pieces of lines?

    Args:
        kernel: whose loops need not be merged.
        buffers: of the graph.
        hints: typical values of the size symbols.
    """
    if not _follows(kernel) or _bytes_of(kernel, buffers, hints) < _LARGE:
        return False
    kernel = _in_columns(merged(kernel), buffers, hints)
    return _joinable(kernel) and (bool(_lanes(kernel, buffers, hints)) or _reads_twice(kernel, buffers, hints))


def is_shared(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> bool:
    """Is a reduction split into two stages, of which the first does all that there is to do at its inner points? Arguments as of `is_apart`."""
    if _follows(kernel):
        return False
    cut = _cut(_in_columns(merged(kernel), buffers, hints), buffers, hints)
    return cut is not None and cut.parts > 1


def split_product(
    kernel: LoopKernel, buffers: Mapping[str, Buffer], parts: int
) -> tuple[tuple[LoopKernel, ...], tuple[Buffer, ...]]:
    """A kernel that multiplies matrices as one that adds up equal parts of the sums and one that joins them (split-K).

    Args:
        kernel: see `contraction`; of one inner loop, whose size is a multiple of `parts`.
        buffers: of the graph.
        parts: how many.
    """
    if parts == 1:
        return (kernel,), ()
    made = _Split(kernel, _Cut(0, parts), buffers)
    if len(kernel.inner) != 1 or not made.even:
        raise ValueError(f"the sum of {kernel.name} has no {parts} equal parts")
    stages, scratch = made.stages()
    return tuple(merged(stage) for stage in stages), scratch


def _stage_of(store: Store) -> int:
    """0, 1 or 2: in which of the three kernels a store happens."""
    if store.outer:
        return 1 if store.value.level <= 1 else 2
    return 0 if not store.value.level else 2


@final
@attrs.frozen
class _Cut:
    """How the inner loops of a kernel are divided among programs.

    Attributes:
        position: of the inner loop that is cut.
        parts: into how many; 1: it stays whole.
        lanes: inner loops that the first stage walks along with the outer ones, see `_lanes` and `_whole_loop`.
    """

    position: int
    parts: int
    lanes: tuple[LoopVar, ...] = ()


def _cut(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> _Cut | None:
    """How a kernel is cut; None: not at all."""
    if not _joinable(kernel) or not points((*kernel.outer, *kernel.inner), hints):
        return None
    lanes = _lanes(kernel, buffers, hints)
    apart = bool(lanes) or _reads_twice(kernel, buffers, hints)
    columns = _COLUMNS if apart or _across(kernel, buffers, hints) else 1
    along = points(lanes, hints)
    programs = max(1, points(kernel.outer, hints) * along // columns)
    most = _most_parts(kernel, programs, points(kernel.inner, hints) // along, columns)
    if not apart and (programs >= _enough(kernel) or most < 2):
        return None
    best = _longest(kernel, lanes, most, programs, columns > 1, hints)
    if best.parts == 1 and not apart:
        return _whole_loop(kernel, most, hints)
    return best


def _across(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> bool:
    """Does a program of the first stage hold several columns?"""
    early = any(_stage_of(s) == 0 for s in kernel.stores)
    return walks_columns(kernel, buffers, hints) or (not early and reads_columns(kernel, buffers, hints))


def _most_parts(kernel: LoopKernel, programs: int, inner: int, columns: int) -> int:
    """Into how many parts the work of each program is worth being cut.

    Args:
        programs: without a cut.
        inner: points that a column has.
        columns: that a program has.
    """
    # Programs that join means have fewer threads, and many results are joined by many programs.
    wanted = 2 * _PROGRAMS if columns > 1 and programs > _MANY and _joins_means(kernel) else _PROGRAMS
    return min(wanted // programs, inner * columns // _SMALLEST)


def _longest(
    kernel: LoopKernel, lanes: tuple[LoopVar, ...], most: int, programs: int, columns: bool, hints: Mapping[Symbol, int]
) -> _Cut:
    """The cut of the inner loop that gives the most parts, up to `most`; other arguments as of `_cut` and `_most_parts`."""
    several = columns and _reads(kernel, _first_operands(kernel), lanes) >= 2
    even = _needs_even_parts(kernel)
    cuts = [
        _Cut(
            position, _parts(v.size, min(max(most, 1), points([v], hints)), programs, several=several, even=even), lanes
        )
        for position, v in enumerate(kernel.inner)
        if v not in lanes
    ]
    return max(cuts, key=lambda cut: cut.parts)


def _whole_loop(kernel: LoopKernel, most: int, hints: Mapping[Symbol, int]) -> _Cut | None:
    """A cut where no equal parts are known, as sizes are symbols: each iteration of one loop is a part."""
    worth = [(points([v], hints), n) for n, v in enumerate(kernel.inner)]
    fitting = [w for w in worth if 2 <= w[0] <= 4 * most]  # more parts than are worth a program are better than none
    if len(kernel.inner) < 2 or not fitting:
        return None
    chosen = max(fitting)[1]
    return _Cut(0 if chosen else 1, 1, (kernel.inner[chosen],))


def _lanes(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> tuple[LoopVar, ...]:
    """The inner loop along which memory runs for less than a line, where an outer loop goes on behind it.

    Such are the channels of a group where channels are innermost: reduced with the rest, a program would fetch a piece of each line. The
    first stage has a column for each channel instead, and the second one joins those of a group.
    """
    loads = {v for v in ir.walk(*_first_operands(kernel)) if v.op == "load"}
    loops = {v.symbol for v in (kernel.outer[-1:] + kernel.inner)}
    large = [v for v in loads if loops <= v.symbols]
    found = {_short_run(kernel, v.data.index, _LINE // buffers[v.data.buffer].dtype.itemsize) for v in large}
    lane = found.pop() if len(found) == 1 else None
    if lane is None or len(kernel.inner) < 2 or _bytes_of(kernel, buffers, hints) < _LARGE:
        return ()
    return (lane,)


def _short_run(kernel: LoopKernel, index: Expr, line: int) -> LoopVar | None:
    """The inner loop that walks element by element, for less than `line` of them, where the last outer loop steps over all of it."""
    run = next((v for v in kernel.inner if stride(index, v.symbol) is constant(1)), None)
    if run is None or not kernel.outer or (run.size.value or line) >= line:
        return None
    return run if stride(index, kernel.outer[-1].symbol) is run.size else None


def _reads_twice(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> bool:
    """Do programs of several columns read more than the cache holds, and all of it again for what they store?

    A kernel of its own costs the second reading no more, and it may walk memory in the order of what is stored.
    """
    inner = iterations(kernel.inner).value
    if not _follows(kernel) or (inner is not None and inner <= _IN_REGISTERS):
        return False
    if points(kernel.inner, hints) <= _ROWS:
        return False  # a tile holds columns as a whole
    return _bytes_of(kernel, buffers, hints) > CACHED and reads_columns(kernel, buffers, hints)


def _follows(kernel: LoopKernel) -> bool:
    """Is anything stored at every inner point that the reductions go into?"""
    return any(_stage_of(s) == 2 and not s.outer for s in kernel.stores)


def _bytes_of(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> int:
    """Of the first stage's operands that vary along all of the last loops."""
    ends = {v.symbol for v in (kernel.outer[-1:] + kernel.inner[-1:])}
    read = {v.data.buffer for v in ir.walk(*_first_operands(kernel)) if v.op == "load" and ends <= v.symbols}
    return sum(buffers[name].dtype.itemsize * estimate(buffers[name].span, hints) for name in read)


def _reductions(kernel: LoopKernel) -> list[Value]:
    """Those of the first pass over the inner loops."""
    return [v for v in kernel.values if v.op == "reduce" and v.level == 1]


def _joinable(kernel: LoopKernel) -> bool:
    """Can parts of the inner loops be joined afterwards?"""
    reductions = _reductions(kernel)
    if not reductions or any(v.data not in _KINDS for v in reductions) or any(v.op in IN_ORDER for v in kernel.values):
        return False
    return _separable(kernel)


def _enough(kernel: LoopKernel) -> int:
    """With so many programs it does not pay to make more of them."""
    # What follows reads everything again in a kernel of its own, and a program's own data may still be in the cache.
    return MULTIPROCESSORS if any(_stage_of(s) == 2 for s in kernel.stores) else _PROGRAMS // 2


def _first_operands(kernel: LoopKernel) -> list[Value]:
    """What the first stage reads: the reductions' operands, and what needs no reduction."""
    return [*(v.args[0] for v in _reductions(kernel)), *(s.value for s in kernel.stores if _stage_of(s) == 0)]


def _joins_means(kernel: LoopKernel) -> bool:
    return any(v.data.startswith("welford") for v in _reductions(kernel))


def _needs_even_parts(kernel: LoopKernel) -> bool:
    """Must parts be of one length? Means are joined so, and of what is updated in place nothing may be done twice."""
    if _joins_means(kernel):
        return True
    return any(_stage_of(s) == 0 for s in kernel.stores) and not set(kernel.reads).isdisjoint(kernel.writes)


def _parts(size: Expr, wanted: int, programs: int, *, several: bool, even: bool) -> int:
    """Into how many parts a loop is cut; 1: it is not.

    Args:
        size: of the loop.
        wanted: parts that are worth a program.
        programs: without a cut.
        several: the first stage reads several tensors.
        even: see `_needs_even_parts`.
    """
    fewest = 1 if even else wanted // 4
    divisor = next((n for n in range(wanted, fewest, -1) if n > 1 and size.divisible_by(n)), None)
    if several:
        # Fewer, larger programs where as many as can run at once divide the loop.
        divisor = next((n for n in range(2, wanted) if size.divisible_by(n) and two_each(n * programs)), divisor)
    return divisor or (1 if even else wanted)


def _reads(kernel: LoopKernel, values: Sequence[Value], lanes: Sequence[LoopVar]) -> int:
    """Of how many tensors an element is read for each point of the loops along which memory runs."""
    ends = {kernel.outer[-1].symbol, [v for v in kernel.inner if v not in lanes][-1].symbol}
    return sum(1 for v in ir.walk(*values) if v.op == "load" and ends <= v.symbols)


def _separable(kernel: LoopKernel) -> bool:
    """May the stages run one after the other: does none read what an earlier one has written over?"""
    written: list[set[str]] = [set(), set(), set()]
    read: list[set[str]] = [set(), set(), set()]
    for store in kernel.stores:
        stage = _stage_of(store)
        if store.scatters:
            return False
        written[stage].add(store.buffer)
        for value in ir.walk(store.value):
            if value.op == "load":
                read[stage].add(value.data.buffer)
    return written[0].isdisjoint(read[1] | read[2]) and written[1].isdisjoint(read[2])


def _loop(name: str, size: Expr) -> LoopVar:
    return LoopVar(Symbol(name, 0, None if size.value is None else max(size.value - 1, 0)), size)


class _Split:
    """Makes the stages.

    Attributes:
        part: the loop over the parts, where there is more than one.
        rest: the loop that is cut, within a part.
        position: of an element of a part along the whole of it.
        inner: the first stage's.
    """

    def __init__(self, kernel: LoopKernel, cut: _Cut, buffers: Mapping[str, Buffer]) -> None:
        self.kernel, self.cut, self.buffers = kernel, kernel.inner[cut.position], buffers
        total = self.cut.size
        self.even = total.divisible_by(cut.parts)
        length = total // cut.parts if self.even else (total + (cut.parts - 1)) // cut.parts
        # Of a size that is known no part is empty.
        chunks = cut.parts if total.value is None else ((total + length - 1) // length).value or 1
        part = _loop("part", constant(chunks))
        self.part = (part,) if chunks > 1 else ()
        self.lanes = cut.lanes
        self.rest = _loop(self.cut.symbol.name, length)
        inside = as_expr(self.rest.symbol) if length.value != 1 else constant(0)
        self.position = as_expr(part.symbol) * length + inside if self.part else inside
        # The last part does its last element again and again.
        last = self.position if self.even else minimum(self.position, total - 1)
        self.clamped = {self.cut.symbol: last}
        self.stores = any(_stage_of(s) == 0 for s in kernel.stores)
        self.inside = ir.apply("lt", ir.index_value(self.position), ir.index_value(total))
        reductions = _reductions(kernel)
        means = [mean_of(v) for v in reductions if v.data == "welford_m2"]
        self.reductions = list(dict.fromkeys((*reductions, *means)))
        walked = (self.rest if v is self.cut else v for v in kernel.inner if v not in cut.lanes)
        self.inner = tuple(v for v in walked if v.size.value != 1)
        if not self.inner:
            self.inner = (self.rest,)

    def stages(self) -> tuple[tuple[LoopKernel, ...], tuple[Buffer, ...]]:
        """The kernels, and the scratch buffers."""
        early, middle, late = ([s for s in self.kernel.stores if _stage_of(s) == n] for n in range(3))
        used = [v for v in self.reductions if any(v in ir.walk(s.value) for s in late)]
        whole = {v: scratch_buffer(self.kernel, f"whole{n}", v, self.kernel.outer) for n, v in enumerate(used)}
        known = [(b.name, v) for v, b in whole.items()]
        if not self._apart:
            outer = [*middle, *(Store(name, flat_index(self.kernel.outer), v, outer=True) for name, v in known)]
            first = stage_kernel(self.kernel, "statistics", self.kernel.outer, self.inner, [*early, *outer])
            return (first, self._apply(early, late, whole)), tuple(whole.values())
        scratch = {v: scratch_buffer(self.kernel, f"part{n}", v, self._columns) for n, v in enumerate(self.reductions)}
        partial = self._partial(early, scratch)
        offset = flat_index(self._columns)
        loads = {v: ir.load(b.name, offset, v.dtype) for v, b in scratch.items()}
        joined = {v: self._second(v, loads) for v in self.reductions}
        outer = [attrs.evolve(s, value=ir.substitute(s.value, {}, joined.get)) for s in middle]
        outer += [Store(name, flat_index(self.kernel.outer), joined[v], outer=True) for name, v in known]
        join = stage_kernel(self.kernel, "join", self.kernel.outer, self._apart, outer)
        kernels = (partial, join, self._apply(early, late, whole)) if late else (partial, join)
        return kernels, (*scratch.values(), *whole.values())

    @property
    def _apart(self) -> tuple[LoopVar, ...]:
        """Loops over what the first stage does apart and the second one joins."""
        return (*self.part, *self.lanes)

    @property
    def _columns(self) -> tuple[LoopVar, ...]:
        """The first stage's outer loops."""
        return (*self.part, *self.kernel.outer, *self.lanes)

    def _partial(self, early: Sequence[Store], scratch: Mapping[Value, Buffer]) -> LoopKernel:
        """Reduces the parts, and does what needs no reduction."""
        offset = flat_index(self._columns)
        stores = [Store(scratch[v].name, offset, self._first(v), outer=True) for v in self.reductions]
        stores += [
            attrs.evolve(s, index=s.index.substitute(self.clamped), value=ir.substitute(s.value, self.clamped))
            for s in early
        ]
        return stage_kernel(self.kernel, "partial", self._columns, self.inner, stores)

    def _apply(self, early: Sequence[Store], late: Sequence[Store], whole: Mapping[Value, Buffer]) -> LoopKernel:
        """Does what needs joined results at every inner point."""
        kernel = self.kernel
        known = {v: ir.load(b.name, flat_index(kernel.outer), v.dtype) for v, b in whole.items()}
        stores = self._from_memory([attrs.evolve(s, value=ir.substitute(s.value, {}, known.get)) for s in late], early)
        if any(v.op == "reduce" for v in ir.walk(*(s.value for s in stores))):
            return merged(stage_kernel(self.kernel, "apply", kernel.outer, kernel.inner, stores))
        loops = in_memory_order((*kernel.outer, *kernel.inner), stores[0].index)
        return merged(stage_kernel(self.kernel, "apply", loops, (), stores))

    def _from_memory(self, late: list[Store], early: Sequence[Store]) -> list[Store]:
        """The last stage's stores, with what the first one has stored read from there where that is less than what it is made of."""
        for done in early:
            value = done.value
            made = ir.load(done.buffer, done.index, self.buffers[done.buffer].dtype)
            if done.mode != "set" or value.op == "load" or made.dtype != value.dtype:
                continue
            read = [attrs.evolve(s, value=ir.substitute(s.value, {}, {value: made}.get)) for s in late]
            if self._bytes_read(read) < self._bytes_read(late):
                late = read
        return late

    def _bytes_read(self, stores: Sequence[Store]) -> int:
        """For each point of all loops; what varies along fewer of them is small beside it."""
        loops = {v.symbol for v in (*self.kernel.outer, *self.kernel.inner)}
        found = {v for v in ir.walk(*(s.value for s in stores)) if v.op == "load" and loops <= v.symbols}
        return sum(self.buffers[v.data.buffer].dtype.itemsize for v in found)

    def _first(self, value: Value) -> Value:
        """The reduction of one part."""
        if value.data in ir.DOTS:
            left, right = (ir.substitute(a, {self.cut.symbol: self.position}) for a in value.args)
            return ir.dot(left, right, fast=value.data == "fast_dot")
        if self.even:
            return ir.reduce(value.data, ir.substitute(value.args[0], {self.cut.symbol: self.position}))
        if self.stores:
            operand = ir.substitute(value.args[0], self.clamped)
        else:
            operand = ir.substitute(value.args[0], {self.cut.symbol: self.position}, self._mask)
        return ir.reduce(
            value.data,
            ir.where(self.inside, operand, ir.constant(identity(value.data, value.args[0].dtype), value.args[0].dtype)),
        )

    def _mask(self, node: Value) -> Value | None:
        """A load that does not go beyond the end."""
        if node.op != "load" or self.rest.symbol not in node.symbols:
            return None
        data, mask = node.data, self.inside
        if data.masked:
            mask = ir.apply("and", node.args[-1], mask)
        positions = node.args[: len(data.binders)]
        return Value("load", (*positions, mask), node.dtype, attrs.evolve(data, masked=True))

    def _second(self, value: Value, loads: Mapping[Value, Value]) -> Value:
        """The whole reduction from the parts' results."""
        if value.data == "welford_mean":
            return ir.reduce("welford_mean", loads[value])  # the parts are of one length
        if value.data in ir.DOTS:
            return ir.reduce("sum", loads[value])
        if value.data != "welford_m2":
            return ir.reduce(value.data, loads[value])
        # Within the parts, and between them: length * sum((mean of part - mean)**2).
        size = iterations(self.inner)
        known = None if size.value is None else ir.constant(float(size.value), value.dtype)
        count = known or ir.cast(ir.index_value(size), value.dtype)
        between = ir.apply("mul", ir.reduce("welford_m2", loads[mean_of(value)]), count)
        return ir.apply("add", ir.reduce("sum", loads[value]), between)
