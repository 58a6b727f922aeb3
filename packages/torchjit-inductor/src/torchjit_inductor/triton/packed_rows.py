"""Rows of 16-bit elements that programs would read twice, kept in registers instead, packed as they lie in memory.

Widened, a row of 65,536 elements is all registers that a multiprocessor has; packed it is half of them, and one program of 32 warps
reads it once. What follows from it is computed again for each reduction.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from torchjit_inductor.ir.dtypes import HALF
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.ir.values import IN_ORDER
from torchjit_inductor.triton.plan import Axis, TilePlan, power_of_two

__all__ = ["packed_plan"]

_LONGEST = 65536
_OF_WARP = 2048
"""Elements of a row: 32 registers of each thread."""


def packed_plan(kernel: LoopKernel, buffers: Mapping[str, Buffer], plan: TilePlan) -> TilePlan | None:
    """A plan with whole rows in registers, for a kernel that walks them block by block under the given one; None where they do not fit.

    Args:
        kernel: with merged loops.
        buffers: of the graph.
        plan: from the table.
    """
    axis = plan.reduced
    if axis is None or len(plan.axes) > 1 or plan.walked is not None:
        return None
    block = power_of_two(axis.size.value or 0)
    if (
        not axis.looped
        or axis.size.value is None
        or block > _LONGEST
        or not _reads_once_and_stores(kernel, buffers, axis)
    ):
        return None
    whole = attrs.evolve(axis, block=block, looped=False)
    return attrs.evolve(plan, axes=(whole,), num_warps=max(1, block // _OF_WARP), kept=0, packed=True)


def _reads_once_and_stores(kernel: LoopKernel, buffers: Mapping[str, Buffer], axis: Axis) -> bool:
    """Does it read one tensor of 16-bit elements along the axis, and store there what its reductions lead to?"""
    walked = {v.symbol for v in axis.loops}
    loads = [v for v in kernel.values if v.op == "load" and not v.symbols.isdisjoint(walked)]
    if len(loads) != 1 or loads[0].data.masked or buffers[loads[0].data.buffer].dtype not in HALF:
        return False
    if any(v.op in IN_ORDER or (v.op == "reduce" and v.data.startswith("arg")) for v in kernel.values):
        return False
    return any(s.value.level and not s.outer for s in kernel.stores)
