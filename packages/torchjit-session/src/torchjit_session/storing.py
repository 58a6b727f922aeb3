"""Entries on disk: what a site finds there before it captures, and leaves there behind a capture.

Whatever goes wrong here is a miss, or something that is not stored, with an event that tells why: it never disturbs the program. What the
program itself raises (handlers of signals, listeners) goes through.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, final

import attrs

import torchjit_guards
from torchjit_core import events, storing
from torchjit_core.collector import collector_paused
from torchjit_core.failures import failures_are_raised
from torchjit_core.handlers import let_through
from torchjit_core.location import CodeLocation
from torchjit_core.reasons import reason
from torchjit_core.showing import shortened
from torchjit_core.storing import NotStorable, NotYetStorable
from torchjit_core.user_errors import NotCompiledAhead
from torchjit_frame import Entry, FrontDoor, eager
from torchjit_session import profiling
from torchjit_session.counters import counters
from torchjit_session.eager_facts import EagerFacts, facts_of
from torchjit_session.rerun import OnRaise
from torchjit_session.site_events import tell_loaded
from torchjit_session.site_keys import Marks, differing, key_parts
from torchjit_session.specialization import Specialization
from torchjit_store.deferred import Deferred
from torchjit_store.entry import RaiseFacts, StoredEntry, pack, unpack
from torchjit_store.finder import Stale
from torchjit_store.folder import StoredBytes
from torchjit_store.forms import FormatError
from torchjit_store.key import site_key
from torchjit_store.leases import compiling
from torchjit_store.remote import entry_folder
from torchjit_store.settings import StoreSettings

if TYPE_CHECKING:
    from torchjit_session.capture import CaptureOrigin
    from torchjit_session.compilation import Compilation
    from torchjit_session.site import Site
    from torchjit_store.carried import CarriedEntries
    from torchjit_store.leases import Turn

__all__ = ["LOADED", "load", "refuse", "save"]

FAILED = reason(
    "TJ-STORE-032",
    "an error inside torchjit while an entry was stored or loaded",
    "The entry works, or is compiled anew. This is a bug in torchjit.",
    "Report it with the traceback; on_error='raise' shows it where it happens, and TORCHJIT_STORE=off avoids it.",
)
FELL_BACK = reason(
    "TJ-STORE-033",
    "a part of the compilation had failed",
    "Something slower stands in for it, as a warning has told. The next process tries again, so the entry is not kept on disk.",
)
CHANGED_SINCE = reason(
    "TJ-STORE-036",
    "a captured function was changed before its backward was compiled",
    "An entry is kept on disk with a description of each function that was captured, once its backward has been compiled. By then this one "
    "had other code or other defaults than when it was captured, so the description would be of another program.",
)
NOTHING_FITS = reason(
    "TJ-STORE-065",
    "nothing that was compiled ahead fits this call",
    "The callable was loaded from a file: nothing is captured or compiled for it here. Each call must be like one that it was compiled for.",
    "Where the file is made, call what torchjit.aot_compile gives with arguments of this kind too, before save(). Sizes that vary: "
    "torchjit.aot_compile(torchjit.compile(f, dynamic=True), ...), or torchjit.mark_dynamic.",
)
_T = TypeVar("_T")
_MOST_MISSES = 8
NOT_YET = "not stored yet"
SHORTEST = 0.1
"""Seconds that others wait at least for a backward."""
LOADED = "loaded from disk"
"""The cause of a specialisation that was not captured here."""


# --------------------------------------------------------------------------------------------------------- loading


@final
@attrs.frozen(eq=False, repr=False)
class Candidate:
    """An entry of the site that was read and fits this program, with its guards as a program.

    Attributes:
        stored: the file.
        entry: what is in it.
        guard: of it, for calls of this process.
    """

    stored: StoredBytes
    entry: StoredEntry
    guard: torchjit_guards.GuardProgram


_MOST_TRIES = 4


@final
class Shelf:
    """What a site has read from disk and not used yet.

    A file never changes and is read once, unless what it refers to was not there: an optimizer has state from its second step on.
    """

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []
        self.stale: list[str] = []
        """Why some of it does not fit this program."""
        self.missed: dict[str, int] = {}
        """Why entries were not used, and how often: the last few."""
        self.expected: StoredEntry | None = None
        """With `TORCHJIT_STORE=verify`: what the capture of this call must be like."""
        self._tried: Counter[str] = Counter()
        """By name of a file: how often it was read in vain."""

    def note_miss(self, why: str) -> None:
        """An entry was there and was of no use."""
        self.missed[why] = self.missed.pop(why, 0) + 1
        if len(self.missed) > _MOST_MISSES:
            del self.missed[next(iter(self.missed))]

    def fill(self, site: Site, slots: tuple[Any, ...], key: str, settings: StoreSettings) -> Iterator[Candidate]:
        """Those that were read before, then the site's other entries, as they are read."""
        yield from [candidate for candidate in self.candidates if candidate.stored.key == key]
        for stored in (settings.carried or entry_folder(settings)).read(key, _is_static):
            name = stored.path.name
            if self._tried[name] >= _MOST_TRIES:
                continue
            self._tried[name] += 1
            found = _read(site, slots, stored)
            if isinstance(found, str):
                self.stale.append(found)
                self.note_miss(found)
            else:
                self._tried[name] = _MOST_TRIES
                self.candidates.append(found)
                yield found


