"""State of a capture that one feature owns: a class beside the feature's code, of which each capture has one instance.

    class ContextVariables:
        def __init__(self) -> None:
            self.stores: list[ContextStore] = []

    domain.of(ContextVariables).stores.append(store)

A class that derives from `Tentative` goes back to what it was where an interpretation is given up.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol, TypeVar

__all__ = ["FeatureStates", "StateOf", "Tentative"]

T = TypeVar("T")


class StateOf(Protocol):
    """Gives the capture's instance of a class, made on first use."""

    def __call__(self, kind: type[T], /) -> T: ...


class FeatureStates(dict[type[Any], Any]):
    """Classes to their instances. Its `__getitem__` is a `StateOf` that costs one call of C where the instance exists."""

    def __missing__(self, kind: type[T]) -> T:
        made = self[kind] = kind()
        return made

    def saved(self) -> dict[type[Tentative], dict[str, object]]:
        """What the tentative states hold, for `restore`."""
        return {kind: state.saved() for kind, state in self.items() if isinstance(state, Tentative)}

    def restore(self, saved: dict[type[Tentative], dict[str, object]]) -> None:
        """Let the tentative states hold what they did; those that came later are made anew on their next use."""
        for kind in [kind for kind, state in self.items() if isinstance(state, Tentative) and kind not in saved]:
            del self[kind]
        for kind, before in saved.items():
            self[kind].restore(before)


class Tentative:
    """State that an interpretation changes and that does not outlive it where it is given up. Containers are copied, values are not."""

    def saved(self) -> dict[str, object]:
        return {name: copy.copy(content) for name, content in vars(self).items()}

    def restore(self, saved: dict[str, object]) -> None:
        vars(self).update(saved)
