"""Finding out whether interpreted code looks at values: while they are hidden, each look raises."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NoReturn, final

__all__ = ["Hidden", "hidden"]


@final
class Hidden(Exception):
    """A hidden value was looked at."""


def _look(self: object, name: str) -> NoReturn:
    raise Hidden(name)


_kinds: dict[type, type] = {}


def _hidden_kind(cls: type) -> type:
    kind = _kinds.get(cls)
    if kind is None:  # of the same layout, so that a value can change to it and back
        kind = _kinds[cls] = type(f"Hidden{cls.__name__}", (cls,), {"__slots__": (), "__getattribute__": _look})
    return kind


@contextlib.contextmanager
def hidden(values: Sequence[object]) -> Iterator[None]:
    """Hide values of a domain; comparing them by identity is no look.

    Raises:
        Hidden: from inside, where an attribute of one is read.
    """
    kinds = [type(value) for value in values]
    for value, kind in zip(values, kinds, strict=True):
        value.__class__ = _hidden_kind(kind)
    try:
        yield
    finally:
        for value, kind in zip(values, kinds, strict=True):
            object.__setattr__(value, "__class__", kind)
