"""Short races between two ways to compute the same, remembered on disk.

A race is a fact about the machine: which library or memory layout is faster for given shapes. Its result is kept beside the
compiled kernels, so that every process decides alike and only the first one pays for finding out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from torchjit_inductor.cpp.build import machine
from torchjit_inductor.measurements import Measurements

__all__ = ["Races", "best_times"]

ROUNDS = 5
SECONDS = 0.1
"""A race that has taken this long ends with the round that it is in: long runs vary little."""


class Races:
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
        self, key: tuple[Any, ...], contest: Callable[[], tuple[Callable[[], Any], Callable[[], Any]]]
    ) -> tuple[float, float]:
        """Seconds of the first and of the second way.

        Args:
            key: what runs: shapes, strides, arguments.
            contest: gives the two; only called when the result is not known.
        """
        text = repr((*key, torch.get_num_threads()))
        found: tuple[float, float] | None = self._known.get(text)
        if found is None:
            found = best_times(*contest())
            self._known.put(text, found)
        return found


def best_times(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[float, float]:
    """Processor seconds of the best of a few runs. Runs alternate, so that both meet the same noise."""
    best = [float("inf"), float("inf")]
    began = time.process_time()
    for round_number in range(ROUNDS + 1):
        if round_number > 1 and time.process_time() - began > SECONDS:
            break
        for which, run in enumerate((first, second)):
            start = time.process_time()
            run()
            if round_number:
                best[which] = min(best[which], time.process_time() - start)
    return best[0], best[1]
