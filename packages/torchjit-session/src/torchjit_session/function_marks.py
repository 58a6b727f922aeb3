"""Of which functions a capture asked whether the program says something of them: entries on disk hold that (`site_keys.Marks`)."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, final

import attrs

from torchjit_session.site_keys import Marks, name_of, said_now, short_name
from torchjit_store.deferred import Deferred

__all__ = ["Asked"]


@final
class Asked:
    """The functions about which a capture asks."""

    def __init__(self) -> None:
        self._functions: dict[int, object] = {}

    def note(self, function: object) -> None:
        self._functions[id(function)] = function

    def noting(self, ask: Callable[[object], Any]) -> Callable[[object], Any]:
        """`ask`, of functions that are noted."""

        def asked(function: object) -> Any:
            self.note(function)
            return ask(function)

        return asked

    def within(self, members: Container[Any]) -> Container[Any]:
        """The container, of functions that are noted."""
        return _Asked(members, self.note)

    def marks(self) -> Marks:
        """What is said of them now."""
        said = said_now()
        names = {name for function in self._functions.values() if (name := name_of(function)) is not None}
        others = sorted(map(short_name, names - said.keys()))
        return Marks({name: said[name] for name in sorted(names & said.keys())}, Deferred(tuple(others)))


@final
@attrs.frozen(eq=False)
class _Asked(Container[Any]):
    members: Container[Any]
    note: Callable[[object], None]

    def __contains__(self, function: object) -> bool:
        self.note(function)
        return function in self.members
