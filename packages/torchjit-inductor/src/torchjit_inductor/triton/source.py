"""The whole text of a kernel: signature, statements in order, loops, comments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torchjit_core.expr import Expr, Symbol
from torchjit_inductor.ir.dtypes import HALF
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Overlap, Store
from torchjit_inductor.ir.values import IN_ORDER, Value
from torchjit_inductor.triton.contraction import DotPlan
from torchjit_inductor.triton.dot import DESCRIPTORS, dot_lines
from torchjit_inductor.triton.emit import Emitter, is_rounded, pointer_names
from torchjit_inductor.triton.operations import Dialect
from torchjit_inductor.triton.plan import Axis, TilePlan
from torchjit_inductor.triton.reductions import Reducer, literal_full

__all__ = ["HEADER", "RELEASE", "WAIT", "function_name", "kernel_comments", "kernel_source"]

HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice

from torchjit_inductor.triton import prelude as tj
"""
RELEASE, WAIT = "tj.gdc_launch_dependents()", "tj.gdc_wait()"
"""See `overlap`."""
_INDENT = "    "


def kernel_source(
    kernel: LoopKernel,
    buffers: Mapping[str, Buffer],
    plan: TilePlan | DotPlan,
    *,
    wide: bool = False,
    portable: bool = False,
    streaming: bool = False,
) -> str:
    """The text of the kernel's function, decorated with `triton.jit`; it needs `HEADER` before it.

    Args:
        kernel: with merged loops.
        buffers: of the graph.
        plan: how to tile it.
        wide: positions need 64 bits.
        portable: text for Triton's interpreter.
        streaming: tell the cache to drop what the kernel reads once.
    """
    dialect = Dialect(
        any(buffers[s.buffer].dtype not in HALF for s in kernel.stores),
        portable,
        {buffers[s.buffer].dtype.itemsize for s in kernel.stores if not s.outer} == {1},
    )
    if isinstance(plan, DotPlan):
        lines = dot_lines(kernel, buffers, plan, wide=wide, dialect=dialect)
    else:
        emitter = Emitter(kernel, buffers, plan, wide, dialect)
        emitter.streaming = streaming
        overlap = None if portable else kernel.overlap
        emitter.head += [RELEASE] if overlap is not None and overlap.releases else []
        emitter.head += emitter.tile.program()
        lines = _statements(emitter, overlap)
    parameters = [*pointer_names(kernel).values(), *(s.name for s in kernel.symbols)]
    if isinstance(plan, DotPlan) and plan.operands:
        parameters += DESCRIPTORS
    text = ["@triton.jit", f"def {function_name(kernel)}({', '.join(parameters)}):"]
    return "\n".join(text + [_INDENT + line for line in lines]) + "\n"


def function_name(kernel: LoopKernel) -> str:
    """The kernel's name without its number, so that repeated kernels have one text."""
    return re.sub(r"_\d+$", "", kernel.name) or "kernel"


def kernel_comments(
    kernel: LoopKernel, buffers: Mapping[str, Buffer], plan: TilePlan | DotPlan, given: Mapping[Symbol, Expr]
) -> str:
    """What a reader wants to know before the text: where the kernel came from, its arguments and its tile."""
    lines = [f"# {o.node}: {o.op}" + (f"  ({o.source})" if o.source else "") for o in kernel.origins]
    for name, pointer in pointer_names(kernel).items():
        buffer = buffers[name]
        sizes = ", ".join(map(str, buffer.sizes))
        lines.append(f"# {pointer} = {name}: {str(buffer.dtype).removeprefix('torch.')}[{sizes}]")
    lines += [f"# {symbol} = {size}" for symbol, size in given.items()]
    tile = ", ".join(f"{a.block} of {a.size} {'reduced' if a.name == 'r' else 'along ' + a.name}" for a in plan.axes)
    lines.append(f"# tile: {tile or 'one element'}; {plan.num_warps} warps; programs: {plan.programs}")
    return "\n".join(lines) + "\n"


def _statements(emitter: Emitter, overlap: Overlap | None) -> list[str]:
    """All statements of a kernel without a product of matrices, behind those that say where the program is."""
    plan, reduced = emitter.plan, emitter.plan.reduced
    if plan.walked is None and (reduced is None or not reduced.looped):
        return _straight(emitter, overlap)
    emitter.head += [WAIT] if overlap is not None else []
    return _looped(emitter) if plan.walked is None else _walked(emitter, plan.walked)


def _straight(emitter: Emitter, overlap: Overlap | None) -> list[str]:
    """No loop: every value once, then the stores."""
    kernel = emitter.kernel
    if emitter.plan.reduced is not None:
        emitter.head += emitter.tile.reduced("")
    if overlap is not None:
        for value in kernel.values:
            if value.op == "load" and not value.args and value.data.buffer in overlap.fixed:
                emitter.value(value)
        emitter.head.append(WAIT)
    if emitter.plan.reduced is not None:
        _write_values(emitter)
    statements = [emitter.store(s) for s in kernel.stores]
    return emitter.head + _barrier(kernel) + statements


def _write_values(emitter: Emitter) -> None:
    """All values of a kernel whose tiles have whole rows."""
    reducer = Reducer(emitter)
    for value in emitter.kernel.values:
        if value.op == "reduce":
            if not emitter.is_defined(value):
                reducer.persistent(value)
        elif value.op != "constant" and _wanted_early(value):
            emitter.value(value)


