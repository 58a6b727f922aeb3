"""Kernels in which one tensor lies across the others, or all lie across the loops: what memory runs along there, and how much of it a tile has."""

from __future__ import annotations

import attrs

from torchjit_inductor.ir.kernel import LoopVar
from torchjit_inductor.triton.facts import Facts

__all__ = ["columns_outside"]


def columns_outside(facts: Facts) -> Facts | None:
    """A reduction whose large loads walk memory along an outer loop that is not the last, with that one last.

    So are rows of an image whose channels are innermost: its result is row-major, and its loops are in the result's order.

    Returns:
        None: there is no such loop, or as many walk memory along the inner ones.
    """
    kernel = facts.kernel
    inner, outer = ({v.symbol for v in loops} for loops in (kernel.inner, kernel.outer))
    accesses = [v.data.index for v in facts.loads] + [s.index for s in kernel.stores]
    large = [i for i in accesses if i.symbols & inner and i.symbols & outer]

    def along(var: LoopVar) -> int:
        return sum(1 for i in large if facts.unit(i, var))

    best = max(kernel.outer[:-1], key=along, default=None)
    if best is None or along(best) <= along(kernel.inner[-1]) or facts.count([best]) < 8:
        return None
    loops = (*(v for v in kernel.outer if v is not best), best)
    return Facts(attrs.evolve(kernel, outer=loops), facts.buffers, facts.hints)
