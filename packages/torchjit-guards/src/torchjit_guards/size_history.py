"""The numbers that a function was captured with: what changed once becomes a symbol."""

from __future__ import annotations

from typing import final

import attrs

from torchjit_core.paths import AccessPath

__all__ = ["SizeHistory"]

_KEPT = 32
"""Captures whose numbers are remembered side by side."""


@final
@attrs.define(eq=False, repr=False)
class SizeHistory:
    """The numbers met at each path, over the captures of one function (one front door) with modules that are alike.

    A path whose number differs from an earlier one is **changing**, and stays so. Two paths that held different
    numbers in one capture are **distinct**, and stay so.

    Attributes:
        modules: which modules the numbers were met with, for whoever keeps several histories apart.
    """

    modules: str = ""
    _first: dict[tuple[AccessPath, type], str] = attrs.field(factory=dict, init=False)
    _changing: set[AccessPath] = attrs.field(factory=set, init=False)
    _captures: list[dict[AccessPath, int | float]] = attrs.field(factory=list, init=False)

    def begin(self) -> None:
        """A new capture: the numbers observed from now on were there at the same time."""
        self._captures.append({})
        del self._captures[:-_KEPT]

    def observe(self, path: AccessPath, value: int | float) -> bool:
        """Remember `value` at `path`; has the path ever held another one of its type?

        A NaN is the same as a NaN, and 0.0 is not -0.0: what a guard on the value would say.
        """
        if self._captures:
            self._captures[-1][path] = value
        self._compare(path, type(value), repr(value))
        return path in self._changing

    def _compare(self, path: AccessPath, kind: type, text: str) -> None:
        if self._first.setdefault((path, kind), text) != text:
            self._changing.add(path)

    def distinct(self, a: AccessPath, b: AccessPath) -> bool:
        """Did the paths hold different numbers in one of the last captures?"""
        return any(a in seen and b in seen and seen[a] != seen[b] for seen in self._captures)

    def for_others(self) -> SizeHistory:
        """What another process may know: what has changed and differed so far, and the numbers of the last capture."""
        made = SizeHistory(self.modules)
        made._captures = [dict(seen) for seen in self._captures]
        made._changing = set(self._changing)
        last = self._captures[-1] if self._captures else {}
        made._first = {(path, type(value)): repr(value) for path, value in last.items()}
        return made

    def learn(self, other: SizeHistory, *, met_here: bool) -> None:
        """Take over what changed or differed there.

        Args:
            other: of another process, or of other modules.
            met_here: its numbers count as if they had been observed here. Without that a number that is another one here
                has not changed: each of the two was the only one where it was met.
        """
        if met_here:
            for (path, kind), text in other._first.items():
                self._compare(path, kind, text)
        self._changing |= other._changing
        self._captures[:0] = [dict(seen) for seen in other._captures]
        del self._captures[:-_KEPT]

    def changing(self) -> frozenset[AccessPath]:
        """The paths whose numbers changed."""
        return frozenset(self._changing)
