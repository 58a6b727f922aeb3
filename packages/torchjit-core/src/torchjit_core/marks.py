"""What a program says about a dimension of a tensor that it passes: as data, for the owner of symbolic sizes."""

from __future__ import annotations

from typing import Literal, final

import attrs

__all__ = ["SizeMark"]


@final
@attrs.frozen
class SizeMark:
    """A mark on one dimension.

    Attributes:
        kind: `dynamic`: a symbol, and an error where the program fixes it; `maybe`: a symbol if the program allows it;
            `static`: always a constant; `unbacked`: a symbol whose value no decision may look at.
        lower, upper: the declared range, both ends included; None where nothing was declared.
        same_as: a name that all dimensions of one size have, for unbacked ones.
    """

    kind: Literal["dynamic", "maybe", "static", "unbacked"]
    lower: int | None = None
    upper: int | None = None
    same_as: str | None = None
