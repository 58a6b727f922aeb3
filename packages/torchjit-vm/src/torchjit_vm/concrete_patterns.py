"""Class and mapping patterns of `match` over real objects. Source: Python/ceval.c, `_PyEval_MatchClass` and `_PyEval_MatchKeys`."""

from __future__ import annotations

from typing import Any

__all__ = ["match_class", "match_keys"]

_MATCH_SELF = 1 << 22
"""`_Py_TPFLAGS_MATCH_SELF`: the one positional sub-pattern of such a class is the subject itself."""
_MISSING = object()


def match_keys(subject: Any, keys: tuple[object, ...]) -> tuple[object, ...] | None:
    """The values of a mapping at these keys, or None if one is missing."""
    found = tuple(subject.get(k, _MISSING) for k in keys)
    return None if any(v is _MISSING for v in found) else found


def match_class(subject: Any, cls: Any, count: int, names: tuple[str, ...]) -> tuple[object, ...] | None:
    """What `count` positional sub-patterns and those of attributes are matched with, or None if the subject is no such object.

    Raises:
        TypeError: there are too many positional ones, two for one attribute, or `__match_args__` is no tuple of texts.
    """
    if not isinstance(subject, cls):
        return None
    arguments = getattr(cls, "__match_args__", None) if count else ()
    own = arguments is None and cls.__flags__ & _MATCH_SELF
    if arguments is not None and type(arguments) is not tuple:
        raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(arguments).__name__})")
    allowed = 1 if own else len(arguments or ())
    if count > allowed:
        s = "s" * (allowed != 1)
        raise TypeError(f"{cls.__name__}() accepts {allowed} positional sub-pattern{s} ({count} given)")
    found = [subject] if own and count else []
    seen = set()
    for name in names if found else (*(arguments or ())[:count], *names):
        if type(name) is not str:
            raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
        if name in seen:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        value = getattr(subject, name, _MISSING)
        if value is _MISSING:
            return None
        found.append(value)
    return tuple(found)
