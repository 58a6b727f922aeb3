"""What entries on disk ask of torchjit's packages: why something is not stored, and what user code a compilation ran.

`torchjit_store` writes graphs of objects of torchjit's own classes, functions and closures without any code of theirs. What cannot be
written slot by slot says here how it can. A class attribute `__stored_exactly__` names the slots whose containers are the program's own, or,
with `__stored_state__`, the parts of the state that are tuples of the program's own: other containers are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType
from typing import Any, Protocol, TypeVar, final, runtime_checkable
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

import attrs

from torchjit_core.reasons import Reason, reason

__all__ = [
    "Growing", "Made", "NotStorable", "NotYetStorable", "Part", "ReliedOn", "Storable", "cache_in_use", "check_parts", "collecting_reliance", "compiling_ahead", "grown",
    "grows", "how_made", "is_ahead", "is_maker", "library_maker", "loading_from", "made_by", "maker", "named_here", "names_within", "never_stored",
    "note_library", "noting_libraries", "part_of", "relied_on", "when_grown",
]  # fmt: skip

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


class NotStorable(Exception):
    """A compiled entry cannot be kept on disk.

    Attributes:
        reason: the registered reason.
        detail: what it is this time, one line.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.id}: {reason.headline}: {detail}")
        self.reason = reason
        self.detail = detail


class NotYetStorable(NotStorable):
    """It can be, once something of it has been compiled."""


@final
@attrs.frozen
class ReliedOn:
    """User code that has run during a compilation."""

    function: Callable[..., Any]


_relied_on: ContextVar[dict[int, ReliedOn | NotStorable] | None] = ContextVar("torchjit relied on", default=None)


@contextmanager
def collecting_reliance() -> Iterator[dict[int, ReliedOn | NotStorable]]:
    """Collect what `relied_on` and `never_stored` are told in this context, by id, for `torchjit_store.origins.Origins`."""
    found: dict[int, ReliedOn | NotStorable] = {}
    token = _relied_on.set(found)
    try:
        yield found
    finally:
        _relied_on.reset(token)


def relied_on(function: Callable[..., Any]) -> None:
    """Note user code that runs during a compilation and leaves no guard: what is compiled depends on what it does."""
    found = _relied_on.get()
    if found is not None:
        found[id(function)] = ReliedOn(function)


def never_stored(reason: Reason, detail: str) -> None:
    """Note that what is compiled depends on something that no other process can compare: the entry is not kept on disk."""
    found = _relied_on.get()
    if found is not None:
        refusal = NotStorable(reason, detail)
        found[id(refusal)] = refusal


@runtime_checkable
class Storable(Protocol):
    """A class of torchjit's whose instances are stored as something else than their slots and `__dict__`."""

    def __stored_state__(self) -> Mapping[str, object]:
        """What is written in their place.

        Raises:
            NotStorable: the object cannot be stored, or not yet.
        """
        ...

    def __restore_state__(self, state: Mapping[str, object]) -> None:
        """Become the object again: called on `object.__new__(cls)`."""
        ...


# -------------------------------------------------------------------------------------- objects of others' classes
@final
@attrs.frozen
class Made:
    """How an object was made: `maker(*arguments)`."""

    maker: Callable[..., Any]
    arguments: tuple[object, ...]


_makers: set[Callable[..., Any]] = set()
_made: dict[int, tuple[ref[Any], Made]] = {}
"""By identity: two functions of one library that was loaded twice are equal."""


def maker(function: _F) -> _F:
    """Decorator of a module-level function of torchjit's that stored entries may call to make an object again."""
    _makers.add(function)
    return function


def is_maker(function: object) -> bool:
    """May stored entries call it?"""
    try:
        return function in _makers
    except TypeError:  # not hashable
        return False


def made_by(obj: _T, maker: Callable[..., Any], *arguments: object) -> _T:
    """`obj`, which has no class of torchjit's (a function of a C library, an autograd function's class), noted to be what
    `maker(*arguments)` gives. It must be weakly referable; the arguments are stored in its place, and stay alive with it.

    Raises:
        ValueError: the function is no `maker`.
    """
    if maker not in _makers:
        raise ValueError(f"{maker!r} is not declared a maker")
    key = id(obj)
    _made[key] = (ref(obj, lambda _: _made.pop(key, None)), Made(maker, arguments))
    return obj


def how_made(obj: object) -> Made | None:
    """What `made_by` noted of it."""
    found = _made.get(id(obj))
    return found[1] if found is not None and found[0]() is obj else None


# -------------------------------------------------------------------------------------- names of one process
NAME_OF_PROCESS = reason(
    "TJ-STORE-035",
    "control flow over tensors, or attention, that has a name in one process only",
    "Compiled code refers to the bodies of torch.cond, while_loop, scan and flex_attention by names that say what the bodies do. This one calls "
    "something that has no name of torch's or Python's (a function that is left as it is, say), so that in another process it would be another "
    "body. The entry works, and is made anew in the next process.",
)
_named_here: dict[str, Made | None] = {}


