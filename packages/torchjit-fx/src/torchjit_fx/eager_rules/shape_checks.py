"""What eager's kernels check of sizes before they run and fake tensors do not: shapes that do not fit.

Such an operation is not for a graph: there it raises with the program's effects still to come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchjit_fx.eager_rules.known_sizes import differ, holds, seen, unequal
from torchjit_fx.eager_rules.rule import OperatorCall, ShapeCheck, Size, Sizes, Value, Values

__all__ = [
    "arange", "as_strided", "index_add", "index_put", "index_reduce", "index_select", "masked_scatter", "pow_of_bools", "put", "refuse_shapes",
    "scattered", "searchsorted", "select", "select_scatter", "upsample",
]  # fmt: skip

_aten = torch.ops.aten


def refuse_shapes(call: OperatorCall) -> None:
    """Raise if eager refuses the shapes of an operation that metadata functions accept.

    Raises:
        RuntimeError: it does.
    """
    check = call.rule.shapes
    # Where torch makes a slice by strides, it stays within the memory.
    why = None if check is None or (check is as_strided and not call.beyond) else check(*call.args, **call.kwargs)
    if why is not None:
        raise RuntimeError(why)


def _misfit(n: Size | None, wanted: Size | None, *ones: Value) -> bool:
    """Is a size known to be not the wanted one, and none of `ones` to be 1? One condition, so that the guard says no more."""
    if n is None or wanted is None:
        return False
    condition: Value = n != wanted
    for other in ones:
        condition = _both(condition, other != 1)
    return holds(condition)


def _both(a: Value, b: Value) -> Value:
    if isinstance(a, torch.SymBool):
        return a & b
    return b if a else False


def index_put(
    x: torch.Tensor, indices: Values, values: torch.Tensor, accumulate: bool = False, unsafe: bool = False
) -> str | None:
    place = 0
    for index in indices:
        is_mask = isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
        if is_mask and any(map(unequal, index.shape, x.shape[place:])):  # torch 2.11's metadata function does not ask
            return f"a mask of shape {list(index.shape)} for {list(x.shape[place:])}"
        place += index.dim() if is_mask else 1
    shape = _indexed(x, indices)
    if shape is None:
        return "shape mismatch: indexing tensors could not be broadcast together"
    given = tuple(values.shape)
    if len(given) > len(shape) or any(_misfit(n, k, n) for n, k in zip(given[::-1], shape[::-1], strict=False)):
        return f"shape mismatch: a value of shape {list(given)} for an index that chooses {list(shape)}"
    return None


def _indexed(x: torch.Tensor, indices: Values) -> list[Size | None] | None:
    """The shape of `x[indices]`, None for each size that only the run knows; None as a whole if the indices do not fit each other."""
    shapes: list[Value] = []  # of the index of each dimension of x
    for index in indices:
        if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
            shapes += [(None,)] * index.dim()
        else:
            shapes.append(tuple(index.shape) if isinstance(index, torch.Tensor) else None)
    shapes += [None] * (x.dim() - len(shapes))  # too many are refused by the metadata function
    shapes = shapes[: x.dim()]
    chosen: list[Value] = []
    for shape in shapes:
        if shape is not None:
            chosen = [*[1] * (len(shape) - len(chosen)), *chosen]
            padded = (*[1] * (len(chosen) - len(shape)), *shape)
            if any(_misfit(a, b, a, b) for a, b in zip(padded, chosen, strict=True)):
                return None
            chosen = [_broadcast(a, b) for a, b in zip(padded, chosen, strict=True)]
    at = [d for d, shape in enumerate(shapes) if shape is not None]
    if not at:
        return list(x.shape)
    first = at[0] if at == list(range(at[0], at[-1] + 1)) else 0
    kept = [n for n, shape in zip(x.shape, shapes, strict=True) if shape is None]
    return [*kept[:first], *chosen, *kept[first:]]


def _broadcast(a: Size | None, b: Size | None) -> Value:
    """The size of two that fit each other."""
    if type(a) is int and type(b) is int:
        return max(a, b) if 0 not in (a, b) else 0
    for n, other in ((a, b), (b, a)):
        if type(n) is int:
            return n if n != 1 else other
    return None if a is None or b is None or unequal(a, b) else a


def index_add(
    x: torch.Tensor, dim: int, index: Value, source: torch.Tensor, *args: Value, **kwargs: Value
) -> str | None:
    if not x.dim() or not source.dim() or not -x.dim() <= dim < x.dim():
        return None
    ours, theirs = list(x.shape), list(source.shape)
    dim %= x.dim()
    if len(ours) == len(theirs):
        ours[dim] = theirs[dim]
    return f"a source of shape {theirs} for {list(x.shape)}" if differ(ours, theirs) else None


def index_reduce(
    x: torch.Tensor, dim: int, index: Value, source: torch.Tensor, *args: Value, **kwargs: Value
) -> str | None:
    if source.dim() and -source.dim() <= dim < source.dim() and unequal(index.numel(), source.shape[dim]):
        return f"{index.numel()} indices for a source of shape {list(source.shape)}"
    return index_add(x, dim, index, source)


def index_select(x: torch.Tensor, dim: int, index: Value, **kwargs: Value) -> str | None:
    if index.dim() > 1 or (not x.dim() and unequal(index.numel(), 1)):
        return f"index_select(): an index of shape {list(index.shape)} for {list(x.shape)}"
    return None


def put(x: torch.Tensor, index: Value, source: torch.Tensor, accumulate: bool = False) -> str | None:
    return "put_(): as many sources as indices" if unequal(index.numel(), source.numel()) else None


def searchsorted(sorted_sequence: torch.Tensor, value: Value, *args: Value, **kwargs: Value) -> str | None:
    number = not isinstance(value, torch.Tensor) or not value.dim()
    return (
        "searchsorted() of a number wants boundaries of one dimension"
        if number and sorted_sequence.dim() != 1
        else None
    )


def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> str | None:
    short = len(mask.shape) <= len(x.shape)
    sizes = zip(mask.shape[::-1], x.shape[::-1], strict=False)
    fits = short and not any(_misfit(n, k, n) for n, k in sizes)
    return None if fits else f"a mask of shape {list(mask.shape)} for {list(x.shape)}"


def scattered(view: Callable[..., Any]) -> ShapeCheck:
    """Of an operation that replaces a view."""

    def rule(x: torch.Tensor, src: torch.Tensor, *args: Value, **kwargs: Value) -> str | None:
        chosen = tuple(view(x, *args, **kwargs).shape)  # raises what the view raises
        return f"a source of shape {list(src.shape)} for {list(chosen)}" if differ(src.shape, chosen) else None

    return rule


def select(x: torch.Tensor, dim: int, index: Value) -> str | None:
    """The metadata functions of older versions (2.11) take any index, and give what reads beyond the memory."""
    if not -x.dim() <= dim < x.dim() or seen(index) is None or seen(x.shape[dim]) is None:
        return None
    size = x.shape[dim]
    outside = holds(index >= size) or holds(index < -size)
    return f"select(): index {index} out of range for {list(x.shape)} at dimension {dim}" if outside else None


def select_scatter(x: torch.Tensor, src: torch.Tensor, dim: int, index: Value) -> str | None:
    return select(x, dim, index) or scattered(_aten.select)(x, src, dim, index)


def as_strided(x: torch.Tensor, size: Sizes, stride: Sizes, storage_offset: Size | None = None) -> str | None:
    offset = x.storage_offset() if storage_offset is None else storage_offset
    held = x.untyped_storage().nbytes()
    if len(size) != len(stride) or None in map(seen, (*size, *stride, offset, held)):
        return None
    if any(holds(n == 0) for n in size):
        return None
    needed = (offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1) * x.itemsize
    return f"sizes {list(size)} and strides {list(stride)} need {needed} bytes" if holds(needed > held) else None


def arange(*args: Value, dtype: torch.dtype | None = None, **kwargs: Value) -> str | None:
    return "arange not implemented for 'Bool'" if dtype is torch.bool else None


def pow_of_bools(x: torch.Tensor, exponent: Value, **options: Value) -> str | None:
    """Not an error: metadata functions have int64 where the kernel gives bool."""
    both = isinstance(x, torch.Tensor) and x.dtype is torch.bool and type(exponent) is bool
    return "the metadata of a truth value to the power of one is wrong" if both else None


def upsample(x: torch.Tensor, output_size: Sizes | None, *args: Value, **kwargs: Value) -> str | None:
    empty = output_size is not None and any(seen(n) is not None and holds(n <= 0) for n in output_size)
    return f"an image of {list(output_size or ())}" if empty else None
