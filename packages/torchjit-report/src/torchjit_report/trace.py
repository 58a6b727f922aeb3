"""The trace: events as they happened, in memory and as a file of JSON lines.

One line is one event: an object with `kind`, `time` (seconds since the epoch), `compile_id`, `pid` and the fields of
that kind. Lines are written whole and at once, so several threads and processes may share a file, and a process that
dies leaves at most one bad line.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, final

import attrs

from torchjit_core import events
from torchjit_core.forks import new_lock

__all__ = ["FORMAT", "SUFFIX", "Event", "PathLike", "Recorder", "Trace", "jsonable", "rank", "read_trace", "recording"]

FORMAT = 1
"""Version of the line format, in the `session` event that starts each recording."""

PathLike: TypeAlias = "str | os.PathLike[str]"
SUFFIX = ".jsonl"
"""How the names of trace files in a folder end."""
_DEEPEST = 40


@final
@attrs.frozen
class Event:
    """One event.

    Attributes:
        kind: such as `compile_start`; the kinds and their fields are listed in docs/design/0001-interfaces.md.
        fields: JSON-able values, `time`, `compile_id` and `pid` among them.
    """

    kind: str
    fields: Mapping[str, Any]


@final
@attrs.frozen
class Trace:
    """What was read from a file.

    Attributes:
        events: in file order.
        skipped: how many lines were no events: cut off, corrupt, or of another shape.
    """

    events: tuple[Event, ...]
    skipped: int = 0

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


def jsonable(value: Any, depth: int = 0) -> Any:
    """A copy of `value` out of dicts, lists, strings, ints, finite floats, bools and None; the rest as its text."""
    if value is None or type(value) in (bool, int, str):
        return value
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {_text(k): jsonable(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v, depth + 1) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((jsonable(v, depth + 1) for v in value), key=repr)
    if type(value) is float:
        return value if value - value == 0.0 else repr(value)
    return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception as e:  # a report must not fail for a bad __str__
        return f"<{type(value).__name__}, unprintable: {type(e).__name__}>"


def rank() -> int | None:
    """Which of several processes of one program this is, as `torchrun` and others say by `RANK`; None of one alone."""
    said = os.environ.get("RANK", "")
    return int(said) if said.isdecimal() and os.environ.get("WORLD_SIZE") != "1" else None


def _session() -> dict[str, Any]:
    versions = {}
    for name in ("torch", "triton", "torchjit"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "format": FORMAT,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": versions,
        "time": time.time(),
        "compile_id": None,
    }


@final
class Recorder:
    """A listener that keeps the events, and appends them to a file if it is given one.

    It never disturbs the program that it listens to: fields that JSON cannot hold become text, and if the file cannot
    be written it warns once and goes on in memory.

        recorder = Recorder("trace.jsonl")
        with torchjit_core.events.listen(recorder):
            ...
        write_report(recorder.events, "report.html")

    Args:
        path: the file to append to; its folder must exist. None records in memory only, unless there is a `folder`.
        folder: make a new file in this folder, which is created if it does not exist; `read_trace` takes the folder.
        keep: keep events in memory too. Long runs that only want the file say False.

    Raises:
        OSError: the file cannot be opened, or the folder cannot be made.
        ValueError: both `path` and `folder` are given.
    """

    def __init__(self, path: PathLike | None = None, *, folder: PathLike | None = None, keep: bool = True) -> None:
        if folder is not None:
            if path is not None:
                raise ValueError("give Recorder a path or a folder, not both")
            Path(folder).mkdir(parents=True, exist_ok=True)
            of = rank()
            label = "" if of is None else f"rank{of}-"
            path = Path(folder) / f"{time.strftime('%Y%m%d-%H%M%S')}-{label}{os.getpid()}{SUFFIX}"
        self._keep = keep
        self._events: list[Event] = []
        self._lock = new_lock()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._file: int | None = None if path is None else os.open(path, flags, 0o644)
        self("session", _session())

    @property
    def events(self) -> tuple[Event, ...]:
        """What was kept so far."""
        with self._lock:
            return tuple(self._events)

    def __call__(self, kind: str, fields: Mapping[str, Any]) -> None:
        clean: dict[str, Any] = {str(k): jsonable(v) for k, v in fields.items()}
        clean["pid"] = os.getpid()
        of = rank()
        if of is not None:
            clean["rank"] = of
        with self._lock:
            if self._keep:
                self._events.append(Event(kind, clean))
            if self._file is not None:
                self._append(json.dumps({**clean, "kind": kind}, separators=(",", ":")).encode("ascii") + b"\n")

    def _append(self, line: bytes) -> None:
        assert self._file is not None  # for the type checker; the caller asked
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as e:
            self._close()
            warnings.warn(f"torchjit trace: cannot write ({e}); recording goes on in memory only", stacklevel=4)

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def close(self) -> None:
        """Close the file. Events that come later are kept in memory only."""
        with self._lock:
            self._close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


@contextlib.contextmanager
def recording(path: PathLike | None = None, *, keep: bool = True) -> Iterator[Recorder]:
    """Record while the block runs. See `Recorder`."""
    with Recorder(path, keep=keep) as recorder, events.listen(recorder):
        yield recorder


def read_trace(path: PathLike) -> Trace:
    """Read what a `Recorder` wrote. Lines that are no events are counted and left out.

    Args:
        path: a trace file, or a folder of them, in folders of ranks or hosts maybe; they are read in the order of their names, that is,
            of their starts. Processes of the same number, of several hosts, are told apart.

    Raises:
        OSError: a file cannot be read.
    """
    place = Path(path)
    found: list[Event] = []
    skipped = 0
    met: dict[Any, Any] = {}  # the rank of each process
    files = sorted(place.rglob(f"*{SUFFIX}"), key=lambda file: file.name) if place.is_dir() else [place]
    for index, name in enumerate(files):
        with name.open("rb") as file:
            events_of_file = [_parse(line) for line in file if not line.isspace()]
        good = [event for event in events_of_file if event is not None]
        ranks = {event.fields.get("pid"): event.fields.get("rank") for event in good}
        if any(met.get(pid, rank) != rank for pid, rank in ranks.items()):  # of another host
            good = [
                Event(event.kind, {**event.fields, "pid": _apart(event.fields.get("pid"), index)}) for event in good
            ]
        met = ranks | met
        found += good
        skipped += len(events_of_file) - len(good)
    return Trace(tuple(found), skipped)


def _apart(pid: Any, index: int) -> Any:
    """A number that no process has: those of Linux end at 2**22."""
    return pid + index * 10**8 if isinstance(pid, int) else pid


def _parse(line: bytes) -> Event | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    kind = fields.pop("kind", None)
    return Event(kind, fields) if isinstance(kind, str) else None
