"""Around a graph that draws random numbers. Entries on disk name what is here, so that nothing of the capture is imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchjit_core.writing import nothing_written

if TYPE_CHECKING:
    from torchjit_fx.leaves import Step

__all__ = ["giving_back_random_numbers"]


def giving_back_random_numbers(target: Callable[..., Any], steps: Sequence[Step], writes: bool) -> Callable[..., Any]:
    """`target`, made to leave the generator as it was if it raises and has not written yet; the graph of steps that draw nothing as
    it is.

    Whatever draws pays for it (0.5 us): which operations raise for what is in their tensors no list knows, and each may run out of memory.

    Args:
        target: of the region.
        steps: those of the graph.
        writes: the graph writes to memory from outside.
    """
    if not any(step.random for step in steps):
        return target

    def run(*inputs: Any) -> Any:
        generator = torch.default_generator
        before = generator.get_state()
        try:
            return target(*inputs)
        except Exception as error:
            if not writes or nothing_written(error):
                generator.set_state(before)
            raise

    return run
