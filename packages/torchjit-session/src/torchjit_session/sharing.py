"""The compilations that are alive, and those that share: of equal modules that are compiled one by one, what one of them has compiled.

An entry's guards say all that it relies on, as paths from the arguments, `self` among them: where they hold for another
module, so does its code. That module gets an entry of its own, so that freeing, resetting or explaining one of them is about
that one alone.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, final

from torchjit_core import events
from torchjit_frame import Entry

if TYPE_CHECKING:
    from torchjit_session.compilation import Compilation
    from torchjit_session.site import Site

__all__ = ["Family", "all_compilations", "borrowed", "family_of", "keeping_compilations", "register", "tell_hits"]

_live: weakref.WeakSet[Compilation] = weakref.WeakSet()
_keepers: list[list[Compilation]] = []


def register(compilation: Compilation) -> None:
    """Note a new one."""
    _live.add(compilation)
    for kept in _keepers:
        kept.append(compilation)


def all_compilations() -> list[Compilation]:
    """Every compilation that is alive, for `reset`."""
    return list(_live)


def tell_hits(*compilations: Compilation) -> None:
    """Tell listeners how many calls each specialisation has served: at the end of a program, or before they are forgotten."""
    if events.listening():
        hits = {
            e.data.compile_id: e.hits for c in compilations for site in c.sites for e in site.door.entries() if e.hits
        }
        if hits:
            events.emit("calls", hits=hits)


@contextlib.contextmanager
def keeping_compilations() -> Iterator[list[Compilation]]:
    """Every compilation that begins inside the block stays alive in the list, in order, for whoever asks about it afterwards."""
    kept: list[Compilation] = []
    _keepers.append(kept)
    try:
        yield kept
    finally:
        _keepers.remove(kept)


@final
class Family:
    """Compilations of one function under the same settings, each for an object of its own. It keeps none of them alive."""

    def __init__(self) -> None:
        self._members: list[weakref.ref[Compilation]] = []

    def add(self, member: Compilation) -> None:
        """Take in another one."""
        self._members = [*(m for m in self._members if m() is not None), weakref.ref(member)]

    def entries(self, asking: Compilation) -> Iterator[tuple[Compilation, Entry]]:
        """What the others have made for calls of the function, and whose it is."""
        for member in self._members:
            lender = member()
            if lender is not None and lender is not asking:
                for entry in lender.root.door.entries():
                    yield lender, entry


_families: weakref.WeakValueDictionary[Hashable, Family] = weakref.WeakValueDictionary()


def family_of(key: Hashable) -> Family | None:
    """The family under this key while it has members; None if the key cannot be one (an option without a hash)."""
    try:
        found = _families.get(key)
        if found is None:
            found = _families[key] = Family()
    except TypeError:
        return None
    return found


def borrowed(site: Site, slots: tuple[Any, ...]) -> Entry | None:
    """An entry like the one that an equal module has for such a call, if there is one: nothing is compiled."""
    owner = site.owner
    if owner.family is None or site is not owner.root or not site.has_room():
        return None
    settings = site.terms.settings
    for lender, entry in owner.family.entries(owner):
        if entry.enabled and entry.data.settings == settings and entry.guard(*slots) is not None:
            return _taken_over(site, entry, lender, slots)
    return None


def _taken_over(site: Site, entry: Entry, lender: Compilation, slots: tuple[Any, ...]) -> Entry:
    # Imported here: an import of torchjit, which has this module, needs no capture.
    import torchjit_guards  # noqa: PLC0415
    from torchjit_session.plain_calls import note_numbers  # noqa: PLC0415
    from torchjit_session.rerun import OnRaise  # noqa: PLC0415
    from torchjit_session.specialization import Specialization  # noqa: PLC0415

    start = time.perf_counter()
    theirs: Specialization = entry.data
    made = Specialization(
        f"{site.number}/{len(site.specializations)}", f"shared with {theirs.compile_id}",
        guards=theirs.guards, graphs=theirs.graphs, breaks=theirs.breaks, source=theirs.source, ranges=theirs.ranges,
        forced=theirs.forced, settings=site.terms.settings,
    )  # fmt: skip
    # What goes on in continuations needs the compilation that has them.
    made.lender = theirs.lender or (lender if entry.hook is not None or theirs.breaks else None)
    note_numbers(site.history_of(slots), slots, site.region)
    program = torchjit_guards.GuardProgram(theirs.guards, entry.guard.gather, site.region.nslots)
    hook = None if entry.hook is None else site.owner.ask_for_call
    on_raise = entry.on_raise.of(site.failures, made) if isinstance(entry.on_raise, OnRaise) else None
    own = Entry(program, entry.target, entry.unwrap, made, hook, on_raise)
    if theirs.trials is not None:
        theirs.trials.add(own)
        made.trials = theirs.trials
    made.seconds = time.perf_counter() - start
    site.specializations.append(made)
    site.door.append(own)
    return own
