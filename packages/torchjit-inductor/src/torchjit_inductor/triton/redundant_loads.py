"""Loads that a kernel can do without: what an earlier kernel has stored follows from what this one reads anyway.

The backward of a network with batch norms computes `relu(batch norm(x))` again for a convolution, which reads it from memory. The kernels of
the batch norm's gradient read `x` and ask of the other only where it is positive: with the formula, that is a third of their traffic less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.ir.dtypes import is_float
from torchjit_inductor.ir.kernel import LoopKernel, LoopVar, Store, rewrite_stores
from torchjit_inductor.ir.values import DOTS, Value, round_to, substitute, walk
from torchjit_inductor.schedule.align import aligned
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.steps import ExternStep, KernelStep, Program, Step

__all__ = ["derive_loads"]

_CHEAP = frozenset(
    (
        "add", "sub", "mul", "neg", "abs", "maximum", "minimum", "where", "cast", "round_to", "load", "constant",
        "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not",
    )
)  # fmt: skip
_MOST_VALUES = 24
"""Of a formula that costs next to nothing beside a load from memory."""


@final
@attrs.frozen
class _Made:
    """A buffer's formula: the only store to it, and the loops around that."""

    loops: tuple[LoopVar, ...]
    store: Store
    dtype: torch.dtype


def derive_loads(program: Program) -> Program:
    """The program with fewer loads in its CUDA kernels, whose loops are merged where something changed."""
    fixed = _written_once(program)
    known: dict[str, _Made] = {}
    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step, KernelStep) and step.kernel.device.type == "cuda":
            if not known.keys().isdisjoint(step.kernel.reads):
                step = KernelStep(_derived(step.kernel, known))
            _note(step.kernel, program, fixed, known)
        steps.append(step)
    return attrs.evolve(program, steps=tuple(steps))


def _written_once(program: Program) -> frozenset[str]:
    """Buffers that have one content from when they are first there to the end, and share their memory with no other."""
    writes = Counter(n for step in program.steps for n in step.writes)
    writes.update(n for n in program.inputs if isinstance(n, str))
    writes.update(list(program.constants))
    shared: set[str] = set()
    for step in program.steps:
        if isinstance(step, ExternStep) and step.aliases:
            shared.update((*step.aliases, *(o for o in step.outputs if o is not None)))
    return frozenset(n for n in program.buffers if writes[n] == 1 and n not in shared)


def _note(kernel: LoopKernel, program: Program, fixed: frozenset[str], known: dict[str, _Made]) -> None:
    """Remember the cheap formulas that a kernel stores."""
    if kernel.inner:
        return
    kernel = merged(kernel)
    for store in kernel.stores:
        values = list(walk(store.value))
        loads = [v for v in values if v.op == "load"]
        plain = all(not v.data.binders and not v.data.masked and v.data.buffer in fixed for v in loads)
        cheap = len(values) <= _MOST_VALUES and all(v.op in _CHEAP for v in values)
        if store.scatters or store.buffer not in fixed or not plain or not cheap or not loads or len(values) == 1:
            continue
        known[store.buffer] = _Made(kernel.outer, store, program.buffers[store.buffer].dtype)


def _derived(kernel: LoopKernel, known: Mapping[str, _Made]) -> LoopKernel:
    if any(v.op == "reduce" and v.data in DOTS for v in kernel.values):
        return kernel
    candidate = merged(kernel)
    loops = (*candidate.outer, *candidate.inner)
    loads = [v for v in candidate.values if v.op == "load"]
    found: dict[Value, Value] = {}
    for name in sorted(known.keys() & set(candidate.reads) - set(candidate.writes)):
        own = [v for v in loads if v.data.buffer == name]
        others = {v for v in loads if v not in found and v.data.buffer != name}
        # Where one element of the buffer has to be read, so might be all.
        formula = _formula(known[name], own[0], loops) if len(own) == 1 else None
        if formula is not None and _is_read_anyway(formula, own[0], others):
            found[own[0]] = formula
    if not found:
        return kernel
    return attrs.evolve(candidate, stores=rewrite_stores(candidate.stores, {}, found.get))


def _is_read_anyway(formula: Value, load: Value, others: set[Value]) -> bool:
    """Does the kernel read everything that the formula does, but for statistics that vary along fewer loops?"""
    return all(v in others or v.symbols < load.symbols for v in walk(formula) if v.op == "load")


def _formula(made: _Made, load: Value, loops: tuple[LoopVar, ...]) -> Value | None:
    """What the load gives, at the point of the kernel that does it; None if the two do not walk the same elements in whole loops."""
    if load.data.binders or load.data.masked:
        return None
    moving = [v for v in loops if v.symbol in load.symbols]
    pairs = aligned(made.loops, made.store.index, moving, load.data.index)
    if pairs is None:
        return None
    sizes = {v.symbol: v.size for v in moving}
    mapping: dict[Symbol, Expr] = {}
    for own, other in pairs:
        if other.scale.value != 1 or other.size is not sizes[other.var]:
            return None
        mapping[own.var] = mapping.get(own.var, constant(0)) + own.scale * as_expr(other.var)
    value = substitute(made.store.value, mapping)
    if made.store.index.substitute(mapping) is not load.data.index or value.dtype != load.dtype:
        return None
    if is_float(made.dtype) and made.dtype.itemsize == 2 and not _fits(value, made.dtype):
        value = round_to(value, made.dtype)
    return value


def _fits(value: Value, dtype: torch.dtype) -> bool:
    """Is it rounded to a 16-bit type, so that storing it changes nothing?"""
    if value.op == "round_to":
        return bool(value.data == dtype)
    if value.op == "constant":
        return bool(value.data == 0)
    return value.op in ("maximum", "minimum", "neg", "abs") and all(_fits(a, dtype) for a in value.args)
