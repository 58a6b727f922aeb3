"""One compiled entry as it is stored: what it is made of, and its bytes.

The bytes are a line of JSON (the table of references, the document, the sizes of the blobs) and the blobs behind it. Nothing here reads or
writes files; see `folder`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any, final

import attrs

from torchjit_core.handlers import let_through
from torchjit_store.deferred import Deferred
from torchjit_store.finder import Finder
from torchjit_store.forms import Document, Externals, FormatError, decode, encode
from torchjit_store.origins import Origins

__all__ = ["RaiseFacts", "StoredEntry", "pack", "unpack"]


@final
@attrs.frozen(repr=False)
class RaiseFacts:
    """What is to be known where the graph of an entry raises; see `torchjit_session.rerun.OnRaise`."""

    is_graph: bool
    catches: bool
    in_blocks: bool
    writes: bool
    repeats: bool


@final
@attrs.frozen(eq=False, repr=False)
class StoredEntry:
    """What an entry of a front door is made of, and what people want to know of it.

    Attributes:
        program: the guards as a program (of `torchjit_guards`).
        where: what makes guards, and the paths of what the target is called with, of the program again (likewise).
        target: the compiled code.
        unwrap: take this item of the target's result; -1: the result itself.
        on_raise: None: an exception of the target leaves the region.
        breaks: how the region ended, if not by returning (records of `torchjit_vm`).
        continuations: the regions that it goes on with.
        hooked: what the code between calls is captured in its turn.
        source: the emitted code.
        graphs: the captured graphs as text.
        op_count: how many calls are in them.
        ranges: of the profiler, by `record_function` in the region.
        history: the sizes that the region had been called with, this call's among them.
        cause: why it was compiled.
        seconds: wall time of its capture and compilation.
        marks: what was said of functions that its capture asked about (of `torchjit_session`).
        eager_facts: what is to be known to let calls of it run as eager code.
    """

    program: object
    where: Deferred[object]
    target: Callable[..., Any]
    unwrap: int
    on_raise: RaiseFacts | None = None
    breaks: tuple[Any, ...] = ()
    continuations: tuple[Any, ...] = ()
    hooked: bool = False
    source: str = ""
    graphs: Deferred[tuple[str, ...]] = attrs.field(factory=lambda: Deferred(()))
    op_count: int = 0
    ranges: tuple[str, ...] = ()
    history: Deferred[object] = attrs.field(factory=lambda: Deferred(None))
    cause: str = ""
    seconds: float = 0.0
    eager_facts: object = None
    marks: object = None


def pack(
    entry: StoredEntry, functions: Iterable[FunctionType | CodeType], roots: Iterable[object], externals: Externals
) -> bytes:
    """The bytes of an entry.

    Args:
        entry: what to store.
        functions: what was interpreted to make it.
        roots: see `Origins`.
        externals: what the caller makes again itself.

    Raises:
        NotStorable: something in it cannot be stored.
        NotYetStorable: so far.
    """
    origins = Origins(functions, roots)
    document = encode(entry, origins, externals)
    head = {"table": origins.table(), "document": document.data, "blobs": [len(blob) for blob in document.blobs]}
    return b"".join((json.dumps(head, separators=(",", ":")).encode(), b"\n", *document.blobs))


def unpack(data: bytes | memoryview, roots: Iterable[object], externals: Externals) -> StoredEntry:
    """The entry again, in a process where all that it refers to is what it was.

    Args:
        data: what `pack` gave; the caller has verified it.
        roots: what this process has in the place of those given to `pack`.
        externals: see there.

    Raises:
        Stale: something is not there, or is not what it was.
        FormatError: these are no bytes of an entry.
    """
    head, blobs = _parts(bytes(data))
    finder = Finder(head["table"], roots)
    found = decode(Document(head["document"], blobs), finder, externals)
    finder.forget_objects()
    if not isinstance(found, StoredEntry):
        raise FormatError("no entry")
    return found


def _parts(data: bytes) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    end = data.find(b"\n")
    try:
        head = json.loads(data[: max(end, 0)])
        ends = [end + 1, *(end + 1 + n for n in itertools.accumulate(head["blobs"]))]
        head["table"], head["document"]
    except (ValueError, LookupError, TypeError) as error:
        let_through()
        raise FormatError("no bytes of an entry") from error
    if ends[-1] != len(data):
        raise FormatError("the bytes of an entry are cut")
    return head, tuple(data[a:b] for a, b in itertools.pairwise(ends))
