"""What happens during compilation, as events that anybody may listen to.

Packages call `emit`; it costs one truth test when nobody listens. The report, the logs, the progress line and the
counters are listeners. An event is its kind and a dict of JSON-able fields (a listener must not rely on others).
"""

from __future__ import annotations

import contextlib
import contextvars
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from torchjit_core.reasons import Reason

__all__ = [
    "ACTIVITY_END",
    "ACTIVITY_START",
    "Notes",
    "activity",
    "bytecode_wanted_by",
    "current_compile_id",
    "emit",
    "emit_fallback",
    "emit_lazy",
    "listen",
    "listening",
    "note",
    "phase",
    "raised_by_listener",
    "set_compile_id",
    "start_listening",
    "stop_listening",
    "using_compile_id",
]

bytecode_wanted_by: Final[set[str]] = set()
"""Who asks for `bytecode` events now: nobody else pays for the text."""

Listener = Callable[[str, dict[str, Any]], None]
_listeners: list[Listener] = []
_choosers: list[tuple[frozenset[str], Listener]] = []
"""Listeners to some kinds. They make nobody compute what is expensive."""
_compile_id: contextvars.ContextVar[str | None] = contextvars.ContextVar("torchjit_compile_id", default=None)


@final
class Notes:
    """What is kept of a compilation whether anybody listens or not: little, and cheap to make.

    Attributes:
        items: kinds and their fields, in order.
    """

    __slots__ = ("__weakref__", "items")

    def __init__(self, compile_id: str) -> None:
        """From now on what is noted under this compile id goes here, as long as this object lives."""
        self.items: list[tuple[str, dict[str, Any]]] = []
        _notes[compile_id] = self


_notes: weakref.WeakValueDictionary[str, Notes] = weakref.WeakValueDictionary()


def note(kind: str, **fields: Any) -> None:
    """Keep this with the compilation that this thread works on, if it is kept."""
    compile_id = _compile_id.get()
    notes = None if compile_id is None else _notes.get(compile_id)
    if notes is not None:
        notes.items.append((kind, fields))


ACTIVITY_START, ACTIVITY_END = "activity_start", "activity_end"
"""The kinds of `activity`. Only listeners that ask for them are told: others hear of the same in events that say more."""


def listening() -> bool:
    """Is anybody listening to everything? Ask before computing expensive fields."""
    return bool(_listeners)


def emit(kind: str, **fields: Any) -> None:
    """Tell every listener. Adds `compile_id` and `time` (seconds, `time.time()`). A listener's error propagates."""
    if _listeners or _choosers:
        hearers = _hearers(kind)
        if hearers:
            fields.setdefault("compile_id", _compile_id.get())
            fields.setdefault("time", time.time())
            for listener in hearers:
                try:
                    listener(kind, fields)
                except Exception as error:
                    if not hasattr(error, "__torchjit_listener__"):
                        error.__torchjit_listener__ = listener  # type: ignore[attr-defined]
                    raise


def emit_fallback(why: Reason, detail: str, **fields: Any) -> None:
    """Tell that something runs by a slower way than the one that was meant, and why: a `fallback` event."""
    emit("fallback", reason=why.id, headline=why.headline, detail=detail, **fields)


def emit_lazy(kind: str, make: Callable[[], dict[str, Any]]) -> None:
    """Like `emit`, with the fields computed only if somebody listens."""
    if (_listeners or _choosers) and _hearers(kind):
        emit(kind, **make())


def _hearers(kind: str) -> list[Listener]:
    chosen = [listener for kinds, listener in _choosers if kind in kinds]
    return chosen if kind in (ACTIVITY_START, ACTIVITY_END) else [*_listeners, *chosen]


@contextlib.contextmanager
def activity(name: str, **fields: Any) -> Iterator[None]:
    """Work that a program waits for: a capture, the compilation of a backward, autotuning, the recording of a CUDA graph.

    Emits `activity_start` with the name and the fields, and in every case `activity_end`, with `seconds` and `ok` besides.
    """
    if not _choosers:
        yield
        return
    start, ok = time.perf_counter(), False
    emit(ACTIVITY_START, name=name, **fields)
    try:
        yield
        ok = True
    finally:
        emit(ACTIVITY_END, name=name, seconds=time.perf_counter() - start, ok=ok, **fields)


def raised_by_listener(error: BaseException) -> bool:
    """Did a listener of somebody else's raise this?"""
    listener = getattr(error, "__torchjit_listener__", None)
    return listener is not None and not str(getattr(listener, "__module__", "")).startswith("torchjit")


def set_compile_id(compile_id: str | None) -> None:
    """Events carry this compile id from now on: after a compilation that did not come to its end."""
    if _compile_id.get() != compile_id:
        _compile_id.set(compile_id)


def current_compile_id() -> str | None:
    """The id of the compilation that this thread works on, such as `0/1`, or None."""
    return _compile_id.get()


@contextlib.contextmanager
def using_compile_id(compile_id: str) -> Iterator[None]:
    """Events inside carry this compile id."""
    token = _compile_id.set(compile_id)
    try:
        yield
    finally:
        _compile_id.reset(token)


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Emit and note `phase` with its wall seconds when the block ends (also when it raises)."""
    start = time.perf_counter()
    try:
        yield
    finally:
        end = time.perf_counter()
        note("phase", name=name, seconds=end - start, end=end)
        emit("phase", name=name, seconds=end - start)


def start_listening(listener: Listener, kinds: Iterable[str] | None = None) -> None:
    """Listen from now on. The same listener twice hears everything twice.

    Args:
        listener: called with the kind and the fields.
        kinds: what to listen to; None is everything but activities.
    """
    if kinds is None:
        _listeners.append(listener)
    else:
        _choosers.append((frozenset(kinds), listener))


def stop_listening(listener: Listener) -> None:
    """Stop what `start_listening` began; nothing if it was not listening."""
    if listener in _listeners:
        _listeners.remove(listener)
        return
    for entry in _choosers:
        if entry[1] == listener:
            _choosers.remove(entry)
            return


@contextlib.contextmanager
def listen(listener: Listener, kinds: Iterable[str] | None = None) -> Iterator[None]:
    """Listen while the block runs."""
    start_listening(listener, kinds)
    try:
        yield
    finally:
        stop_listening(listener)