def named_here(name: str, made: Made | None) -> None:
    """Note a name that operators of compiled code are given for an object that they look up.

    Args:
        name: of the object, for as long as the process lives.
        made: what gives the object this name in another process; None: only this process knows it.
    """
    _named_here[name] = made


def names_within(constants: Iterable[object]) -> Mapping[str, Made]:
    """Such names in constants that are about to be written, in texts of code among them too, and what the names need.

    Raises:
        NotStorable: only this process knows one.
    """
    found: dict[str, Made] = {}
    if not _named_here:
        return found
    for constant in constants:
        if type(constant) is str:
            for name, made in _named_here.items():
                if constant == name or f"'{name}'" in constant:
                    if made is None:
                        raise NotStorable(NAME_OF_PROCESS, name)
                    found[name] = made
        elif type(constant) is tuple:
            found |= names_within(constant)
        elif type(constant) is CodeType:
            found |= names_within(constant.co_consts)
    return found


# -------------------------------------------------------------------------------------- libraries in the cache folder
_of_libraries: set[Callable[..., Any]] = set()
_noted: ContextVar[set[str] | None] = ContextVar("torchjit libraries noted", default=None)
_cache: ContextVar[str | None] = ContextVar("torchjit cache folder", default=None)


def library_maker(function: _F) -> _F:
    """A `maker` whose first argument names a library in the cache folder: entries that hold what it makes need that file."""
    _of_libraries.add(function)
    return maker(function)


@contextmanager
def noting_libraries() -> Iterator[set[str]]:
    """Collect the names of libraries that what is written inside needs."""
    found: set[str] = set()
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def note_library(made: Made) -> None:
    """Whoever writes `made` says so."""
    found = _noted.get()
    if found is not None and made.maker in _of_libraries:
        found.add(str(made.arguments[0]))


@contextmanager
def loading_from(cache_dir: str | None) -> Iterator[None]:
    """Inside, entries of a cache folder are read; None is the user's."""
    token = _cache.set(cache_dir)
    try:
        yield
    finally:
        _cache.reset(token)


def cache_in_use() -> str | None:
    """The cache folder whose entry is being read: entries do not say where they lie."""
    return _cache.get()


# -------------------------------------------------------------------------------------- what is compiled later
class Growing(Protocol):
    """What waits for more of an entry to be compiled."""

    def grown(self) -> None:
        """A backward, or a variant of one, has been compiled just now."""
        ...

    def grows(self) -> None:
        """One is being compiled."""
        ...


_ahead: ContextVar[bool] = ContextVar("torchjit compiles ahead", default=False)


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Inside, a backward is compiled with its forward, not when it is first called."""
    token = _ahead.set(True)
    try:
        yield
    finally:
        _ahead.reset(token)


def is_ahead() -> bool:
    """Is all to be compiled at once?"""
    return _ahead.get()


class Part(Protocol):
    """A part of an entry that is compiled when it is first needed."""

    def check_storable(self) -> None:
        """Can it be written?

        Raises:
            NotYetStorable: not before it has been compiled.
        """
        ...


_parts: WeakKeyDictionary[Part, str] = WeakKeyDictionary()


def part_of(compile_id: str | None, part: Part) -> None:
    """Note a part of the entry with this compile id."""
    if compile_id is not None:
        _parts[part] = compile_id


def check_parts(compile_id: str) -> None:
    """Ask the parts of an entry whether it can be written, before that is tried: it cannot where none of several is compiled yet.

    Raises:
        NotYetStorable: likewise.
    """
    refusals = []
    for part, owner in list(_parts.items()):
        if owner == compile_id:
            try:
                part.check_storable()
            except NotYetStorable as error:
                refusals.append(error)
            else:
                return
    if refusals:
        raise refusals[0]


_growing: WeakValueDictionary[str, Growing] = WeakValueDictionary()


def when_grown(compile_id: str, waiting: Growing) -> None:
    """Tell `waiting`, as long as somebody keeps it alive, whenever more of the entry with this compile id has been compiled."""
    _growing[compile_id] = waiting


def grown(compile_id: str | None) -> None:
    """A part of an entry was compiled after the entry itself: call this once the part is in its place."""
    waiting = None if compile_id is None else _growing.get(compile_id)
    if waiting is not None:
        waiting.grown()


def grows(compile_id: str | None) -> None:
    """A part of an entry is being compiled after the entry itself; `grown` follows, unless that fails."""
    waiting = None if compile_id is None else _growing.get(compile_id)
    if waiting is not None:
        waiting.grows()
