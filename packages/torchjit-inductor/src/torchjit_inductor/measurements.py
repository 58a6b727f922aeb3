"""Facts about the machine that were measured once, on disk: every process decides alike, and only the first one pays."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, final

from torchjit_inductor.cpp.folders import cache_folder
from torchjit_inductor.cpp.locks import courtesy_lock

T = TypeVar("T")

__all__ = ["MAX_KEPT", "Measurements"]

MAX_KEPT = 4000
"""Results on disk; the oldest go."""


@final
class Measurements(Generic[T]):
    """Results by a text that says what was measured: a JSON file beside the compiled kernels.

    Args:
        cache_dir: see `InductorSettings.cache_dir`.
        name: of the file, without its ending.
        machine: what the results hold for; asked when the file is first used. Those of another machine are dropped.
        valid: turns a value from the file into a result.

    `valid` may raise ValueError, TypeError, KeyError, IndexError or AttributeError: the file then counts as empty.
    """

    def __init__(self, cache_dir: str | None, name: str, machine: Callable[[], str], valid: Callable[[Any], T]) -> None:
        self._cache_dir, self._name, self._machine, self._valid = cache_dir, name, machine, valid
        self._known: dict[str, T] | None = None

    def get(self, key: str) -> T | None:
        """The result, or None."""
        return self._results().get(key)

    def put(self, key: str, result: object, *, keep: bool = True) -> None:
        """Remember what `valid` takes, a JSON-able value; on disk beside what other processes have written meanwhile.

        Args:
            keep: if false it holds for this process only.
        """
        self._results()[key] = self._valid(result)
        if not keep:
            return
        try:
            path = self._path()
            with courtesy_lock(path.with_suffix(".lock"), 2):
                kept = dict(list({**self._read(), key: result}.items())[-MAX_KEPT:])
                with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as out:
                    json.dump({"machine": self._machine(), self._name: kept}, out)
                os.replace(out.name, path)
        except OSError:  # or the lock's Timeout, which is one
            return  # a folder that cannot be written, or a busy one: the result holds for this process

    def _results(self) -> dict[str, T]:
        if self._known is None:
            self._known = {key: self._valid(value) for key, value in self._read().items()}
        return self._known

    def _path(self) -> Path:
        return cache_folder(self._cache_dir) / f"{self._name}.json"

    def _read(self) -> dict[str, object]:
        """What the file holds, as JSON; nothing where a part of it is of no use."""
        try:
            held = json.loads(self._path().read_text())
            if held.get("machine") == self._machine():
                for value in held[self._name].values():
                    self._valid(value)
                return dict(held[self._name])
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
            pass  # it is measured again
        return {}
