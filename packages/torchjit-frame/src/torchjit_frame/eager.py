"""Running the original functions for a while."""

from __future__ import annotations

from types import TracebackType
from typing import final

from torchjit_frame._c import set_eager

__all__ = ["eager"]


@final
class eager:  # used as a statement, like contextlib.suppress
    """Within the block every front door of this thread calls its original function.

    Args:
        flag: False switches specialised code on again inside an eager block.
    """

    __slots__ = ("_flag", "_previous")

    def __init__(self, flag: bool = True) -> None:
        self._flag = flag
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(set_eager(self._flag))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        set_eager(self._previous.pop())
