"""Python's cyclic garbage collector during a capture, while its graphs are compiled, and while an entry is written or read.

A capture makes some hundred thousand objects. With torch and a model library loaded, the collections that this sets off take as long as the
capture itself (0.2 of 0.7 s for 48 layers of Llama). It leaves next to no cycles behind (tests see to that), so there is nothing for
the collector in it: what is not gone at its end stays, and is filed among the old objects without being looked at.

A compilation leaves cycles behind, most of them young: those are collected as ever. What it keeps to its end makes Python look at
all objects of the process again and again, 0.3 s each time; it does that once, later (0.75 of 2.9 s for a step of 48 layers, for 5 MB).
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator

from torchjit_core.forks import undone_in_children

__all__ = [
    "collector_paused",
    "collector_resumed",
    "frozen_now",
    "full_collections_allowed",
    "full_collections_put_off",
    "program_has_frozen",
]

_MOST_FROZEN_BY_PYTHON = 10_000
_TRUSTED = 100
"""Frozen objects are counted one by one, 6 ms for half a million: the answer holds for so many times what that took."""


@contextlib.contextmanager
def collector_paused() -> Iterator[bool]:
    """No automatic collections inside, in any thread. Gives what `collector_resumed` asks for: were they on?"""
    was_on = gc.isenabled()
    with undone_in_children(gc.enable) if was_on else contextlib.nullcontext():
        gc.disable()
        _count_young()
        try:
            yield was_on
        finally:
            if was_on:
                _count_young()  # of the backend
                _grow_old()
                gc.enable()
                _collect_if_due()


@contextlib.contextmanager
def collector_resumed(was_on: bool) -> Iterator[None]:
    """Inside of `collector_paused`: collections as they were before it, but no full ones."""
    if was_on:
        _grow_old()
        gc.enable()
    try:
        with full_collections_put_off():
            yield
    finally:
        if was_on:
            gc.disable()


@contextlib.contextmanager
def full_collections_put_off() -> Iterator[None]:
    """Next to no automatic collections of all objects inside, in any thread; those of younger ones are as ever."""
    global _usual
    young, middle, old = gc.get_threshold()
    if (
        not 0 < old < _LATER
    ):  # they are put off already, or the program has its own wishes, or this Python collects otherwise
        yield
        return
    _usual = old
    with undone_in_children(full_collections_allowed):
        gc.set_threshold(young, middle, _LATER)
        try:
            yield
        finally:
            if gc.isenabled():
                _count_young()
                _grow_old()  # which forgets the collections that one of all objects would follow
            full_collections_allowed()


def full_collections_allowed() -> None:
    """Where somebody is inside of `full_collections_put_off`: from now on there are full collections."""
    young, middle, old = gc.get_threshold()
    if old == _LATER:
        gc.set_threshold(young, middle, _usual)


_LATER = 1_000
"""Collections of middle-aged objects, each after 8,000 new ones, before all objects are gone through; Python has 10."""
_usual = 10


def program_has_frozen() -> bool:
    """Has the program called `gc.freeze`? Where it has, that is asked anew now and then only."""
    global _frozen_until
    start = time.perf_counter()
    if start < _frozen_until:
        return True
    if not frozen_now():
        return False
    now = time.perf_counter()
    _frozen_until = now + _TRUSTED * (now - start)
    return True


_frozen_until = 0.0
"""Until this time, by `time.perf_counter`, a program that had frozen objects is taken to have them still."""


def frozen_now() -> bool:
    """Are there frozen objects? Python 3.12 freezes some hundred of its own at its start, and torch has over 100,000."""
    return gc.get_freeze_count() > _MOST_FROZEN_BY_PYTHON


def _grow_old() -> None:
    """File all objects among the old ones, as a full collection would, without looking at them.

    Freezing and unfreezing move whole lists, and reset the counts of new objects. Not where the program itself has frozen objects:
    these would be unfrozen.
    """
    if not program_has_frozen():
        gc.freeze()
        gc.unfreeze()


def _count_young() -> None:
    """Count the objects about to be filed that others than a capture made: there may be cycles among them."""
    global _filed
    new, collections, _ = gc.get_count()
    _filed += new + collections * gc.get_threshold()[0]


def _collect_if_due() -> None:
    """Python looks at old objects when enough others have grown old in its own collections. It does not know of those filed here, so
    that cycles among them could wait for ever: after so many of them we ask for a full collection."""
    global _filed
    if _filed > _DUE:
        _filed = 0
        gc.collect()


_filed = 0
_DUE = 200_000
"""A capture adds some hundreds to some thousands."""
