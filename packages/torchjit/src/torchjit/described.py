"""What arguments, options, settings and variables are called, take and do, as data for commands and pages."""

from __future__ import annotations

import inspect
import re
from typing import Any, final

import attrs

__all__ = ["Described", "entries_of"]

_ENTRY = re.compile(r"\n    (?=\w)")


@final
@attrs.frozen
class Described:
    """One of them.

    Attributes:
        name: as one writes it.
        takes: its values.
        default: as Python writes it.
        meaning: what it does.
        upstream: PyTorch's full name of it; empty where there is none.
        read: when it is looked at, where that is told for each one.
    """

    name: str
    takes: str
    default: str
    meaning: str
    upstream: str = ""
    read: str = ""


def entries_of(documented: Any, section: str) -> dict[str, str]:
    """The entries of a section of a docstring, such as `Args`: a text without line breaks for each name."""
    text = (inspect.getdoc(documented) or "").partition(f"{section}:")[2]
    body = re.split(r"\n\S", text)[0]  # the next section is not indented
    found: dict[str, str] = {}
    for entry in _ENTRY.split(body):
        names, _, meaning = entry.strip().partition(": ")
        if meaning:
            found.update(dict.fromkeys(names.split(", "), " ".join(meaning.split())))
    return found
