"""Fusion: each kernel joins the earlier group with which it shares the most bytes, if that is sound.

Kernels are taken in program order. A kernel may join any group that comes at or after the last step it depends on, so no
cycle can arise. Joining is sound when both have one iteration space, and when whatever the group stores and the kernel
loads is the very element that the same iteration stored: then the load is replaced by the stored value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, final

import attrs

from torchjit_core.expr import Expr, Symbol, as_expr
from torchjit_inductor.estimates import bytes_of, points
from torchjit_inductor.ir.kernel import (
    LoopKernel,
    Store,
    flat_index,
    inner_symbols,
    reads_in_place,
    rewrite_stores,
    roots,
    scans_itself,
)
from torchjit_inductor.ir.values import IN_ORDER, Value, cast, walk
from torchjit_inductor.schedule.align import Space, aligned, space_of
from torchjit_inductor.schedule.delay import fuse_delayed
from torchjit_inductor.schedule.digits import with_split_loops
from torchjit_inductor.steps import ExternStep, KernelStep, Program, Step, memory_of

__all__ = ["FusionLimits", "Refusal", "Shares", "fuse", "join"]


@final
@attrs.frozen
class FusionLimits:
    """When to stop.

    Attributes:
        buffers: a kernel has at most this many arguments.
        values: and at most this many distinct values.
        parallel: a pointwise kernel joins a reduction only if that has at least this many outer iterations, or it
            would lose its parallelism ...
        serial: ... or if there are at most this many iterations in all.
        lookback: how many earlier groups are candidates.
        epilogues: what reads the result of a reduction or product may be computed in its kernel.
    """

    buffers: int = 24
    values: int = 256
    parallel: int = 16
    serial: int = 16384
    lookback: int = 24
    epilogues: bool = True


Shares: TypeAlias = Callable[[LoopKernel], bool]
"""Are the inner points of a reduction of few rows shared among as many programs as fill the device, without reading anything twice?
Then what is computed at each of them loses no parallelism by joining it."""


@final
@attrs.frozen
class Refusal:
    """Why a kernel did not join a group with which it shares memory.

    Attributes:
        kernel, group: the graph's nodes that each computes.
        shared_bytes: what the fusion would have saved.
        why: in words.
    """

    kernel: tuple[str, ...]
    group: tuple[str, ...]
    shared_bytes: int
    why: str


def fuse(
    program: Program,
    hints: Mapping[Symbol, int],
    limits: FusionLimits | None = None,
    accepts: Callable[[LoopKernel], bool] | None = None,
    unwanted: Callable[[LoopKernel], str | None] | None = None,
    explain: Callable[[Refusal], None] | None = None,
    shares: Shares | None = None,
) -> Program:
    """Fuse the kernels of a program.

    Args:
        hints: a typical value of each size symbol.
        accepts: can the backend compile a kernel? Fusions that it could not stay undone.
        unwanted: what the backend is bad at in a kernel, or None. Kernels of which only the fusion would be so stay apart.
        explain: told of each fusion that would have saved memory traffic and was not made.
        shares: see `Shares`; None: no backend does.
    """
    limits = limits or FusionLimits()
    fusion = _Fusion(
        program, hints, limits, accepts or (lambda kernel: True), unwanted or (lambda kernel: None), explain, shares
    )
    for step in program.steps:
        fusion.add(step)
    fusion.join_grown()
    program = attrs.evolve(program, steps=tuple(fusion.groups))
    return fuse_delayed(program, hints, fusion.joined, limits.lookback)


@final
class _Fusion:
    def __init__(
        self,
        program: Program,
        hints: Mapping[Symbol, int],
        limits: FusionLimits,
        accepts: Callable[[LoopKernel], bool],
        unwanted: Callable[[LoopKernel], str | None],
        explain: Callable[[Refusal], None] | None,
        shares: Shares | None,
    ) -> None:
        self.buffers, self.hints, self.limits, self.explain = program.buffers, hints, limits, explain
        self.shares = shares
        self.memory = memory_of(program.steps)
        self.shared = frozenset[str]().union(*self.memory.values())
        self.accepts, self.unwanted = accepts, unwanted
        self.groups: list[Step] = []
        self.last_write: dict[str, int] = {}
        self.last_read: dict[str, int] = {}
        self.grown: set[LoopKernel] = set()

    def join_grown(self) -> None:
        """On GPUs, groups of rows that have grown may join an earlier one, with whose rows they had too little to do before: the squares'
        sums of two matrices, say, before both are needed at once."""
        if not any(map(_has_rows_on_gpu, self.grown)):
            return
        steps, grown = self.groups, self.grown
        self.groups, self.last_write, self.last_read, self.explain = [], {}, {}, None
        for step in steps:
            again = isinstance(step, KernelStep) and step.kernel in grown and _has_rows_on_gpu(step.kernel)
            self.add(step, join=again)

    def add(self, step: Step, *, join: bool = True) -> None:
        if isinstance(step, KernelStep) and join:
            for position, joined in self._candidates(step.kernel):
                self.grown.add(joined)
                self.groups[position] = KernelStep(joined)
                self._note(KernelStep(joined), position)
                return
        self.groups.append(step)
        self._note(step, len(self.groups) - 1)

    def _note(self, step: Step, position: int) -> None:
        views = step.outputs if isinstance(step, ExternStep) and step.aliases else ()
        for name in step.reads:
            for part in self._memory(name):
                self.last_read[part] = max(position, self.last_read.get(part, -1))
        for name in step.writes:
            # A view is made, which writes nothing to the memory that others see.
            for part in (name,) if name in views else self._memory(name):
                self.last_write[part] = max(position, self.last_write.get(part, -1))

    def _memory(self, name: str) -> frozenset[str]:
        return self.memory.get(name) or frozenset((name,))

    def _earliest(self, kernel: LoopKernel) -> int:
        """The last step that makes or writes what the kernel reads, or reads what it writes, by whatever name."""
        touched = {part for n in kernel.buffers for part in self._memory(n)} | {s.name for s in kernel.symbols}
        written = {part for n in kernel.writes for part in self._memory(n)}
        after_writes = max((self.last_write.get(n, -1) for n in touched), default=-1)
        return max(after_writes, *(self.last_read.get(n, -1) for n in written))

    def _by_two_names(self, first: LoopKernel, second: LoopKernel) -> bool:
        """Does one of the two write memory that the other may know by another name?"""
        return any(
            a != b and (a in first.writes or b in second.writes) and not self._memory(a).isdisjoint(self._memory(b))
            for a in self.shared.intersection(first.buffers)
            for b in self.shared.intersection(second.buffers)
        )

    def _candidates(self, kernel: LoopKernel) -> Iterator[tuple[int, LoopKernel]]:
        first = max(self._earliest(kernel), len(self.groups) - self.limits.lookback, 0)
        if self.explain is not None:
            for position in range(max(first - self.limits.lookback, 0), first):
                self._refuse(
                    position, kernel, "a step between the two has to run in between, or they are too far apart"
                )
        scored = []
        for position in range(first, len(self.groups)):
            group = self.groups[position]
            if isinstance(group, KernelStep) and group.kernel.device == kernel.device:
                score = self._shared_bytes(group.kernel, kernel)
                if score and not self._by_two_names(group.kernel, kernel):
                    scored.append((-score, -position))
        for _, position in sorted(scored):
            group = self.groups[-position]
            if isinstance(group, KernelStep):
                joined = join(group.kernel, kernel, self.hints, self.limits, self.shares)
                if isinstance(joined, str):
                    self._refuse(-position, kernel, joined)
                elif (why := self._new_in(joined, group.kernel, kernel)) is not None:
                    self._refuse(-position, kernel, why)
                elif self.accepts(joined):
                    yield -position, joined
                else:
                    self._refuse(-position, kernel, "the backend cannot compile the two as one")

    def joined(self, first: LoopKernel, second: LoopKernel) -> LoopKernel | None:
        """One kernel of two that may run one behind the other, if it is sound and the backend takes it."""
        if self._by_two_names(first, second):
            return None
        made = join(first, second, self.hints, self.limits, self.shares)
        if isinstance(made, str) or self._new_in(made, first, second) is not None:
            return None
        return made if self.accepts(made) else None

    def _new_in(self, joined: LoopKernel, first: LoopKernel, second: LoopKernel) -> str | None:
        """What the backend is bad at in a fusion and in neither of its kernels."""
        why = self.unwanted(joined)
        return None if why is None or self.unwanted(first) or self.unwanted(second) else why

    def _refuse(self, position: int, kernel: LoopKernel, why: str) -> None:
        group = self.groups[position]
        if self.explain is None or not isinstance(group, KernelStep):
            return
        shared = self._shared_bytes(group.kernel, kernel)
        if shared:
            self.explain(Refusal(_nodes(kernel), _nodes(group.kernel), shared, why))

    def _shared_bytes(self, group: LoopKernel, kernel: LoopKernel) -> int:
        """Bytes of memory traffic that fusion saves: what both access."""
        common = set(group.buffers) & set(kernel.buffers)
        return sum(bytes_of(self.buffers[name], self.hints) for name in common)


def _has_rows_on_gpu(kernel: LoopKernel) -> bool:
    """Does it reduce, on a GPU?"""
    return bool(kernel.inner) and kernel.device.type == "cuda"


def _nodes(kernel: LoopKernel) -> tuple[str, ...]:
    return tuple(o.node for o in kernel.origins)


# ---------------------------------------------------------------------- two kernels into one
def join(
    first: LoopKernel,
    second: LoopKernel,
    hints: Mapping[Symbol, int],
    limits: FusionLimits,
    shares: Shares | None = None,
) -> LoopKernel | str:
    """One kernel that does what `first` and then `second` do, or why there is none."""
    if len(set(first.buffers) | set(second.buffers)) > limits.buffers:
        return f"together they have more than {limits.buffers} arguments"
    if not limits.epilogues and first.inner and not set(first.writes).isdisjoint(second.reads):
        return "epilogue_fusion is off"
    why = "their loops cannot walk the shared memory in one order"
    for reduction in (first, second):
        if reduction.inner and not _wide(reduction, hints, limits):
            why += f", or the reduction's {points(reduction.outer, hints)} rows are too few to spread over threads"
            break
    made = _in_one_space(first, second, hints, limits, shares, why)
    if isinstance(made, str) and first.device.type == "cuda":
        # A window or a head is a digit of a row's number. As loops of their own such digits may have any order.
        split = with_split_loops(first, 1), with_split_loops(second, 1)
        if split != (first, second):
            return _in_one_space(*split, hints, limits, shares, made)
    return made


def _in_one_space(
    first: LoopKernel,
    second: LoopKernel,
    hints: Mapping[Symbol, int],
    limits: FusionLimits,
    shares: Shares | None,
    why: str,
) -> LoopKernel | str:
    for space, first_outer, second_outer in _spaces(first, second, hints, limits, shares):
        made = _joined(first, second, space, first_outer, second_outer)
        if isinstance(made, str):
            why = made
        elif len(made.values) > limits.values:
            why = f"together they compute more than {limits.values} values"
        else:
            return made
    return why


def _spaces(
    first: LoopKernel, second: LoopKernel, hints: Mapping[Symbol, int], limits: FusionLimits, shares: Shares | None
) -> Iterator[tuple[Space, bool, bool]]:
    """Shared iteration spaces to try, and whether the first's and the second's stores move to the outer level."""
    for a, b in _common_accesses(first, second):
        if bool(first.inner) == bool(second.inner):
            space = _whole_space(first, a, second, b, lead=0, alike=True)
            yield from [] if space is None else [(space, False, False)]
            continue
        lead = 0 if first.inner else 1
        reduction = (first, second)[lead]
        wide = _wide(reduction, hints, limits)
        space = _whole_space(first, a, second, b, lead=lead) if wide or shares is not None else None
        if space is not None and (wide or _is_shared(first, second, space, shares)):
            yield space, False, False
        pairs = aligned(first.outer, a, second.outer, b)
        rows = None if pairs is None else space_of(pairs, reduction.outer, (), lead)
        if rows is not None:
            yield attrs.evolve(rows, inner=reduction.inner), lead == 1, lead == 0


def _wide(reduction: LoopKernel, hints: Mapping[Symbol, int], limits: FusionLimits) -> bool:
    """Are there enough outer iterations to spread over threads, or too little work for that to matter?"""
    outer = points(reduction.outer, hints)
    return outer >= limits.parallel or outer * points(reduction.inner, hints) <= limits.serial


def _is_shared(first: LoopKernel, second: LoopKernel, space: Space, shares: Shares | None) -> bool:
    """Would the two in one space be a kernel whose inner points programs share?"""
    made = _joined(first, second, space, False, False)
    return shares is not None and not isinstance(made, str) and shares(made)


def _whole_space(
    first: LoopKernel, first_index: Expr, second: LoopKernel, second_index: Expr, *, lead: int, alike: bool = False
) -> Space | None:
    """The space of all loops.

    Args:
        lead: whose outer and inner loops it has.
        alike: only if both split into outer and inner loops alike: a reduction then runs over the same points.
    """
    pairs = aligned((*first.outer, *first.inner), first_index, (*second.outer, *second.inner), second_index)
    if pairs is None:
        return None
    inner = [{v.symbol for v in kernel.inner} for kernel in (first, second)]
    if alike and any((a.var in inner[0]) is not (b.var in inner[1]) for a, b in pairs):
        return None
    leading = (first, second)[lead]
    return space_of(pairs, leading.outer, leading.inner, lead)


def _common_accesses(first: LoopKernel, second: LoopKernel) -> Iterator[tuple[Expr, Expr]]:
    """Pairs of index expressions of one buffer, one from each kernel; what the first stores comes first."""
    tried: set[tuple[Expr, Expr]] = set()
    stored = {s.buffer: s.index for s in first.stores}
    loads_first, loads_second = _loads(first), _loads(second)
    for name, indices in loads_second.items():
        for index in indices:
            if name in stored and (stored[name], index) not in tried:
                tried.add((stored[name], index))
                yield stored[name], index
    for name, indices in loads_second.items():
        for index in indices:
            for other in loads_first.get(name, ())[:2]:
                if (other, index) not in tried and len(tried) < 12:
                    tried.add((other, index))
                    yield other, index
    if not tried:
        yield from _of_results(first, second)
    yield from _of_windows(first, second)


def _of_results(first: LoopKernel, second: LoopKernel) -> Iterator[tuple[Expr, Expr]]:
    """The indices of what two pointwise kernels store, if they read one buffer at computed positions: an interpolation's corners, say."""
    if first.inner or second.inner or first.device.type != "cuda":
        return
    read = _picked_from(first) & _picked_from(second)
    if read and not any(s.scatters for s in (*first.stores, *second.stores)):
        yield first.stores[-1].index, second.stores[-1].index


