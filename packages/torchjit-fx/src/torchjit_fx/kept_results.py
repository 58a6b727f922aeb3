"""Results that a cache of the program keeps: calls of a function under `functools.lru_cache` with a size that varies.

The function is interpreted, so it runs in each call of the graph, where eager PyTorch runs it once for each size. That shows if it draws
random numbers, or if somebody writes to its result, which the next call is given.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.leaves import Step
from torchjit_fx.protocols import CaptureContext

__all__ = ["refuse_kept_results"]


def refuse_kept_results(steps: Sequence[Step], capture: CaptureContext) -> None:
    """Break at a call whose cache shows.

    Args:
        steps: all that the region has recorded.
    """
    if all(step.kept is None for step in steps):
        return
    for step in steps:
        if step.kept is not None and step.random:
            capture.break_at_mark(step.kept, _shows("it draws random numbers", step))
        for storage in step.written:
            makers = [None if leaf.step is None else leaf.step.kept for leaf in storage.leaves]
            mark = next((kept for kept in (step.kept, *makers) if kept is not None), None)
            if mark is not None and any(kept != step.kept for kept in makers):
                what = "its result is written to" if step.kept is None else "it writes to what it has not made"
                capture.break_at_mark(mark, _shows(what, step))


def _shows(what: str, step: Step) -> GraphBreak:
    return GraphBreak(breaks.KEPT_RESULT, what, step.location)