def _is_static(header: Mapping[str, Any]) -> bool:
    """Does an entry hold for single sizes? Its code is the faster one: the process that has stored it used it for these."""
    return not header.get("symbols")


def load(site: Site, slots: tuple[Any, ...], settings: StoreSettings) -> Entry | None:
    """An entry from disk whose guards hold for this call, appended to the site's door; None where there is none.

    Args:
        settings: of a store that is read.
    """
    if not site.has_room():
        return None
    start = time.perf_counter()
    shelf = site.shelf = site.shelf or Shelf()
    with collector_paused():
        found = _found(site, shelf, slots, settings)
        if found is None:
            return None
        if settings.verifies:
            shelf.expected = found.entry
            site.histories.restore(_history_of(found.entry))  # what varied then is symbolic now
            return None
        (settings.carried or entry_folder(settings)).mark_used(found.stored)
        shelf.candidates.remove(found)
        return _appended(site, found, slots, start)


@contextlib.contextmanager
def compiling_once(site: Site, slots: tuple[Any, ...], settings: StoreSettings) -> Iterator[object]:
    """One process compiles a site and the others wait, for its backward too; see `torchjit_store.leases.compiling`."""
    try:
        key = site_key(key_parts(site, slots))
    except NotStorable:
        yield True
        return
    known = [] if site.shelf is None else [candidate.entry.seconds for candidate in site.shelf.candidates]
    with compiling(entry_folder(settings), key, max(known, default=None)) as turn:
        before = len(site.specializations)
        yield turn
        made = site.specializations[-1] if len(site.specializations) > before else None
        if made is not None and isinstance(made.unstored, Unstored) and made.storage.startswith(NOT_YET):
            made.unstored.turn = turn
            turn.keep(max(made.seconds, SHORTEST))


def _found(site: Site, shelf: Shelf, slots: tuple[Any, ...], settings: StoreSettings) -> Candidate | None:
    try:
        key = site_key(key_parts(site, slots))
    except NotStorable:
        return None
    missed = 0
    for candidate in shelf.fill(site, slots, key, settings):
        said = _marks_differ(candidate.entry)
        if said is None and candidate.guard(*slots) is not None:
            return candidate
        missed += 1
        if said is not None:
            if said not in shelf.stale:
                shelf.stale.append(said)
            shelf.note_miss(said)
            events.emit("entry_missed", key=candidate.stored.key, why=said, **_place_of(site))
            continue
        _take_history(site, candidate.entry, met_here=False)
        why = _why_missed(candidate.guard, slots)
        shelf.note_miss(shortened(why))
        events.emit("entry_missed", key=candidate.stored.key, why=why, **_place_of(site))
    if missed:
        counters["store"]["missed"] += 1
    return None


def refuse(site: Site, slots: tuple[Any, ...], carried: CarriedEntries) -> None:
    """Nothing that was compiled ahead fits a call. What ran as it is where the rest was compiled does so here, too.

    Raises:
        NotCompiledAhead: it was not, or for other calls only.
    """
    try:
        parts = key_parts(site, slots)
    except NotStorable as error:
        raise NotCompiledAhead(NOTHING_FITS, f"{site.name}: {error}") from None
    if carried.ran_eagerly(parts) or (site.only_with_tensors and not carried.has_region(parts)):
        return
    shelf, code = site.shelf or Shelf(), site.code_of(slots)
    guards = (*(entry.guard for entry in site.door.entries()), *(candidate.guard for candidate in shelf.candidates))
    why = "; or ".join(dict.fromkeys((*shelf.stale, *(_why_missed(guard, slots) for guard in guards))))
    where = CodeLocation(code.co_filename, code.co_qualname, code.co_firstlineno)
    raise NotCompiledAhead(NOTHING_FITS, f"{site.name}: {shortened(why or carried.why_not(parts), 400)}", where)