def _of_windows(first: LoopKernel, second: LoopKernel) -> Iterator[tuple[Expr, Expr]]:
    """The positions of two pointwise kernels over equal loops that read the same elements: what is largest in a window, and where that is."""
    sizes = [[v.size for v in kernel.outer] for kernel in (first, second)]
    if first.inner or second.inner or sizes[0] != sizes[1] or first.device.type != "cpu":
        return
    mapping = {b.symbol: as_expr(a.symbol) for a, b in zip(first.outer, second.outer, strict=True)}
    known, others = _loads(first), _loads(second)
    common = known.keys() & others.keys()
    if common and all({i.substitute(mapping) for i in others[name]} == {*known[name]} for name in common):
        yield flat_index(first.outer), flat_index(second.outer)


def _picked_from(kernel: LoopKernel) -> set[str]:
    """Buffers that a kernel reads at computed positions."""
    return {v.data.buffer for v in kernel.values if v.op == "load" and v.data.binders}


def _loads(kernel: LoopKernel) -> dict[str, list[Expr]]:
    found: dict[str, list[Expr]] = {}
    for value in kernel.values:
        if value.op == "load" and not value.data.binders and not value.data.masked:
            found.setdefault(value.data.buffer, []).append(value.data.index)
    return found


def _joined(
    first: LoopKernel, second: LoopKernel, space: Space, first_outer: bool, second_outer: bool
) -> LoopKernel | str:
    before, after = rewrite_stores(first.stores, space.first), rewrite_stores(second.stores, space.second)
    if first_outer:
        before = tuple(attrs.evolve(s, outer=True) for s in before)
    if second_outer:
        after = tuple(attrs.evolve(s, outer=True) for s in after)
    forwarded = _forward({s.buffer: s for s in before}, after)
    if forwarded is None:
        return "an iteration reads another element than the one that it has just stored"
    joining = _Joining(first, second, space, before, forwarded)
    for forbidden, why in _FORBIDDEN:
        if forbidden(joining):
            return why
    origins = tuple(dict.fromkeys((*first.origins, *second.origins)))
    return LoopKernel(first.name, first.device, space.outer, space.inner, joining.stores, origins)


