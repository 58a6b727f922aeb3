"""Environment variables as switches, words and seconds. A value that one cannot have is an error that names it."""

from __future__ import annotations

import difflib
import math
import os

from torchjit_core.reasons import UserError, reason

__all__ = ["BAD_VARIABLE", "ON", "flag", "one_of", "seconds", "wrong_variable"]

BAD_VARIABLE = reason(
    "TJ-API-060",
    "an environment variable has a wrong name or value",
    "The environment variables of torchjit take the values that docs/settings.md lists, and nothing else.",
    "Correct the variable that is named, or unset it.",
)
ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")


def flag(name: str, default: str = "") -> bool:
    """Is it on?

    Raises:
        UserError: it is neither on nor off.
    """
    value = (os.environ.get(name) or default).strip().lower()
    words = tuple(filter(None, (*ON, *_OFF)))
    return one_of(name, value, ("", *words), f"{', '.join(ON)}, or {', '.join(filter(None, _OFF))}") in ON


def one_of(name: str, value: str, words: tuple[str, ...], wanted: str) -> str:
    """The value, which is one of the words.

    Raises:
        UserError: it is none of them; the nearest is told.
    """
    if value in words:
        return value
    near = difflib.get_close_matches(value, filter(None, words), n=1)
    raise wrong_variable(name, f"want {wanted}" + (f"; did you mean {near[0]!r}?" if near else ""))


def seconds(name: str, default: float) -> float:
    """A positive number, perhaps `inf`.

    Raises:
        UserError: it is none.
    """
    try:
        value = float(os.environ.get(name) or default)
    except ValueError:
        value = math.nan
    if not value > 0:  # nor is a NaN
        raise wrong_variable(name, "want a positive number of seconds, or inf")
    return value


def wrong_variable(name: str, wanted: str) -> UserError:
    """The error that its value is."""
    return UserError(BAD_VARIABLE, f"{name}={os.environ.get(name)!r}: {wanted}")
