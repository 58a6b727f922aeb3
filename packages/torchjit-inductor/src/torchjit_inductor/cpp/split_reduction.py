"""Reductions to so few results that threads have to share the inner points: into how many parts these are split.

A batch norm of 64 channels-last channels, or the sum of a whole tensor, is one unit of work by its outer points. Split into parts, each
pass over the inner points is a loop of its own that threads share: every part leaves its accumulators in memory, they are combined in
order, and the next pass begins from the result. Whether and how a kernel is split depends on its sizes alone, so that a
sum is the same whatever the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import attrs

from torchjit_inductor.ir.kernel import LoopVar

__all__ = ["Split", "split_of"]

FEW_UNITS = 16
"""With more units of outer points threads share those."""
MAX_PARTS = 64
LEAST_PART = 1 << 14
"""Inner points (times the columns) of a part: in less time than these take no other thread wakes up."""
LEAST_ROWS = 64
"""Rows of a part in the outer shape: combining the parts goes over one row of accumulators for each."""
MOST_BYTES = 1 << 18
"""For the accumulators of all parts: they are on the stack of the caller."""
STEPS = 256
"""Parts of a vector loop begin at multiples of this."""


@final
@attrs.frozen
class Split:
    """How the inner points are shared.

    Attributes:
        loop: the inner loop that is split.
        parts: how many there are; the last ones are empty where the loop is short.
        step: parts begin at its multiples.
    """

    loop: LoopVar
    parts: int
    step: int


def split_of(
    shape: str,
    inner: Sequence[LoopVar],
    vector: LoopVar,
    *,
    units: int | None,
    columns: int,
    accumulators: int,
    ordered: bool,
) -> Split | None:
    """The split of a reduction of the inner or outer shape, or None where it is not worth it.

    Args:
        inner: the loops that are reduced.
        vector: the loop that vectors walk.
        units: of the outer points, None if unknown.
        columns: that a unit has; 1 in the inner shape.
        accumulators: bytes of those of one part of each unit, for all reductions.
        ordered: positions count, so only the outermost loop can be split.
    """
    if not inner or units is None or not 0 < units < FEW_UNITS:
        return None
    points = math.prod(v.size.value or 1 << 31 for v in inner)
    loop = inner[0] if ordered else max(inner, key=lambda v: v.size.value or 1 << 31)
    step = STEPS if loop.symbol is vector.symbol else 1
    length = (loop.size.value or 1 << 31) // step
    parts = min(MAX_PARTS, points * columns // LEAST_PART, length, MOST_BYTES // max(accumulators, 1))
    if shape == "outer":
        parts = min(parts, points // LEAST_ROWS)
    return Split(loop, parts, step) if parts > 1 else None
