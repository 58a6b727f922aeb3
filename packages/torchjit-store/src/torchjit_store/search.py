"""The search for objects that no name leads to."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, final

from torchjit_store.fingerprints import Step, atom_text, class_name, namespace
from torchjit_store.ours import is_our_function
from torchjit_store.reached import is_library
from torchjit_store.steps import held, held_by_ours

__all__ = ["Search"]


@final
class Search:
    """Breadth first, through objects and through classes and functions by turns, from the roots and the interpreted functions, as far as needed; identity decides.

    Modules that are no seeds come last. It goes on where it stopped when the next object is looked for, so all searches of an entry together visit each object once.

    Args:
        seeds: where it begins: objects that have rows. They are asked for at the first search.
        has_row: is there a row for the object of this id?
    """

    _LIMIT = 40_000
    _AROUND = 400

    def __init__(self, seeds: Callable[[], Iterable[object]], has_row: Callable[[int], bool]) -> None:
        self._seeds, self._has_row = seeds, has_row
        self._from: dict[int, tuple[int, Step] | None] = {}
        self._objects: dict[int, Any] = {}
        self._near: deque[Any] = deque()
        self._classes: deque[Any] = deque()
        self._far: deque[Any] = deque()
        self._started = False
        self._found: set[int] = set()

    def way_to(self, obj: object) -> tuple[Any, tuple[Step, ...]] | None:
        """An object with a row, and the steps that lead from it to the wanted one; None: nothing within reach does."""
        if not self._started:
            self._started = True
            for seed in self._seeds():
                self._seed(seed)
        wanted = id(obj)
        while wanted not in self._from:
            queues = [queue for queue in (self._near, self._classes) if queue] or [self._far]
            if not queues[0] or len(self._objects) > self._LIMIT:
                return None
            for queue in queues:
                self._expand(queue.popleft())
        if wanted not in self._found:
            self._found.add(wanted)
            self._look_around(wanted)
        return self._way_back(wanted)

    def _look_around(self, found: int) -> None:
        """Look a few steps into what was found and what holds it: what is looked for next is often there, and is told in one step then."""
        before = self._from[found]
        todo = deque([self._objects[found], *([] if before is None else [self._objects[before[0]]])])
        seen = set(map(id, todo))
        for _ in range(self._AROUND):
            if not todo:
                return
            obj = todo.popleft()
            self._expand(obj)
            for _, value in self._held(obj):
                if id(value) not in seen and atom_text(value) is None and not issubclass(type(value), types.ModuleType):
                    seen.add(id(value))
                    todo.append(value)

    def _way_back(self, at: int) -> tuple[Any, tuple[Step, ...]]:
        way: list[Step] = []
        while not self._has_row(at):
            before = self._from[at]
            if before is None:
                raise AssertionError("a seed of the search has a row")
            at, step = before
            way.append(step)
        return self._objects[at], tuple(reversed(way))

    def _seed(self, obj: Any) -> None:
        if id(obj) not in self._from:
            self._from[id(obj)] = None
            self._objects[id(obj)] = obj
            queue = self._queue_for(obj)
            (self._classes if queue is self._far else queue).append(obj)

    def _expand(self, obj: Any) -> None:
        known, parent = self._from, id(obj)
        for step, value in self._held(obj):
            key = id(value)
            if key in known:
                continue
            atom = atom_text(value) is not None
            if atom and type(value) not in _UNIQUE:
                continue
            known[key] = parent, step
            self._objects[key] = value
            if not atom:
                self._put_off(step, value)

    def _put_off(self, step: Step, value: Any) -> None:
        """Look into it later: into a local class soon, since methods are looked for to which no other way leads; into modules of
        libraries behind the program's, since torch alone holds more than is looked at."""
        queue = self._queue_for(value)
        if queue is self._far:
            soon = not is_library(str(namespace(value).get("__name__")))
        else:
            soon = step[0] == "type" and "<locals>" in class_name(value)
        if soon and queue is not self._far:
            queue = self._classes
        (queue.appendleft if soon else queue.append)(value)

    def _queue_for(self, obj: Any) -> deque[Any]:
        if issubclass(type(obj), types.ModuleType):
            return self._far
        return self._classes if type(obj) is types.FunctionType or issubclass(type(obj), type) else self._near

    def _held(self, obj: Any) -> Iterable[tuple[Step, Any]]:
        if type(obj) is types.FunctionType and self._from[id(obj)] is None and is_our_function(obj):
            return held_by_ours(obj)
        if not issubclass(type(obj), types.ModuleType):
            return held(obj)
        space = namespace(obj)
        if str(space.get("__name__")).startswith("torchjit"):
            return ()
        return [(("entry", n), v) for n, v in list(space.items()) if type(n) is str and not n.startswith("__")]


_UNIQUE = frozenset({int, float, complex, str, bytes})
"""Atoms that a guard may compare by identity, as it does what a class holds; whoever finds them compares the value."""