def _read(site: Site, slots: tuple[Any, ...], stored: StoredBytes) -> Candidate | str:
    """An entry of the folder; if what it refers to is not what it was, what differs."""
    try:
        with storing.loading_from(site.terms.host.store().cache_dir):
            entry = unpack(stored.data, _roots(site, slots), _Externals(site.owner))
        guard = _guard_of(site, entry)
    except Stale as error:
        why = error.what
    except FormatError as error:
        why = str(error)
    except Exception as error:  # whatever this is, the region can be captured
        _pass_on(error)
        why = f"{type(error).__name__}: {error}"
    else:
        return Candidate(stored, entry, guard)
    counters["store"]["stale"] += 1
    events.emit("entry_missed", key=stored.key, why=why, **_place_of(site))
    return why


def _marks_differ(entry: StoredEntry) -> str | None:
    """Which function that its capture asked about is marked otherwise here; None: none is."""
    try:
        return differing(entry.marks) if isinstance(entry.marks, Marks) else "no marks"
    except Exception as error:  # it is damaged: the region can be captured
        _pass_on(error)
        return f"marks: {type(error).__name__}: {error}"


def _guard_of(site: Site, entry: StoredEntry) -> torchjit_guards.GuardProgram:
    """The guards of an entry for this process. As objects they are read when somebody asks why a call missed, or to see them."""

    program: Any = entry.program

    def facts() -> torchjit_guards.Facts:
        found: torchjit_guards.Facts | None = _told_later(
            Deferred.unread(lambda: program.raised(entry.where.get())), "guards"
        )
        return found or ((), ())

    return torchjit_guards.GuardProgram.of_flat(program, site.region.nslots, facts)


def _why_missed(guard: Any, slots: tuple[Any, ...]) -> str:
    miss = guard.explain(slots)
    return "its guards do not hold" if miss is None else str(miss.text)


def _place_of(site: Site, made: Specialization | None = None) -> dict[str, Any]:
    """Fields of an event: the site, and where it starts, of an entry for a module its `forward`."""
    where = (made.location if made is not None else None) or site.location
    return {"function": site.name, "filename": where.filename, "lineno": where.lineno}


def _take_history(site: Site, entry: StoredEntry, *, met_here: bool) -> None:
    """What varied within another process, with modules like those of a call, is symbolic here at once.

    Args:
        met_here: the entry serves a call of this process, so its numbers are numbers of this process, too.
    """
    site.histories.learn(lambda: _history_of(entry), met_here=met_here)


def _history_of(entry: StoredEntry) -> torchjit_guards.SizeHistory:
    found = _told_later(entry.history, "history")
    return found if isinstance(found, torchjit_guards.SizeHistory) else torchjit_guards.SizeHistory()


def _graphs_of(entry: StoredEntry) -> tuple[str, ...]:
    return _told_later(entry.graphs, "graphs") or ()


def _told_later(part: Deferred[_T], what: str) -> _T | None:
    """A part of an entry that is read now; None, and an event, if it cannot be: nobody calls for the sake of it."""
    try:
        return part.get()
    except Exception as error:
        _pass_on(error)
        events.emit_fallback(FAILED, f"{what}: {type(error).__name__}: {error}")
        return None


