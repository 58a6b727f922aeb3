"""Sizes and numbers named by where they are found: the settings `dynamic_sources`, `static_sources` and `unbacked_sources`.

Each is upstream's: entries separated by commas, `L['x']`, `L['x']:0` for one dimension, or a regular expression of such names. The plain
name of an argument or variable, `x` or `self.bias`, does, too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Literal

from torchjit_core.marks import SizeMark
from torchjit_core.paths import AccessPath, SizeOf
from torchjit_core.reasons import UserError, reason

__all__ = ["bad_entry", "marks_by_source", "source_of"]

BAD_SOURCES = reason(
    "TJ-API-076",
    "an entry of dynamic_sources, static_sources or unbacked_sources is no name and no regular expression",
    "They are set in torch.compiler.config, or by variables such as TORCH_COMPILE_DYNAMIC_SOURCES: entries separated by commas.",
    "For instance TORCH_COMPILE_DYNAMIC_SOURCES=\"L['x']:0,L['mask']\".",
)
_DIMENSION = re.compile(r"(.*):(\d+)\Z", re.DOTALL)
_ROOT = re.compile(r"\w+")
_Entries = tuple[tuple[str, int | None], ...]


def bad_entry(sources: str) -> str | None:
    """What is wrong with a setting's value, if anything is."""
    for pattern, _ in _entries(sources):
        try:
            re.compile(pattern)
        except re.error as error:
            return f"{pattern!r} is no regular expression: {error}"
    return None


def _entries(sources: str) -> _Entries:
    found: list[tuple[str, int | None]] = []
    for entry in sources.replace(" ", "").split(","):
        dimension = _DIMENSION.match(entry)
        if entry:
            found.append((dimension[1], int(dimension[2])) if dimension else (entry, None))
    return tuple(found)


def source_of(path: AccessPath) -> str:
    """Upstream's name of a place: `L['x']` of the argument or variable `x`, with what leads on from there."""
    return _ROOT.sub(lambda name: f"L[{name[0]!r}]", str(path), count=1)


@functools.lru_cache(maxsize=8)
def marks_by_source(dynamic: str, static: str, unbacked: str) -> Callable[[AccessPath], SizeMark | None] | None:
    """What the settings say of the size or number at a place; None if they say nothing of any.

    Raises:
        UserError: an entry is no regular expression.
    """
    kinds: tuple[tuple[Literal["static", "unbacked", "maybe"], _Entries], ...] = (
        ("static", _entries(static)),  # the one that wins
        ("unbacked", _entries(unbacked)),
        ("maybe", _entries(dynamic)),
    )
    if not any(entries for _, entries in kinds):
        return None
    wrong = bad_entry(f"{dynamic},{static},{unbacked}")
    if wrong is not None:  # what is set in torchjit.config has been checked
        raise UserError(BAD_SOURCES, wrong)

    def mark(path: AccessPath) -> SizeMark | None:
        dim = path.key if isinstance(path, SizeOf) else None
        place = path.base if isinstance(path, SizeOf) else path
        assert place is not None
        ours, theirs = str(place), source_of(place)
        for kind, entries in kinds:
            for pattern, only in entries:
                named = pattern == theirs or re.match(pattern, theirs) or re.fullmatch(pattern, ours)
                if named and (only is None or dim is None or only == dim):
                    return SizeMark(kind)
        return None

    return mark
