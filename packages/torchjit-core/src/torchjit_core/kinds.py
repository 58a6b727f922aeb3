"""Kinds of values that settings and options take: each says which, checks them, and guesses what was meant instead of a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, final

import attrs

from torchjit_core.reasons import Reason, UserError, UserTypeError
from torchjit_core.size_sources import bad_entry
from torchjit_core.user_errors import told

__all__ = [
    "COUNT",
    "FUNCTIONS",
    "LENIENT_SWITCH",
    "SIZES",
    "SOURCES",
    "SWITCH",
    "Kind",
    "as_switch",
    "choice",
    "number",
]


@final
@attrs.frozen
class Kind:
    """A kind of values.

    Attributes:
        text: which values these are, for tables and messages: `True or False`.
        take: the value as it is kept; a ValueError, perhaps with a more exact text, if it cannot be.
        guess: the right value next to a wrong one, None if there is none near.
        types: those of values that may be right; another one is a TypeError.
    """

    text: str
    take: Callable[[Any], Any]
    guess: Callable[[Any], Any] = lambda value: None
    types: tuple[type, ...] = ()

    def _takes(self, value: Any) -> bool:
        """Is at least the type right?"""
        return isinstance(value, self.types) and (bool in self.types or not isinstance(value, bool))

    def check(self, name: str, value: Any, why: Reason) -> Any:
        """The value as it is kept.

        Raises:
            UserError: it is not of this kind; the message says what would be, and the nearest right value.
        """
        try:
            return self.take(value)
        except ValueError as error:
            near = self.guess(value)
            wanted = "" if near is None else f"; did you mean {told(near)}?"
            said = f": {error}" if str(error) else ""
            error_type = UserError if self._takes(value) else UserTypeError
            raise error_type(why, f"{name}={told(value)}, want {self.text}{wanted}{said}") from None


_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def as_switch(value: object) -> bool | None:
    """True and False; also 1 and 0, and NumPy's booleans, which upstream takes. None: it is neither."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    numpys = type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
    return bool(value) if numpys else None


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _lenient_switch(value: Any) -> bool:
    made = as_switch(value)
    if made is None:
        raise ValueError
    return made


def _near_switch(value: Any) -> bool | None:
    word = str(value).strip().lower() if isinstance(value, (int, float, str)) else ""
    word = {"1.0": "1", "0.0": "0"}.get(word, word)
    near = difflib.get_close_matches(word, (*_YES, *_NO), n=1)
    return near[0] in _YES if near else None


SWITCH = Kind("True or False", _switch, _near_switch, (bool,))
LENIENT_SWITCH = Kind("True or False", _lenient_switch, _near_switch, (bool,))
"""See `as_switch`."""


def _count(value: Any) -> int:
    made = value if isinstance(value, bool) else getattr(value, "__index__", lambda: None)()
    if type(made) is not int or made < 0:
        raise ValueError
    return made


def _near_count(value: Any) -> int | None:
    near = _as_number(value)
    return int(near) if near is not None and near >= 0 and near == int(near) else None


COUNT = Kind("an int of at least 0", _count, _near_count, (int,))


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        made = float(value)
    except ValueError:
        return None
    return made if abs(made) < float("inf") else None  # nor is a NaN


def number(text: str, lowest: float, highest: float) -> Kind:
    """Ints and floats of a range, kept as floats."""

    def take(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not lowest <= value <= highest:
            raise ValueError
        return float(value)

    def guess(value: Any) -> float | None:
        near = _as_number(value)
        return None if near is None else min(max(near, lowest), highest)

    return Kind(text, take, guess, (int, float))


def choice(*choices: str) -> Kind:
    """One of several words."""

    def take(value: Any) -> str:
        if type(value) is not str or value not in choices:
            raise ValueError
        return value

    def guess(value: Any) -> str | None:
        near = difflib.get_close_matches(str(value).strip().lower(), choices, n=1, cutoff=0.5)
        return near[0] if near else None

    return Kind(" or ".join(map(repr, choices)), take, guess, (str,))


def _sources(value: Any) -> str:
    if type(value) is not str:
        raise ValueError
    wrong = bad_entry(value)
    if wrong is not None:
        raise ValueError(wrong)
    return value


SOURCES = Kind("names of places, separated by commas, such as \"L['x']:0\"", _sources, types=(str,))


def _functions(value: Any) -> set[Any]:
    if not isinstance(value, (set, frozenset, list, tuple)):
        raise ValueError
    wrong = [each for each in value if not callable(each)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no function")
    return set(value)


FUNCTIONS = Kind("a set of functions", _functions, lambda value: {value} if callable(value) else None)


def _sizes(value: Any) -> tuple[int, ...]:
    given: Iterable[Any] = value if isinstance(value, (tuple, list)) else (value,)
    if any(type(n) is not int or n < 1 for n in given):
        raise ValueError
    return tuple(sorted(set(given)))


SIZES = Kind("positive integers", _sizes, types=(int, list, tuple))