@final
@attrs.frozen(eq=False)
class _Joining:
    """Two kernels in a shared space: what each of them stores there."""

    first: LoopKernel
    second: LoopKernel
    space: Space
    before: tuple[Store, ...]
    after: tuple[Store, ...]

    @property
    def stores(self) -> tuple[Store, ...]:
        return (*self.before, *self.after)

    @property
    def inner(self) -> set[Symbol]:
        return {v.symbol for v in self.space.inner}


def _writes_too_early(j: _Joining) -> bool:
    return not _safe_writes(j.before, j.after, j.inner)


def _changes_order(j: _Joining) -> bool:
    keeps = _keeps_order(j.first, j.space.first, j.space) and _keeps_order(j.second, j.space.second, j.space)
    return not keeps


def _scatters_in_reduction(j: _Joining) -> bool:
    return bool(j.space.inner) and any(s.scatters for s in j.stores)


def _row_depends_on_position(j: _Joining) -> bool:
    inner = j.inner
    return any(s.outer and (s.index.symbols & inner or inner_symbols(s.value) & inner) for s in j.stores)


def _row_wants_scan(j: _Joining) -> bool:
    return any(s.outer and scans_itself(s.value) for s in j.stores)


_FORBIDDEN: tuple[tuple[Callable[[_Joining], bool], str], ...] = (
    (_writes_too_early, "an iteration writes what another one, or a later pass over the row, still reads"),
    (
        _changes_order,
        "a scan, a sort, a position or a scatter counts on an order of iterations that the other does not have",
    ),
    (_scatters_in_reduction, "a scatter does not go into a reduction's kernel"),
    (_row_depends_on_position, "a result that is stored once per row depends on the position in the row"),
    (_row_wants_scan, "the value of a scan or a sort is wanted once per row"),
)
"""What may not be in a joined kernel, and what to say then."""


