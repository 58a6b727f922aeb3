"""Where the changes register that a world can suffer: one function per kind, each `(world, random)`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Mutation = Callable[[Any, random.Random], None]
MUTATIONS: dict[str, list[Mutation]] = {}
"""By program."""

NUMBERS = (0, 1, 2, 3, -1, 2.0, 0.5, 0.0, -0.0, 1.0, True, False, 1e300, float("nan"), float("inf"), 2**70, 5, 7, 3.5)
TAME = (1, 2, 2.0, 0.5, 3, True, -1.5, 4.0, 1.0)


def mutation(*entries: str) -> Callable[[Mutation], Mutation]:
    """Register a change that matters to these entries."""

    def add(fn: Mutation) -> Mutation:
        for entry in entries:
            MUTATIONS.setdefault(entry, []).append(fn)
        return fn

    return add
