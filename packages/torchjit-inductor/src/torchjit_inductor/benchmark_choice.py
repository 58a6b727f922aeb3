"""Short races between two ways to compute the same, remembered on disk.

A race is a fact about the machine: which library or memory layout is faster for given shapes. Its result is kept beside the
compiled kernels, so that every process decides alike and only the first one pays for finding out.

One thread is measured by the processor time that it takes, which other load hardly changes. With several that would count
threads that wait for one another, so it is the time that passes, in runs during which threads kept their processors.
Where there is no such run the machine is too busy to tell: processor time decides for this process, and is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, process_time
from typing import final

import attrs
import torch
from torch.utils._python_dispatch import _disable_current_modes

from torchjit_core.events import activity
from torchjit_inductor.cpp.build import machine
from torchjit_inductor.measurements import Measurements

try:
    import resource
except ImportError:  # there is none on Windows
    resource = None  # type: ignore[assignment]

__all__ = ["AutotuneCache", "Outcome", "best_times"]

ROUNDS = 5
MORE_ROUNDS = 15
"""With several threads, until there were `ROUNDS` without a disturbance."""
SECONDS = 0.1
"""A race that has taken this long on each processor ends with the round that it is in: long runs vary little."""
UNDISTURBED = 0.05
"""In a run of so many seconds a thread may lose its processor once: it is gone for a few milliseconds."""


@final
@attrs.frozen
class Outcome:
    """Seconds of the best of a few runs of each way.

    Attributes:
        quiet: nothing else disturbed them.
    """

    first: float
    second: float
    quiet: bool


class AutotuneCache:
    """Results of races, by a key that says what ran.

    Args:
        cache_dir: see `InductorSettings.cache_dir`.
    """

    def __init__(self, cache_dir: str | None) -> None:
        self._known = Measurements(
            cache_dir,
            "races",
            lambda: f"{machine()} torch {torch.__version__}",
            lambda pair: (float(pair[0]), float(pair[1])),
        )

    def times(
        self, key: tuple[object, ...], contest: Callable[[], tuple[Callable[[], object], Callable[[], object]]]
    ) -> tuple[float, float]:
        """Seconds of the first and of the second way.

        Args:
            key: what runs: shapes, strides, arguments.
            contest: gives the two; only called when the result is not known.
        """
        threads = torch.get_num_threads()
        text = repr((*key, threads, *(("elapsed",) if threads > 1 else ())))
        found: tuple[float, float] | None = self._known.get(text)
        if found is None:
            # The caller may be tracing with fake tensors: the race needs real ones.
            with activity("autotuning"), _disable_current_modes(), torch.no_grad():
                outcome = best_times(*contest(), threads)
            found = outcome.first, outcome.second
            self._known.put(text, found, keep=outcome.quiet)
        return found


def best_times(first: Callable[[], object], second: Callable[[], object], threads: int = 1) -> Outcome:
    """Race the two. Runs alternate, so that both meet the same noise; the first of each does not count.

    Args:
        threads: that each runs on.
    """
    processor, elapsed, undisturbed = [float("inf")] * 2, [float("inf")] * 2, [0, 0]
    began = process_time()
    for round_number in range((ROUNDS if threads == 1 else MORE_ROUNDS) + 1):
        late = round_number > 1 and process_time() - began > SECONDS * threads
        if late or min(undisturbed) >= ROUNDS:
            break
        for which, run in enumerate((first, second)):
            switches, start, passed = _switches(), process_time(), perf_counter()
            run()
            took, passed = process_time() - start, perf_counter() - passed
            if round_number:
                processor[which] = min(processor[which], took)
                if _switches() - switches <= passed // UNDISTURBED:
                    undisturbed[which] += 1
                    elapsed[which] = min(elapsed[which], passed)
    quiet = threads == 1 or min(undisturbed) > 0
    best = processor if threads == 1 or not quiet else elapsed
    return Outcome(best[0], best[1], quiet)


def _switches() -> int:
    """How often a thread of this process has had to leave its processor to somebody else."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
