"""How far generated code had come when it raised: had it written to memory from outside?

Generated modules say it by the number of a line, under a name in the globals of their functions. So calls that return pay nothing.
A call of an operator of somebody else's library counts as a write: only the library knows what it does.
"""

from __future__ import annotations

import traceback
from typing import Final

__all__ = ["NEVER", "WRITES_FROM", "nothing_written"]

WRITES_FROM: Final = "__torchjit_writes_from__"
"""The global that holds the first line of a generated function that writes to memory that was there before the call."""
NEVER: Final = 10**9
"""In its place in functions that write to none."""


def nothing_written(error: BaseException) -> bool:
    """Did generated code raise this before its first write? False if that is not known.

    Args:
        error: as it was caught, with the traceback.
    """
    known = False
    for frame, line in traceback.walk_tb(error.__traceback__):
        first = frame.f_globals.get(WRITES_FROM)
        if first is not None:
            if line >= first:
                return False
            known = True
    return known
