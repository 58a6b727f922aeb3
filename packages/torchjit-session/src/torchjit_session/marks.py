"""What a program says about the sizes that it passes: `mark_dynamic`, `mark_static` and their kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from torchjit_core.marks import SizeMark
from torchjit_core.reasons import UserError, UserIndexError, UserTypeError, reason
from torchjit_fx.marks import ADDRESS, MARKS

__all__ = ["mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic"]

BAD_MARK = reason(
    "TJ-API-012",
    "a mark on a dimension that the tensor does not have, or an empty range",
    "Dimensions are counted from 0, or from the end with negative numbers; a range goes from min to max, both included.",
    "For instance torchjit.mark_dynamic(batch, 0, min=2, max=64).",
)
Dimensions = int | Sequence[int]


def mark_dynamic(
    t: torch.Tensor,
    index: Dimensions,
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: Sequence[Any] | None = None,
) -> None:
    """The size of this dimension varies: make it a symbol at the first compilation already.

    Compiling raises `UserError` if the program works for one size only, naming the line that fixes it; with `min` or
    `max`, also if it does not work alike for the whole range. Sizes 0 and 1 cannot be symbols.

    Args:
        t: a tensor that will be an argument of a compiled function.
        index: one dimension or several.
        min, max: the sizes that one compilation has to serve, both ends included.
        hint_override, specialize_on: taken for upstream's sake, without effect: one kernel serves all sizes. For a kernel of its own,
            call the function with a tensor whose dimension is marked static.

    Raises:
        UserError: there is no such dimension, or the range is empty.
    """
    _mark(t, index, "dynamic", min, max)


def maybe_mark_dynamic(t: torch.Tensor, index: Dimensions, *, min: int | None = None, max: int | None = None) -> None:
    """As `mark_dynamic`, but a program that needs one size gets a constant, without an error.

    A size outside of `min` and `max` is as if it were not marked.
    """
    _mark(t, index, "maybe", min, max)


def mark_static(t: torch.Tensor, index: Dimensions | None = None) -> None:
    """The size of this dimension (None: every size of the tensor) stays a constant, also when it changed between calls."""
    _mark(t, range(t.dim()) if index is None and isinstance(t, torch.Tensor) else index, "static")


def mark_static_address(t: torch.Tensor, guard: bool = False) -> None:
    """The memory of this tensor stays where it is: CUDA graphs read and write it there, rather than copy it at each call.

    What is in it may change. A call with memory elsewhere is right all the same: it is recorded anew. Parameters and buffers of modules need
    no mark. A tensor whose sizes vary is copied.

    Args:
        t: a tensor that will be an argument of a compiled function.
        guard: compile anew, not only record, where the memory is another.

    Raises:
        UserError: it is no tensor.
    """
    _check_tensor(t)
    t.__dict__[ADDRESS] = "guarded" if guard else "unguarded"


def mark_unbacked(
    t: torch.Tensor,
    index: Dimensions,
    hint_override: int | None = None,
    strict: bool = False,
    specialize_on: Sequence[Any] | None = None,
    shape_id: str | None = None,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Make the size a symbol that no decision of the capture may look at, 0 and 1 included.

    A program that decides by it breaks the graph there; `torch._check` states what holds.

    Args:
        t: a tensor that will be an argument of a compiled function.
        index: one dimension or several.
        min, max: the sizes that may come, both ends included: the program may rely on them. Others are an error where they come.
        shape_id: dimensions with the same name have the same size: one symbol. Where they have not, the function is compiled anew.
        hint_override, specialize_on, strict: taken for upstream's sake, without effect: no kernel is chosen by a hint, and no size is
            ever fixed.

    Raises:
        UserError: there is no such dimension, or the range is empty.
    """
    _mark(t, index, "unbacked", min, max, shape_id)


def _mark(
    t: torch.Tensor,
    index: Dimensions | None,
    kind: Literal["dynamic", "maybe", "static", "unbacked"],
    lower: int | None = None,
    upper: int | None = None,
    same_as: str | None = None,
) -> None:
    _check_tensor(t)
    _check_range(lower, upper)
    if not isinstance(same_as, str | None):
        raise UserTypeError(BAD_MARK, f"shape_id={same_as!r}, want a str")
    marks: dict[int, SizeMark] = t.__dict__.setdefault(MARKS, {})
    chosen: Any = (index,) if isinstance(index, int) else index
    if isinstance(index, bool) or not isinstance(chosen, Sequence) or any(type(dim) is not int for dim in chosen):
        raise UserTypeError(BAD_MARK, f"{index!r} for dimensions, want an int or a list of ints")
    for dim in chosen:
        if not -t.dim() <= dim < t.dim():
            raise UserIndexError(BAD_MARK, f"dimension {dim} of a tensor with {t.dim()}")
        marks[dim % t.dim()] = SizeMark(kind, lower, upper, same_as)


def _check_range(lower: object, upper: object) -> None:
    for name, size in (("min", lower), ("max", upper)):
        if size is not None and type(size) is not int:
            raise UserTypeError(BAD_MARK, f"{name}={size!r}, want an int")
        if type(size) is int and size < 0:
            raise UserError(BAD_MARK, f"{name}={size}, want a size, which is at least 0")
    if type(lower) is int and type(upper) is int and lower > upper:
        raise UserError(BAD_MARK, f"min={lower}, max={upper}: the range is empty")


def _check_tensor(t: object) -> None:
    if not isinstance(t, torch.Tensor):
        raise UserTypeError(BAD_MARK, f"got a {type(t).__name__}, want a tensor")
