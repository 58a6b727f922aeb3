"""What a stored entry is on paper: JSON-able data, and bytes beside it; and who is asked for what the document does not hold itself."""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeAlias, final

import attrs

from torchjit_core.reasons import reason

__all__ = ["FORMAT", "NOT_STORABLE", "Data", "Document", "Externals", "FormatError", "Lookup", "References", "text_of"]

FORMAT: Final = 1
Data: TypeAlias = Any
"""None, bool, int, float, str, and lists and dicts (with keys that are str) of these."""

NOT_STORABLE = reason(
    "TJ-STORE-001",
    "an object that compiled entries on disk cannot hold",
    "An entry is stored as data of torchjit's own and as references to the program's objects. This object is neither: it belongs to one "
    "process (a thread, a lock, a weak reference, a graph under construction), or no name leads to it. The entry works, and is made "
    "anew in the next process.",
    "The detail says where in the entry the object is; report it with the program.",
)


class FormatError(Exception):
    """A document that this version did not write: damaged, or of another format."""


def text_of(data: Data) -> str:
    """A part of a document that has to be text.

    Raises:
        FormatError: it is not.
    """
    if type(data) is not str:
        raise FormatError(f"{data!r} is no text")
    return data


@final
@attrs.frozen
class Document:
    """An encoded object graph.

    Attributes:
        data: JSON-able.
        blobs: bytes that it refers to by position.
    """

    data: Data
    blobs: tuple[bytes, ...]


class References(Protocol):
    """Names objects that are not torchjit's, when an entry is stored."""

    def reference(self, obj: object) -> Data:
        """How to find the very object again.

        Raises:
            NotStorable: no way leads to it.
        """
        ...


class Lookup(Protocol):
    """Finds these objects in the process that reads the entry."""

    def find(self, data: Data) -> object:
        """The object.

        Raises:
            Stale: it is not there, or is not what it was.
        """
        ...

    def moved(self, filename: str, line: int) -> tuple[str, int]:
        """Where a place in the program's files is now."""
        ...


class Externals(Protocol):
    """Objects that the caller makes again itself, such as front doors of continuations."""

    def name(self, obj: object) -> tuple[str, object] | None:
        """A tag, and what is encoded in its place; None where the object is none of those."""
        ...

    def build(self, tag: str, payload: object) -> object:
        """The object again.

        Raises:
            Stale: it cannot be made in this process.
        """
        ...
