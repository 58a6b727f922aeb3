"""What torch logs about errors of operations on fake tensors is not shown while this project asks fakes on the program's behalf.

Torch logs each as an error of its own, with a traceback. Here it is the program's, which eager PyTorch raises at its place, or the
end of an attempt.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, final

__all__ = ["QUIET_FAKES"]


@final
class _Quiet(threading.local):
    """A context, of one thread: what others log at the same time is shown. It may be entered again inside of itself."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


QUIET_FAKES: Final = _Quiet()


def _is_shown(_: logging.LogRecord) -> bool:
    return QUIET_FAKES.depth == 0


logging.getLogger("torch._subclasses.fake_tensor").addFilter(_is_shown)
