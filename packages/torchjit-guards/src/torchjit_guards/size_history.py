"""The sizes that a function was captured with: what changed once becomes a symbol."""

from __future__ import annotations

from typing import final

import attrs

from torchjit_core.paths import AccessPath

__all__ = ["SizeHistory"]


@final
@attrs.define(eq=False)
class SizeHistory:
    """The integers met at each path, over all captures of one function (one front door).

    A path whose integer differs from an earlier one is **changing**, and stays so.
    """

    _first: dict[AccessPath, int] = attrs.field(factory=dict, init=False)
    _changing: set[AccessPath] = attrs.field(factory=set, init=False)

    def observe(self, path: AccessPath, value: int) -> bool:
        """Remember `value` at `path`; has the path ever held another one?"""
        if self._first.setdefault(path, value) != value:
            self._changing.add(path)
        return path in self._changing

    def changing(self) -> frozenset[AccessPath]:
        """The paths whose integers changed."""
        return frozenset(self._changing)
