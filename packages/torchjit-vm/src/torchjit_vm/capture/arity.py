"""How many arguments a C function takes: a call that does not fit runs for real, which raises the real error."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["fits"]

_ANY = 1 << 30
Arity = tuple[int, int, frozenset[str] | None]
"""Least and most positional arguments, and the names of keywords (None: any)."""

_UNTOLD: dict[str, tuple[int, int]] = {
    "__getitem__": (2, 2), "__contains__": (2, 2), "count": (2, 2), "index": (2, 4), "add_note": (2, 2), "with_traceback": (2, 2),
    "filter": (2, 2), "frozenset": (0, 1), "getattr": (2, 3), "islice": (2, 4), "iter": (1, 2), "max": (1, _ANY), "min": (1, _ANY),
    "next": (1, 2), "range": (1, 3), "reduce": (2, 3), "set": (0, 1), "slice": (1, 3), "vars": (0, 1), "bool": (0, 1),
    "deque": (0, 2), "map": (2, _ANY), "repeat": (1, 2),
}  # fmt: skip
"""By name, for functions that do not tell (fewer with each Python); positional ones, self included."""
_KEYWORDS = {
    "repeat": frozenset({"object", "times"}),
    "deque": frozenset({"iterable", "maxlen"}), "max": frozenset({"key", "default"}), "min": frozenset({"key", "default"}),
}  # fmt: skip


@functools.cache
def _arity(function: object) -> Arity | None:
    """Read from `__text_signature__`: "($self, key, default=None, /)"."""
    text = getattr(function, "__text_signature__", None)
    if text is None or "[" in text:  # some are written in the documentation's style
        name = getattr(function, "__name__", "")
        known = _UNTOLD.get(name)
        return None if known is None else (*known, _KEYWORDS.get(name, frozenset()))
    bound = isinstance(getattr(function, "__self__", None), type)
    least = most = 0
    names: list[str] = []
    positional, open_ended = True, False
    for parameter in filter(None, text[1:-1].split(", ")):
        if parameter[0] == "$":
            if parameter != "$module" and not bound:
                least, most = least + 1, most + 1
        elif parameter == "/":
            names.clear()
        elif parameter.startswith("**"):
            open_ended = True
        elif parameter[0] == "*":
            positional = False
            most = most if parameter == "*" else _ANY
        else:
            name, _, default = parameter.partition("=")
            names.append(name.partition(":")[0])
            if positional:
                most += 1
                least += not default
    return least, most, None if open_ended else frozenset(names)


def fits(function: Any, count: int, keywords: Any) -> bool:
    """May the function be called with so many positional arguments (self included) and these keywords?"""
    arity = _arity(function)
    if arity is None:
        return True
    least, most, names = arity
    if count > most or (names is not None and not names.issuperset(keywords)):
        return False
    return count >= least or bool(keywords)
