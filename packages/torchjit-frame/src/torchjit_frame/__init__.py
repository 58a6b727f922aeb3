"""PEP 523 frame hook and the C front door that calls specialised code."""

import atexit

from torchjit_frame._c import Entry, FrontDoor, _shutdown, forget, hook_counters, hook_scope, is_eager, set_eager
from torchjit_frame.eager import eager
from torchjit_frame.trampolines import trampoline

__all__ = [
    "Entry",
    "FrontDoor",
    "eager",
    "forget",
    "hook_counters",
    "hook_scope",
    "is_eager",
    "set_eager",
    "trampoline",
]

atexit.register(_shutdown)
