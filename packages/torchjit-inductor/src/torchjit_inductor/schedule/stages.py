"""Stages: kernels that take the place of one and run one after the other, with scratch memory between them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from torchjit_core.expr import Expr
from torchjit_inductor.estimates import estimate
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir import values as ir
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store, element_count
from torchjit_inductor.ir.values import Value

__all__ = ["in_memory_order", "mean_of", "scratch_buffer", "stage_kernel"]


def stage_kernel(
    kernel: LoopKernel, name: str, outer: Sequence[LoopVar], inner: Sequence[LoopVar], stores: Sequence[Store]
) -> LoopKernel:
    """One stage of a kernel.

    Args:
        kernel: whose place the stages take.
        name: of the stage; it goes before the number in the kernel's name: of `sum_3` the stage `join` is `sum_join_3`.
        outer, inner, stores: the stage's.
    """
    stem, _, number = kernel.name.rpartition("_")
    full = f"{stem}_{name}_{number}" if number.isdigit() else f"{kernel.name}_{name}"
    return attrs.evolve(kernel, name=full, outer=tuple(outer), inner=tuple(inner), stores=tuple(stores))


def scratch_buffer(kernel: LoopKernel, name: str, value: Value, loops: Sequence[LoopVar]) -> Buffer:
    """Memory for one value at each point of loops, of the value's dtype, contiguous in the order of the loops.

    Args:
        kernel: whose stages write and read it.
        name: unique among the buffers of these.
        value: that is kept.
        loops: its element is at their `flat_index`.
    """
    sizes = tuple(v.size for v in loops)
    strides = tuple(element_count(sizes[n + 1 :]) for n in range(len(sizes)))
    return Buffer(f"{kernel.name}_{name}", value.dtype, kernel.device, sizes, strides)


def in_memory_order(loops: Sequence[LoopVar], index: Expr) -> list[LoopVar]:
    """The loops, the one with the largest stride in an index first; in the given order where strides are not known."""
    strides = [stride(index, v.symbol) for v in loops]
    known = [estimate(step, {}) for step in strides if step is not None]
    if len(known) < len(loops):
        return list(loops)
    return [loops[n] for n in sorted(range(len(loops)), key=lambda n: -known[n])]


def mean_of(m2: Value) -> Value:
    """The mean that belongs to a sum of squared distances from it (`welford_m2`)."""
    return ir.reduce("welford_mean", m2.args[0])