def _appended(site: Site, found: Candidate, slots: tuple[Any, ...], start: float) -> Entry:
    owner, entry, guard = site.owner, found.entry, found.guard
    made = Specialization(
        f"{site.number}/{len(site.specializations)}", f"{LOADED}, built in {entry.seconds:.2f} s", guards=lambda: guard.guards, breaks=entry.breaks, source=entry.source,
        ranges=entry.ranges, settings=site.terms.settings, symbols=int(found.stored.header.get("symbols", 0)), texts=lambda: _graphs_of(entry), loaded_ops=entry.op_count, storage="loaded",
        eager_facts=entry.eager_facts if isinstance(entry.eager_facts, EagerFacts) else None,
    )  # fmt: skip
    site.place(made, slots)
    on_raise = None
    if entry.on_raise is not None:
        on_raise = OnRaise(site.failures, made, **attrs.asdict(entry.on_raise))
    hook = owner.ask_for_call if entry.hooked else None
    appended = Entry(guard, entry.target, entry.unwrap, made, hook, on_raise)
    made.continuations = tuple(region.key for region in entry.continuations)
    for region in entry.continuations:
        owner.follow_calls(region, entry.breaks, site)
    _take_history(site, entry, met_here=True)
    made.seconds = time.perf_counter() - start
    counters["store"]["loaded"] += 1
    site.specializations.append(made)
    site.door.append(appended)
    profiling.show_loaded()
    _tell_loaded(site, made, entry, slots)
    return appended


def _tell_loaded(site: Site, made: Specialization, entry: StoredEntry, slots: tuple[Any, ...]) -> None:
    """An entry was loaded; whoever listens to everything hears what a capture would have told, too."""
    fields = {
        "compile_id": made.compile_id, "seconds": made.seconds, "built_in": entry.seconds, "cause": entry.cause, **_place_of(site, made),
    }  # fmt: skip
    if not events.listening():
        events.emit("entry_loaded", **fields)
        return
    start = site.told_at_start(entry.cause, site.code_of(slots), slots)
    events.emit("entry_loaded", **{**start, **fields, "code_lineno": start["lineno"]})
    with events.using_compile_id(made.compile_id):
        guards = _told_later(Deferred.unread(lambda: made.guards), "guards")
        tell_loaded(site.name, site.callers, made, guards or ())


# --------------------------------------------------------------------------------------------------------- storing


@final
class Unstored:
    """An entry that is to be stored: at once, or when its backward has been compiled, and again for each variant of that.

    The specialisation keeps it alive; it keeps no argument of the call alive.
    """

    def __init__(
        self,
        site: Site,
        slots: tuple[Any, ...],
        entry: StoredEntry,
        functions: tuple[FunctionType | CodeType, ...],
        relied_on: dict[int, Any],
        made: Specialization,
    ) -> None:
        self._site = weakref.ref(site)
        self._slots = [_weakly(slot) for slot in slots]
        self._entry, self._functions, self._relied_on = entry, functions, relied_on
        self._contents = tuple(map(_content, functions))
        self._made = weakref.ref(made)
        self.parts = key_parts(site, slots)
        self.key = site_key(self.parts)
        self.path: Path | None = None
        """Of the file, once it is written."""
        self.turn: Turn | None = None
        """What other processes wait for, if they may."""

    def grows(self) -> None:
        """More of it is being compiled."""
        if self.turn is not None:
            self.turn.keep()

    def grown(self) -> None:
        """More of it has been compiled."""
        site = self._site()
        try:
            if site is not None and site.terms.host.store().writes:
                with eager():  # a backward may run below a break, where the hook asks for whatever is called
                    self.store(site, tuple(ref() for ref in self._slots))
        finally:
            turn, self.turn = self.turn, None
            if turn is not None:
                turn.done()

    def store(self, site: Site, slots: tuple[Any, ...]) -> None:
        """Write it, or say why not."""
        made = self._made()
        if made is None:
            return
        with _told(site, made):
            functions = (*self._functions, *self._relied_on.values())
            storing.check_parts(made.compile_id)
            start = time.perf_counter()
            self._check_unchanged()
            with storing.noting_libraries() as libraries:
                data = pack(self._entry, functions, _roots(site, slots), _Externals(site.owner))
            header = {
                "function": site.name, "seconds": self._entry.seconds, "libraries": sorted(libraries), "symbols": made.symbols,
            }  # fmt: skip
            path = entry_folder(site.terms.host.store()).write(self.key, header, data)
            if path is None:
                return
            self.path = path
            made.storage = "stored"
            counters["store"]["stored"] += 1
            seconds = time.perf_counter() - start
            events.emit(
                "entry_stored", compile_id=made.compile_id, bytes=len(data), seconds=seconds, **_place_of(site, made)
            )

    def _check_unchanged(self) -> None:
        for function, content in zip(self._functions, self._contents, strict=True):
            now = _content(function)
            if len(now) != len(content) or any(a is not b for a, b in zip(now, content, strict=True)):
                raise NotStorable(CHANGED_SINCE, function.__qualname__ if isinstance(function, FunctionType) else "")