def _walked(emitter: Emitter, loop: LoopVar) -> list[str]:
    """A loop over whole rows: what belongs to columns is read before it, and their sums are stored behind it."""
    kernel, tile = emitter.kernel, emitter.tile
    emitter.head += tile.reduced("")
    for value in kernel.values:
        if value.op == "load" and not value.level and loop.symbol not in value.symbols:
            emitter.value(value)
    before, emitter.head = emitter.head, []
    _write_values(emitter)
    statements, behind = [], []
    for store in kernel.stores:
        if store.mode != "sum":
            statements.append(emitter.store(store))
            continue
        total, shape = emitter.fresh("total"), tile.shape(tile.all_axes)
        before.append(f"{total} = {literal_full(shape, 0.0, store.value.dtype)}")
        text = tile.spread(emitter.value(store.value), emitter.axes(store.value), tile.all_axes)
        statements.append(f"{total} = {total} + {text}")
        behind.append(emitter.store_total(store, total))
    inside = emitter.head + _barrier(kernel) + statements
    walk = f"for {loop.symbol.name} in range(0, {tile.size(loop.size)}):"
    return [*before, walk, *(_INDENT + line for line in inside), *behind]


def _wanted_early(value: Value) -> bool:
    """Comparisons of indices are written where they are used, without their 64-bit operands; roundings perhaps as conversions."""
    return value.op != "index" and not is_rounded(value)


def _looped(emitter: Emitter) -> list[str]:
    """One run over the `r` axis per level of the kernel."""
    kernel, axis = emitter.kernel, emitter.plan.reduced
    if axis is None:
        raise ValueError("the plan has no reduced axis")
    reducer = Reducer(emitter)
    reductions = [v for v in kernel.values if v.op == "reduce"]
    merged_sums = reducer.merge_softmax(reductions)
    reductions = [v for v in reductions if v not in merged_sums]
    passes = _passes(kernel, reductions)
    emitter.passes = sum(1 for reduced, stores in passes if reduced or stores)
    for number, (reduced, stores) in enumerate(passes):
        if not reduced and not stores:
            continue
        emitter.start_pass(last=number == len(passes) - 1)
        _write_pass(emitter, reducer, axis, reduced, stores)
    statements = [emitter.store(s) for s in kernel.stores if s.outer]
    return emitter.head + statements


def _write_pass(
    emitter: Emitter, reducer: Reducer, axis: Axis, reduced: Sequence[Value], stores: Sequence[Store]
) -> None:
    """One run over an axis, behind what has been written so far: these reductions, and these stores."""
    opened = reducer.open(reduced)
    for start, end, keeps in _parts_of_run(emitter, axis):
        emitter.start_pass(emitter.last_pass, keeps)
        for value, names in opened:
            reducer.step(value, names)
        statements = [emitter.store(s) for s in stores]
        barrier = _barrier(emitter.kernel) if stores else []
        inside = emitter.tile.reduced("r_start") + emitter.body + barrier + statements
        if _begins_at_end(emitter, axis, reduced):
            last = ((axis.size.value or 1) - 1) // axis.block * axis.block
            emitter.head.append(f"for r_left in range(0, {end}, {axis.block}):")
            inside.insert(0, f"r_start = {last} - r_left")
        else:
            emitter.head.append(f"for r_start in range({start}, {end}, {axis.block}):")
        emitter.head += [_INDENT + line for line in inside]
    for value, names in opened:
        reducer.close(value, names)


def _parts_of_run(emitter: Emitter, axis: Axis) -> list[tuple[int, str, bool]]:
    """Start and end of each part of a run over an axis, and whether the cache should keep it: most often the run as a whole."""
    end, kept, size = emitter.tile.size(axis.size), emitter.plan.kept, axis.size.value
    if not kept or emitter.last_pass or size is None:
        return [(0, end, True)]
    start = max(0, -(-size // axis.block) - kept // axis.block) * axis.block
    return [(0, str(start), False), (start, end, True)] if 0 < start < size else [(0, end, start == 0)]


def _begins_at_end(emitter: Emitter, axis: Axis, reduced: Sequence[Value]) -> bool:
    """Does a run begin at the end of the axis, of which the cache has most?"""
    if not emitter.plan.kept or not emitter.last_pass or reduced or axis.size.value is None:
        return False
    return not any(v.op in IN_ORDER for v in emitter.kernel.values)


def _passes(kernel: LoopKernel, reductions: Sequence[Value]) -> list[tuple[list[Value], list[Store]]]:
    """For each run over the `r` axis the reductions that it completes and the stores that it does.

    A store to a buffer that the kernel also reads waits for the last run, because every run reads anew.
    """
    inside = [s for s in kernel.stores if not s.outer]
    count = max([v.level for v in reductions] + [s.value.level + 1 for s in inside], default=1)
    passes: list[tuple[list[Value], list[Store]]] = [([], []) for _ in range(count)]
    for value in reductions:
        passes[value.level - 1][0].append(value)
    for store in inside:
        passes[count - 1 if store.buffer in kernel.reads else store.value.level][1].append(store)
    return passes


def _barrier(kernel: LoopKernel) -> list[str]:
    """Before the first store in place, every thread must have done its loads: several may read one element."""
    if kernel.inner and not set(kernel.reads).isdisjoint(kernel.writes):
        return ["tl.debug_barrier()"]
    return []
