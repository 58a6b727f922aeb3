"""An entry on disk that does not fit the program that reads it."""

from __future__ import annotations

__all__ = ["Stale"]


class Stale(Exception):
    """Something that an entry refers to is not there, or is not what it was.

    Attributes:
        what: a short text, for the event that tells of it.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
