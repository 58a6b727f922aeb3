"""What of an entry is decoded only when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, final

__all__ = ["Deferred"]

_T = TypeVar("_T")


@final
class Deferred(Generic[_T]):
    """A value that forms write apart, and that comes back unread: what nothing else in the document refers to stays bytes until `get`."""

    __slots__ = ("_made", "_make")

    def __init__(self, value: _T) -> None:
        self._make: Callable[[], _T] | None = None
        self._made: list[_T] = [value]

    @classmethod
    def unread(cls, make: Callable[[], _T]) -> Deferred[_T]:
        """One whose value `make` gives."""
        self: Deferred[_T] = cls.__new__(cls)
        self._make, self._made = make, []
        return self

    def get(self) -> _T:
        """The value. Threads that ask at once may each make it; all get that of the first.

        Raises:
            Exception: it cannot be read.
        """
        make = self._make
        if make is not None:
            self._made.append(make())
            self._make = None
        return self._made[0]