def _content(function: FunctionType | CodeType) -> tuple[object, ...]:
    """What assignments to a function's attributes change of it."""
    if isinstance(function, CodeType):
        return ()
    keywords = function.__kwdefaults__ or {}
    return function.__code__, function.__defaults__, *keywords, *keywords.values()


def save(site: Site, slots: tuple[Any, ...], entry: Entry, origin: CaptureOrigin) -> None:
    """Store what a capture has made, or see to it that it is stored once its backward has been compiled.

    Args:
        site: where the entry is.
        slots: of the call.
        entry: in the door.
        origin: what it was made of.
    """
    made: Specialization = entry.data
    captured = origin.captured
    with _told(site, made):
        stored = StoredEntry(
            entry.guard.flat, Deferred(entry.guard.where), captured.target, captured.unwrap, _facts_of(entry.on_raise), captured.breaks,
            captured.continuations, entry.hook is not None, captured.source, Deferred(tuple(gm.code for gm in made.graphs)), made.op_count,
            made.ranges, Deferred(site.history_of(slots).for_others()), made.cause, made.seconds, facts_of(made.graphs) if made.graphs else None, origin.asked.marks(),
        )  # fmt: skip
        if site.shelf is not None and site.shelf.expected is not None:
            expected, site.shelf.expected = site.shelf.expected, None
            from torchjit_session.stored_comparison import compare  # noqa: PLC0415  # for people who verify

            compare(site.name, expected, stored)
        failed = (fields for kind, fields in made.notes.items if kind == "fallback" and not fields["repeats"])
        fallback = next(failed, None)
        if fallback is not None:
            raise NotStorable(FELL_BACK, fallback["detail"])
        made.unstored = Unstored(site, slots, stored, captured.functions, origin.relied_on, made)
        storing.when_grown(made.compile_id, made.unstored)
        made.unstored.store(site, slots)


def _facts_of(on_raise: object) -> RaiseFacts | None:
    if not isinstance(on_raise, OnRaise):
        return None
    return RaiseFacts(**{field.name: getattr(on_raise, field.name) for field in attrs.fields(RaiseFacts)})


@contextlib.contextmanager
def _told(site: Site, made: Specialization) -> Iterator[None]:
    """Why something is not stored is an event and is counted."""
    try:
        yield
        return
    except NotYetStorable as error:
        made.storage = f"{NOT_YET}: {error.reason.id}: {error.reason.headline}"
        return
    except NotStorable as error:
        why, detail = error.reason, error.detail
    except Exception as error:  # whatever this is, what was compiled works
        _pass_on(error)
        why, detail = FAILED, f"{type(error).__name__}: {error}"
    text = f"{why.id}: {why.headline}"
    made.storage = f"not stored: {text}: {shortened(detail)}"
    counters["not stored"][text] += 1
    events.emit(
        "entry_not_stored", compile_id=made.compile_id, reason=why.id, headline=why.headline, detail=detail, **_place_of(site, made)
    )  # fmt: skip


def _pass_on(error: Exception) -> None:
    """Raise what is the program's, and errors of ours where they are to be seen."""
    let_through()
    if events.raised_by_listener(error) or failures_are_raised():
        raise error


# --------------------------------------------------------------------------------------------------------- both


def _roots(site: Site, slots: tuple[Any, ...]) -> tuple[Any, ...]:
    """What both processes have at hand without a name, in the same order. A continuation's function is the one that was compiled, or below it."""
    return (site.region.function or site.owner.function, *slots)


def _weakly(slot: Any) -> Any:
    """A weak reference to an argument, or None in its place."""
    try:
        return weakref.ref(slot)
    except TypeError:
        return _nothing


def _nothing() -> None:
    return None


@final
class _Externals:
    """What belongs to one compilation of this process: front doors of continuations."""

    def __init__(self, owner: Compilation) -> None:
        self._owner = owner

    def name(self, obj: object) -> tuple[str, object] | None:
        """The door of a continuation, as its region."""
        if type(obj) is FrontDoor:
            region = self._owner.region_behind(obj)
            if region is not None:
                return "door", region
        return None

    def build(self, tag: str, payload: Any) -> object:
        """The door of a region here."""
        if tag != "door":
            raise FormatError(f"{tag} is nothing that a compilation has")
        return self._owner.door_for(payload)
