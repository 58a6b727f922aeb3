"""What a failure of the compiler does: it is shown, or eager PyTorch takes over. Said once for a compilation and all that comes of it."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

__all__ = ["failures_are_raised", "raising_failures"]

_raised: contextvars.ContextVar[bool] = contextvars.ContextVar("torchjit_failures_are_raised", default=False)


def failures_are_raised() -> bool:
    """Does the compilation that this thread works on show its failures? Ask where eager PyTorch would take over."""
    return _raised.get()


@contextlib.contextmanager
def raising_failures(raised: bool) -> Iterator[None]:
    """Inside, and in what is compiled later in a copy of the context (a backward), failures are raised or not."""
    token = _raised.set(raised)
    try:
        yield
    finally:
        _raised.reset(token)
