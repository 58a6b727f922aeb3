"""What a program says about the sizes that it passes: `mark_dynamic`, `mark_static` and their kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from torchjit.exc import UserError
from torchjit_core.marks import SizeMark
from torchjit_core.reasons import reason
from torchjit_fx.marks import MARKS

__all__ = ["mark_dynamic", "mark_static", "mark_unbacked", "maybe_mark_dynamic"]

BAD_MARK = reason(
    "TJ-API-012",
    "a mark on a dimension that the tensor does not have, or an empty range",
    "Dimensions are counted from 0, or from the end with negative numbers; a range goes from min to max, both included.",
)
Dimensions = int | Sequence[int]


def mark_dynamic(t: torch.Tensor, index: Dimensions, *, min: int | None = None, max: int | None = None) -> None:
    """The size of this dimension varies: make it a symbol at the first compilation already.

    Compiling raises `UserError` if the program works for one size only, naming the line that fixes it; with `min` or
    `max`, also if it does not work alike for the whole range. Sizes 0 and 1 cannot be symbols.

    Args:
        t: a tensor that will be an argument of a compiled function.
        index: one dimension or several.
        min, max: the sizes that one compilation has to serve, both ends included.

    Raises:
        UserError: there is no such dimension, or the range is empty.
    """
    if min is not None and max is not None and min > max:
        raise UserError(BAD_MARK, f"min={min}, max={max}")
    _mark(t, index, "dynamic", min, max)


def maybe_mark_dynamic(t: torch.Tensor, index: Dimensions) -> None:
    """As `mark_dynamic`, but a program that needs one size gets a constant, without an error."""
    _mark(t, index, "maybe")


def mark_static(t: torch.Tensor, index: Dimensions | None = None) -> None:
    """The size of this dimension (None: every size of the tensor) stays a constant, also when it changed between calls."""
    _mark(t, range(t.dim()) if index is None else index, "static")


def mark_unbacked(t: torch.Tensor, index: Dimensions) -> None:
    """Make the size a symbol that no decision of the capture may look at, 0 and 1 included.

    A program that decides by it breaks the graph there; `torch._check` states what holds.
    """
    _mark(t, index, "unbacked")


def _mark(
    t: torch.Tensor,
    index: Dimensions,
    kind: Literal["dynamic", "maybe", "static", "unbacked"],
    lower: int | None = None,
    upper: int | None = None,
) -> None:
    if not isinstance(t, torch.Tensor):
        raise UserError(BAD_MARK, f"got a {type(t).__name__}, want a tensor")
    marks: dict[int, SizeMark] = t.__dict__.setdefault(MARKS, {})
    chosen: Any = (index,) if isinstance(index, int) else index
    for dim in chosen:
        if not -t.dim() <= dim < t.dim():
            raise UserError(BAD_MARK, f"dimension {dim} of a tensor with {t.dim()}")
        marks[dim % t.dim()] = SizeMark(kind, lower, upper)
