"""Whether a graph break is an error, per thread: what `torchjit.error_on_graph_break` sets, in Python and under capture."""

from __future__ import annotations

import threading

__all__ = ["breaks_are_errors", "set_breaks_are_errors"]


class _PerThread(threading.local):
    value = False


_state = _PerThread()


def breaks_are_errors() -> bool:
    """The state of this thread."""
    return _state.value


def set_breaks_are_errors(value: bool) -> bool:
    """Set it; gives what it was. A capture follows the call and makes it real at the end of the region."""
    before, _state.value = _state.value, value
    return before
