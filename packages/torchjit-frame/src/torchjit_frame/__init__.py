"""PEP 523 frame hook and the C front door that calls specialised code."""

import atexit

from torchjit_frame._c import (
    Entry,
    FrontDoor,
    TailCall,
    _shutdown,
    forget,
    forget_all,
    hook_counters,
    hook_scope,
    is_eager,
    set_eager,
)
from torchjit_frame.eager import eager
from torchjit_frame.trampolines import trampoline

__all__ = [
    "Entry",
    "FrontDoor",
    "TailCall",
    "eager",
    "forget",
    "forget_all",
    "hook_counters",
    "hook_scope",
    "is_eager",
    "set_eager",
    "trampoline",
]

# Frames that run while the interpreter is taken apart are no business of ours.
atexit.register(_shutdown)
