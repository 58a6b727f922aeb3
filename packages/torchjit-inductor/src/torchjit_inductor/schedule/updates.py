"""Fewer launches for the small things of a training step: inputs are updated by the kernel that computes their new value,
and small independent kernels over equal loops become one.

A step of a network with batch norm updates three buffers per layer; each would cost a kernel for the value and one for
the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from torchjit_core.expr import Symbol, as_expr
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, element_count, iterations, reads_in_place, rewrite_stores
from torchjit_inductor.steps import ExternStep, KernelStep, Program, Step, TensorRef, memory_of

__all__ = ["combine_small", "store_in_place"]

SMALL = 2**16
"""Iterations of a kernel that costs little more than its launch."""
TINY = 2**13
"""Iterations of a kernel whose results may as well live from an earlier point of the program on."""
LOOKBACK = 256
"""So many steps are looked at between the two."""
MOST_BUFFERS = 48
MOST_VALUES = 128
"""Triton takes some 5 ms for each value of a kernel; smaller groups of equal kernels are compiled once."""


# ------------------------------------------------------------------------------------------------ updates in place


def store_in_place(program: Program) -> Program:
    """Where a step only copies a computed buffer into an input, let the kernel that computes it write the input."""
    steps: list[Step] = list(program.steps)
    buffers = dict(program.buffers)
    position = 0
    while position < len(steps):
        names = _copy(steps[position], program, buffers)
        made = None if names is None else _redirected(steps, position, *names)
        if made is None or names is None:
            position += 1
            continue
        producer, kernel = made
        steps[producer] = KernelStep(kernel)
        del steps[position], buffers[names[0]]
    return attrs.evolve(program, steps=tuple(steps), buffers=buffers)


def _copy(step: Step, program: Program, buffers: Mapping[str, Buffer]) -> tuple[str, str] | None:
    """The names (from, to) if the step copies all of a temporary into an input of the same layout."""
    if not isinstance(step, KernelStep) or step.kernel.inner or len(step.kernel.stores) != 1:
        return None
    (store,) = step.kernel.stores
    value = store.value
    if value.op != "load" or store.scatters or value.data.binders or value.data.masked:
        return None
    source, target = value.data.buffer, store.buffer
    outside = {n for n in program.inputs if isinstance(n, str)}
    if target not in outside or source in outside or not _is_temporary(source, program):
        return None
    a, b = buffers[source], buffers[target]
    same = (a.dtype, a.sizes, a.strides) == (b.dtype, b.sizes, b.strides) and value.data.index is store.index
    whole = iterations(step.kernel.outer) is element_count(a.sizes)
    return (source, target) if same and whole else None


def _is_temporary(name: str, program: Program) -> bool:
    held = {o.buffer for o in program.outputs if isinstance(o, TensorRef)}
    return name not in held and name not in program.constants


def _redirected(steps: list[Step], copy: int, source: str, target: str) -> tuple[int, LoopKernel] | None:
    """The position of the only kernel that writes `source`, and that kernel writing `target` instead."""
    writer = _only_writer(steps, copy, source)
    if writer is None or target in writer[1].writes:
        return None
    position, kernel = writer
    between = any(target in s.reads or target in s.writes for s in steps[position + 1 : copy])
    if between or any(isinstance(s, ExternStep) and target in s.aliases for s in steps[:copy]):
        return None
    (store,) = (s for s in kernel.stores if s.buffer == source)
    inner = {v.symbol for v in kernel.inner}
    if store.scatters or not reads_in_place(kernel.values, {target: store}, inner):
        return None
    moved = attrs.evolve(store, buffer=target)
    return position, attrs.evolve(kernel, stores=tuple(moved if s is store else s for s in kernel.stores))


def _only_writer(steps: Sequence[Step], copy: int, source: str) -> tuple[int, LoopKernel] | None:
    """The kernel before the copy that writes `source`, and its position, if nobody else writes or reads it."""
    writers = [(n, s) for n, s in enumerate(steps) if source in s.writes]
    if len(writers) != 1 or any(source in s.reads for n, s in enumerate(steps) if n != copy):
        return None
    ((position, step),) = writers
    return (position, step.kernel) if position < copy and isinstance(step, KernelStep) else None


# -------------------------------------------------------------------------------------------------- combining


def combine_small(program: Program, hints: Mapping[Symbol, int]) -> Program:
    """Join small pointwise kernels over loops of the same sizes that do not depend on one another.

    Kernels wait for others like them until somebody needs a result. A tiny one whose operands are there early goes to one that
    somebody needed before.
    """
    shared = memory_of(program.steps)
    steps: list[Step] = []
    waiting: dict[tuple[object, ...], list[LoopKernel]] = {}
    emitted: dict[tuple[object, ...], int] = {}

    def emit(key: tuple[object, ...]) -> None:
        emitted[key] = len(steps)
        steps.append(KernelStep(_together(waiting.pop(key))))

    def earlier(key: tuple[object, ...], kernel: LoopKernel) -> bool:
        """Let the last kernel of its sizes that was emitted do the work of this one, if it can."""
        at = emitted.get(key)
        if at is None or len(steps) - at > LOOKBACK or (iterations(kernel.outer).value or 0) > TINY:
            return False
        first = steps[at]
        if not isinstance(first, KernelStep) or _too_large([first.kernel, kernel]):
            return False
        between = (*steps[at:], *(KernelStep(k) for group in waiting.values() for k in group))
        if any(_ordered(step, [kernel], shared) for step in between):
            return False
        steps[at] = KernelStep(_together([first.kernel, kernel]))
        return True

    for step in program.steps:
        for key in [k for k, group in waiting.items() if _ordered(step, group, shared)]:
            emit(key)
        if not isinstance(step, KernelStep) or not _small(step.kernel, hints):
            steps.append(step)
            continue
        kernel = step.kernel
        key = (kernel.device, *(v.size for v in kernel.outer))
        if key not in waiting and earlier(key, kernel):
            continue
        if key in waiting and _too_large([*waiting[key], kernel]):
            emit(key)
        waiting.setdefault(key, []).append(kernel)
    for key in list(waiting):
        emit(key)
    return attrs.evolve(program, steps=tuple(steps))


def _small(kernel: LoopKernel, hints: Mapping[Symbol, int]) -> bool:
    if kernel.inner or kernel.symbols or kernel.device.type != "cuda" or any(s.scatters for s in kernel.stores):
        return False
    count = iterations(kernel.outer).value
    return count is not None and 0 < count <= SMALL


def _too_large(group: list[LoopKernel]) -> bool:
    """Would the kernels have too many arguments, or compute too much, for one launch?"""
    return len({n for k in group for n in k.buffers}) > MOST_BUFFERS or sum(len(k.values) for k in group) > MOST_VALUES


def _ordered(step: Step, group: list[LoopKernel], shared: Mapping[str, frozenset[str]]) -> bool:
    """Must the group and the step stay in their order? `shared`: see `memory_of`."""
    reads = _memory((n for k in group for n in k.reads), shared)
    writes = _memory((n for k in group for n in k.writes), shared)
    return bool(writes & _memory((*step.reads, *step.writes), shared) or reads & _memory(step.writes, shared))


def _memory(names: Iterable[str], shared: Mapping[str, frozenset[str]]) -> set[str]:
    return {part for n in names for part in shared.get(n, (n,))}


def _together(group: list[LoopKernel]) -> LoopKernel:
    first = group[0]
    stores = list(first.stores)
    for kernel in group[1:]:
        mapping = {a.symbol: as_expr(b.symbol) for a, b in zip(kernel.outer, first.outer, strict=True)}
        stores += rewrite_stores(kernel.stores, mapping)
    origins = tuple(dict.fromkeys(o for k in group for o in k.origins))
    return attrs.evolve(first, stores=tuple(stores), origins=origins)
