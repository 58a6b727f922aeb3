"""The compilations that are alive, and those that share: of equal modules that are compiled one by one, what one of them has compiled.

An entry's guards say all that it relies on, as paths from the arguments, `self` among them: where they hold for another
module, so does its code. That module gets an entry of its own, so that freeing, resetting or explaining one of them is about
that one alone.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, final

from torchjit_core import events
from torchjit_frame import Entry

if TYPE_CHECKING:
    from torchjit_session.compilation import Compilation

__all__ = ["Family", "all_compilations", "family_of", "keeping_compilations", "register", "tell_hits"]

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
