"""The numbers that a function was captured with: what changed once becomes a symbol."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import attrs

from torchjit_core.paths import AccessPath

__all__ = ["SizeHistory"]

_KEPT = 32
"""Captures whose numbers are remembered side by side."""


@final
@attrs.define(eq=False, repr=False)
class SizeHistory:
    """The numbers met at each path, over all captures of one function (one front door).

    A path whose number differs from an earlier one is **changing**, and stays so. Two paths that held different
    numbers in one capture are **distinct**, and stay so.
    """

    _first: dict[tuple[AccessPath, type], str] = attrs.field(factory=dict, init=False)
    _changing: set[AccessPath] = attrs.field(factory=set, init=False)
    _captures: list[dict[AccessPath, int | float]] = attrs.field(factory=list, init=False)
    _unread: list[Callable[[], SizeHistory]] = attrs.field(factory=list, init=False)
    """What other processes have seen and nobody has asked for yet."""

    def begin(self) -> None:
        """A new capture: the numbers observed from now on were there at the same time."""
        self._read()
        self._captures.append({})
        del self._captures[:-_KEPT]

    def observe(self, path: AccessPath, value: int | float) -> bool:
        """Remember `value` at `path`; has the path ever held another one of its type?

        A NaN is the same as a NaN, and 0.0 is not -0.0: what a guard on the value would say.
        """
        if self._captures:
            self._captures[-1][path] = value
        self._read()
        text = repr(value)
        if self._first.setdefault((path, type(value)), text) != text:
            self._changing.add(path)
        return path in self._changing

    def distinct(self, a: AccessPath, b: AccessPath) -> bool:
        """Did the paths hold different numbers in one of the last captures?"""
        self._read()
        return any(a in seen and b in seen and seen[a] != seen[b] for seen in self._captures)

    def copy(self) -> SizeHistory:
        """As it is now."""
        self._read()
        made = SizeHistory()
        made._first, made._changing = dict(self._first), set(self._changing)
        made._captures = [dict(seen) for seen in self._captures]
        return made

    def learn(self, other: Callable[[], SizeHistory]) -> None:
        """Take over what another process's calls of the same function have shown. What this one's have shown first stays.

        Args:
            other: gives it once something is asked: a warm start ends without.
        """
        self._unread.append(other)

    def _read(self) -> None:
        while self._unread:
            self._learn(self._unread.pop(0)())

    def _learn(self, other: SizeHistory) -> None:
        other._read()
        for place, text in other._first.items():
            if self._first.setdefault(place, text) != text:
                self._changing.add(place[0])
        self._changing |= other._changing
        self._captures[:0] = other._captures
        del self._captures[:-_KEPT]

    def changing(self) -> frozenset[AccessPath]:
        """The paths whose numbers changed."""
        self._read()
        return frozenset(self._changing)
