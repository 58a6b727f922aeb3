"""What arguments, options, settings and variables are called, take and do, as data for commands and pages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, final

import attrs

from torchjit_core.kinds import Kind

__all__ = ["Described", "described_fields", "entries_of", "kind_of"]

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


def kind_of(field: Any, kinds: Mapping[str, Kind]) -> Kind:
    """What a field of attrs takes: its metadata say so, or its annotation does."""
    found: Kind = field.metadata.get("kind") or kinds[str(field.type)]
    return found


def described_fields(cls: Any, kinds: Mapping[str, Kind], upstream: str, read: str = "") -> list[Described]:
    """Every field of a class of settings; what each does is told by the docstring of the class.

    Args:
        cls: of attrs, with defaults. Metadata of a field may give its `name`, and its `upstream` and `read` as of `Described`.
        kinds: by annotation, see `kind_of`.
        upstream: PyTorch's module with settings of these names.
        read: when they are looked at.
    """
    meanings, defaults = entries_of(cls, "Attributes"), cls()
    return [
        Described(
            name, kind_of(f, kinds).text, repr(getattr(defaults, f.name)), meanings[f.name].removeprefix(f"`{name}`: "),
            f.metadata.get("upstream", f"{upstream}.{name}"), f.metadata.get("read", read),
        )
        for f in attrs.fields(cls) for name in [f.metadata.get("name", f.name)]
    ]  # fmt: skip
