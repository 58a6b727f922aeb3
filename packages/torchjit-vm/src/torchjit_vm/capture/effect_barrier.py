"""Code that is interpreted now and runs later may change only what it made itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import final
from weakref import ReferenceType

from torchjit_vm.capture.values import Value
from torchjit_vm.frame import Frame

__all__ = ["EffectBarrier", "reachable"]


@final
class EffectBarrier:
    """Refuses changes of real objects, and of new ones that the program already holds.

    Args:
        frames: the frames outside of the quiet code, whose variables and stacks say what the program holds.
        reports: may calls that only report be put off?
    """

    def __init__(self, frames: Sequence[Frame[Value]], reports: bool = False) -> None:
        self.reports = reports
        self._frames = tuple(frames)
        self._held: set[int] | None = None

    def refuses(self, value: Value, touched: Mapping[Value, None], *, made: bool) -> bool:
        """May `value` not change, because the program had it before the quiet code started?

        Args:
            value: what is about to change.
            touched: what the region has changed, which keeps what it refers to.
            made: the region made it.
        """
        if not made:
            return True
        if self._held is None:
            self._held = reachable([*self._frames, *touched])
        return id(value) in self._held


def reachable(roots: Sequence[object], weak: bool = False) -> set[int]:
    """The ids of all values that can be reached from frames and values; with `weak`, weak references lead nowhere."""
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        cls = getattr(item, "cls", None) if weak else None
        if isinstance(cls, type) and issubclass(cls, ReferenceType):
            continue
        todo.extend(_inside(item))
    return seen


_REAL_OBJECTS = frozenset({"code", "globals", "namespace", "obj", "path", "real"})
"""Slots that hold objects of the running program, not values."""


def _inside(item: object) -> Iterator[object]:
    if isinstance(item, (list, tuple)):
        yield from item
    elif isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, (Value, Frame)):
        for cls in type(item).__mro__:
            for name in getattr(cls, "__slots__", ()):
                if name not in _REAL_OBJECTS:
                    yield getattr(item, name, None)
