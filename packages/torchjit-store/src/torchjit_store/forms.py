"""Object graphs of torchjit's as documents: `encode` and `decode`.

What belongs to torchjit's own packages is written as data: instances slot by slot, functions by name, closures by the code that they run and
what they hold, generated functions with their code. What belongs to the program or to a library is left to `References`. An
object that is met twice is written once, so identity and cycles come back.
"""

from __future__ import annotations

from torchjit_core.collector import collector_paused
from torchjit_core.handlers import let_through, raised_in_handler
from torchjit_store.decoding import decoded
from torchjit_store.document import Document, Externals, FormatError, Lookup, References
from torchjit_store.stale import Stale

__all__ = ["Document", "Externals", "FormatError", "Lookup", "References", "decode", "encode"]


def encode(root: object, references: References, externals: Externals) -> Document:
    """The document of an object graph.

    Raises:
        NotStorable: something in it cannot be stored; the detail tells the way to it.
        NotYetStorable: so far.
    """
    from torchjit_store.encoding import encoded  # noqa: PLC0415  # a warm start writes nothing

    with collector_paused():
        return encoded(root, references, externals)


def decode(document: Document, lookup: Lookup, externals: Externals) -> object:
    """The object graph of a document, whose bytes the caller has verified.

    Raises:
        Stale: what it refers to is not there, or is not what it was.
        FormatError: it is damaged.
    """
    try:
        with collector_paused():
            return decoded(document, lookup, externals)
    except (Stale, FormatError):
        raise
    except (
        Exception
    ) as error:  # a damaged document may lead anywhere, but an exception of the program's own goes through
        let_through()
        if raised_in_handler(error):
            raise
        raise FormatError(f"{type(error).__name__}: {error}") from error
