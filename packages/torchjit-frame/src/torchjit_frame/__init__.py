"""PEP 523 frame hook and the C front door that calls specialised code."""

import atexit
from typing import Final

from torchjit_frame import _c
from torchjit_frame._c import (
    Entry,
    FrontDoor,
    HeardHandler,
    TailCall,
    _shutdown,
    forget,
    forget_all,
    hook_counters,
    hook_scope,
    is_eager,
    set_eager,
    set_ranges,
    unhooked,
)
from torchjit_frame.eager import eager
from torchjit_frame.trampolines import trampoline

__all__ = [
    "LEAVE_ALL",
    "Entry",
    "FrontDoor",
    "HeardHandler",
    "TailCall",
    "eager",
    "forget",
    "forget_all",
    "hook_counters",
    "hook_scope",
    "is_eager",
    "set_eager",
    "set_ranges",
    "trampoline",
    "unhooked",
]

LEAVE_ALL: Final[None] = getattr(_c, "LEAVE_ALL", None)
"""A callback of a `hook_scope` returns it for a function that runs as it is, with all that it calls.

Typed as None, which leaves the function alone only; an extension that was built before knows no more than that.
"""

# Frames that run while the interpreter is taken apart are no business of ours.
atexit.register(_shutdown)
