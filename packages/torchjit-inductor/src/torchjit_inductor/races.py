"""Short races between two ways to compute the same, remembered on disk.

A race is a fact about the machine: which library or memory layout is faster for given shapes. Its result is kept beside the
compiled kernels, so that every process decides alike and only the first one pays for finding out.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from torchjit_inductor.cpp.build import cache_folder, machine

__all__ = ["Races", "best_times"]

ROUNDS = 5
SECONDS = 0.1
"""A race that has taken this long ends with the round that it is in: long runs vary little."""
MAX_KEPT = 4000
"""Results on disk; the oldest go."""


class Races:
    """Results of races, by a key that says what ran.

    Args:
        cache_dir: see `InductorSettings.cache_dir`.
    """

    def __init__(self, cache_dir: str | None) -> None:
        self._cache_dir = cache_dir
        self._known: dict[str, tuple[float, float]] | None = None

    def times(
        self, key: tuple[Any, ...], contest: Callable[[], tuple[Callable[[], Any], Callable[[], Any]]]
    ) -> tuple[float, float]:
        """Seconds of the first and of the second way.

        Args:
            key: what runs: shapes, strides, arguments.
            contest: gives the two; only called when the result is not known.
        """
        if self._known is None:
            self._known = self._read()
        text = repr((*key, torch.get_num_threads()))
        if text not in self._known:
            self._known[text] = best_times(*contest())
            self._write(text)
        return self._known[text]

    def _path(self) -> Path:
        return cache_folder(self._cache_dir) / "races.json"

    def _read(self) -> dict[str, tuple[float, float]]:
        try:
            held = json.loads(self._path().read_text())
            if held.get("machine") == _machine():
                return {k: (float(a), float(b)) for k, (a, b) in held["races"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass  # no results, or no use in them: races are run again
        return {}

    def _write(self, text: str) -> None:
        """Add one result to what other processes have written meanwhile."""
        if self._known is None:
            return
        try:
            path = self._path()
            with FileLock(path.with_suffix(".lock"), timeout=2):
                merged = {**self._read(), text: self._known[text]}
                kept = dict(list(merged.items())[-MAX_KEPT:])
                with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as out:
                    json.dump({"machine": _machine(), "races": kept}, out)
                os.replace(out.name, path)
        except (OSError, Timeout):
            return  # a folder that cannot be written, or a busy one: the result holds for this process


def _machine() -> str:
    return f"{machine()} torch {torch.__version__}"


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