def _keeps_order(kernel: LoopKernel, mapping: Mapping[Symbol, Expr], space: Space) -> bool:
    """Does the shared space run the kernel's points in the order that its scans, sorts, positions and scatters count on?"""
    if any(s.scatters for s in kernel.stores):
        return flat_index(kernel.outer).substitute(mapping) is flat_index(space.outer)
    if len(space.inner) > 1 and any(v.op == "sort" for v in kernel.values):
        return False  # a row that is sorted is one loop
    if any(v.op in IN_ORDER or (v.op == "reduce" and v.data.startswith("arg")) for v in kernel.values):
        return flat_index(kernel.inner).substitute(mapping) is flat_index(space.inner)
    return True


def _forward(stored: Mapping[str, Store], after: Sequence[Store]) -> tuple[Store, ...] | None:
    """Replace loads of what was just stored by the stored values; None where the elements differ."""
    failed = False

    def replace(value: Value) -> Value | None:
        nonlocal failed
        if value.op != "load" or value.data.buffer not in stored:
            return None
        store = stored[value.data.buffer]
        if not store.is_read_by(value):
            failed = True
            return None
        return _as_stored(store.value, value)

    made = rewrite_stores(after, {}, replace)
    return None if failed else made


def _as_stored(value: Value, load: Value) -> Value | None:
    """The stored value as the load would give it. Values of 16-bit buffers skip the rounding, as in one formula."""
    return value if value.dtype == load.dtype else cast(value, load.dtype)


def _safe_writes(before: Sequence[Store], after: Sequence[Store], inner: set[Symbol]) -> bool:
    """No write hits what another iteration or a later level still reads, and nothing is written twice."""
    written = [s.buffer for s in (*before, *after)]
    if len(set(written)) < len(written):
        return False
    stores = (*before, *after)
    return reads_in_place(walk(*roots(stores)), {s.buffer: s for s in stores}, inner)
