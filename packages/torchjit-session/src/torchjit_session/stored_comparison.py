"""`TORCHJIT_STORE=verify`: what was loaded is compared with what a capture of the same call gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torchjit_guards
from torchjit_core import events
from torchjit_core.reasons import reason
from torchjit_core.showing import shortened
from torchjit_core.user_warnings import warn_user
from torchjit_session.counters import counters
from torchjit_store.entry import StoredEntry

__all__ = ["compare", "differences"]

DIFFERS = reason(
    "TJ-STORE-034",
    "an entry on disk differs from what is captured",
    "TORCHJIT_STORE=verify captures what it has loaded once more. The entry on disk would have been used for this call, and says something else. "
    "The new one is used.",
    "This is a bug in torchjit, unless the code runs differently by chance: please report it. TORCHJIT_STORE=off avoids entries on disk.",
)


def _facts(entry: StoredEntry) -> torchjit_guards.Facts:
    program: Any = entry.program
    found: torchjit_guards.Facts = program.raised(entry.where.get())
    return found


_FACTS: dict[str, Callable[[StoredEntry], Any]] = {
    "guards": lambda entry: sorted(map(str, _facts(entry)[0])),
    "arguments of the code": lambda entry: list(map(str, _facts(entry)[1])),
    "result": lambda entry: [entry.unwrap],
    "emitted code": lambda entry: entry.source.splitlines(),
    "graphs": lambda entry: [line for graph in entry.graphs.get() for line in graph.splitlines()],
    "breaks": lambda entry: [f"{b.reason.id} {b.detail} {b.location}" for b in entry.breaks],
    "continuations": lambda entry: [
        f"{r.code.co_qualname} {r.offset} {r.stack} {r.locals} {r.cells}" for r in entry.continuations
    ],
    "exceptions": lambda entry: [entry.on_raise],
    "ranges": lambda entry: list(entry.ranges),
}


def differences(loaded: StoredEntry, captured: StoredEntry) -> Iterator[str]:
    """What differs, with the first place where it does."""
    for name, read in _FACTS.items():
        pairs = itertools.zip_longest(read(loaded), read(captured), fillvalue="nothing")
        first = next(((a, b) for a, b in pairs if a != b), None)
        if first is not None:
            yield f"{name}: {shortened(str(first[0]))} on disk, {shortened(str(first[1]))} now"


def compare(function: str, loaded: StoredEntry, captured: StoredEntry) -> None:
    """Warn, and count, where an entry differs from the one that stands for it on disk."""
    found = list(differences(loaded, captured))
    counters["store"]["verified" if not found else "different"] += 1
    if found:
        detail = f"{function}: {'; '.join(found)}"
        events.emit("entry_differs", function=function, reason=DIFFERS.id, detail=detail)
        warn_user(f"{DIFFERS.id}: {DIFFERS.headline}: {detail}")
