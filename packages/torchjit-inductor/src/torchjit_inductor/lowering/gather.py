"""Reading at computed positions: embedding, index, gather, and their kin. They are formulas, so they fuse into what reads them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.indexing import loop_symbol
from torchjit_inductor.ir.intervals import Intervals
from torchjit_inductor.ir.kernel import element_count
from torchjit_inductor.ir.values import Value, bounded, cast, load, where
from torchjit_inductor.ir.values import constant as number
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Index, Lazy, Lowered, Point, TensorMeta
from torchjit_inductor.lowering.views import broadcast_index, dim_of

__all__ = [
    "Places",
    "broadcast_rank",
    "check_positions",
    "checked_position",
    "computed_index",
    "index_places",
    "moved_to",
]

Places: TypeAlias = tuple[list[Expr], dict[Symbol, Value]]
"""An index some of whose parts are symbols that stand for computed positions, and these."""
INDEX_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def position_symbol(dim: int, size: Expr) -> Symbol:
    """The symbol that stands for a computed position in a dimension."""
    return Symbol(f"at_dim{dim}", 0, None if size.value is None else max(size.value - 1, 0))


def checked_position(index: Lowered, point: Point, size: Expr, *, wrap: bool, dim: int, error: str) -> Value:
    """The position that an index tensor holds at a point, checked against the size of the dimension
    where it is not surely within.

    Raises:
        NotLowered: the dimension may be empty, or the index is no integer.
    """
    if index.dtype not in INDEX_DTYPES or (index.dtype == torch.uint8 and error == "index"):
        raise NotLowered(f"an index of {index.dtype}")
    _nonempty(size)
    value = cast(index.value(point), torch.int64)
    if point.mask is not None:
        # Where nothing is to be read nothing may fail.
        value = where(point.mask, value, number(0, value.dtype))
    last = math.inf if error == TRUSTED else (size.bounds().lower or 1) - 1
    if Intervals().within(value, 0, last):
        return value
    if error == TRUSTED:
        error = "index"
    return bounded(value, size, wrap=wrap, dim=dim, error=error)


TRUSTED = "trusted"
"""For the error of positions that only have to be tested where they may be negative: what `_unsafe_index` is given."""
_FAR = itertools.count()
_FEW = 16


def _few(meta: TensorMeta, x: Lazy) -> bool:
    """Are so few elements of a formula asked for that computing them again beats storing all?"""
    asked, there = element_count(meta.sizes).value, element_count(x.sizes).value
    small = asked is not None and there is not None and asked * _FEW <= there
    return x.stored is None and small


def _gathered(b: Builder, meta: TensorMeta, x: Lowered, places: Callable[[Point], Places]) -> Lazy:
    """A tensor whose element at a point is `x` at the computed place."""
    if isinstance(x, Lazy) and _few(meta, x):

        def far(point: Point) -> Value:
            index, computed = places(point)
            # Names of their own: the formula may read at computed positions, too.
            names = {s: Symbol(f"far{next(_FAR)}", s.bounds.lower, s.bounds.upper) for s in computed}
            moved = tuple(i.substitute({s: as_expr(n) for s, n in names.items()}) for i in index)
            known = {**point.computed, **{names[s]: v for s, v in computed.items()}}
            return x.value(attrs.evolve(point, index=moved, computed=known))

        loops = {loop_symbol("x", k, n): n for k, n in enumerate(meta.sizes)}
        tried = far(Point(tuple(as_expr(s) for s in loops), loops))
        if not any(s.name.startswith("far") for s in tried.symbols):
            return Lazy(meta.sizes, meta.dtype, meta.device, far)
    held = b.materialize(x)

    def formula(point: Point) -> Value:
        index, computed = places(point)
        return load(held.buffer, held.address(tuple(index)), held.dtype, binders=computed, mask=point.mask)

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


def _nonempty(size: Expr) -> None:
    low = size.bounds().lower
    if low is None or low < 1:
        raise NotLowered("a position in an empty dimension")


def check_positions(index: Lowered, size: Expr) -> None:
    """Make sure that an index holds positions in a dimension that has some.

    Raises:
        NotLowered: it has another dtype, or the dimension may be empty.
    """
    if index.dtype not in (torch.int64, torch.int32):
        raise NotLowered(f"an index of {index.dtype}")
    _nonempty(size)


def moved_to(point: Point, dim: int, size: Expr, at: Value) -> Places:
    """The place of a point with a computed position in one dimension."""
    symbol = position_symbol(dim, size)
    return [as_expr(symbol) if k == dim else i for k, i in enumerate(point.index)], {symbol: at}


@lowering("embedding")
def _embedding(
    b: Builder, meta: TensorMeta, weight: Lowered, index: Lowered, padding: int = -1, scale: bool = False,
    sparse: bool = False,
) -> Lowered:  # fmt: skip
    if len(weight.sizes) != 2:
        raise NotLowered("embedding of a table that is no matrix")
    check_positions(index, weight.sizes[0])

    def places(point: Point) -> Places:
        row = checked_position(index, point.at(point.index[:-1]), weight.sizes[0], wrap=False, dim=0, error="embedding")
        return moved_to(point.at((constant(0), point.index[-1])), 0, weight.sizes[0], row)

    return _gathered(b, meta, weight, places)


def _picked(
    b: Builder, meta: TensorMeta, x: Lowered, dim: int, index: Lowered, where_in: Callable[[Point, int], Point], error: str
) -> Lowered:  # fmt: skip
    """A tensor with positions along one dimension that an index holds.

    Args:
        where_in: the place in the index of a point of the result.
    """
    dim = dim_of(dim, len(x.sizes))
    size = x.sizes[dim]
    check_positions(index, size)

    def places(point: Point) -> Places:
        at = checked_position(index, where_in(point, dim), size, wrap=False, dim=dim, error=error)
        return moved_to(point, dim, size, at)

    return _gathered(b, meta, x, places)


@lowering("index_select")
def _index_select(b: Builder, meta: TensorMeta, x: Lowered, dim: int, index: Lowered) -> Lowered:
    if not x.sizes or len(index.sizes) != 1:
        raise NotLowered("index_select of a number")
    return _picked(b, meta, x, dim, index, lambda p, d: p.at((p.index[d],)), "embedding")


@lowering("gather")
def _gather(b: Builder, meta: TensorMeta, x: Lowered, dim: int, index: Lowered, sparse_grad: bool = False) -> Lowered:
    if not x.sizes or not index.sizes:
        raise NotLowered("gather from a number")
    return _picked(b, meta, x, dim, index, lambda p, d: p, "gather")


def index_places(sizes: Index, indices: Sequence[Lowered | None], rank: int) -> tuple[list[int], int, int]:
    """How advanced indexing lays out its result.

    Args:
        sizes: of the indexed tensor.
        indices: one per leading dimension, None for a whole dimension.
        rank: of the broadcast indices.

    Returns:
        The indexed dimensions, and where the broadcast dimensions of the result begin and end.
    """
    indexed = [k for k, i in enumerate(indices) if i is not None]
    adjacent = indexed == list(range(indexed[0], indexed[-1] + 1))
    first = indexed[0] if adjacent else 0
    return indexed, first, first + rank


def computed_index(
    sizes: Index, indices: Sequence[Lowered | None], rank: int, point: Point, error: str = "index"
) -> Places:
    """The index into the indexed tensor for a point of the result of `x[indices]`."""
    indexed, first, last = index_places(sizes, indices, rank)
    broadcast = point.index[first:last]
    rest = iter((*point.index[:first], *point.index[last:]))
    index: list[Expr] = []
    computed: dict[Symbol, Value] = {}
    for dim, size in enumerate(sizes):
        if dim not in indexed:
            index.append(next(rest))
            continue
        held = indices[dim]
        if held is None:
            raise ValueError("no index tensor")
        symbol = position_symbol(dim, size)
        at = point.at(broadcast_index(broadcast, held.sizes)) if held.sizes else point.at(())
        # Eager's message counts the indexed dimensions only.
        number_of_dim = indexed.index(dim)
        computed[symbol] = checked_position(held, at, size, wrap=True, dim=number_of_dim, error=error)
        index.append(as_expr(symbol))
    return index, computed


def broadcast_rank(x: Lowered, indices: Sequence[Lowered | None]) -> int:
    """The rank that index tensors have together.

    Raises:
        NotLowered: they are masks, or select from an empty dimension.
    """
    present = [i for i in indices if i is not None]
    if not present:
        raise NotLowered("index without indices")
    for size, index in zip(x.sizes, indices, strict=False):
        if index is not None:
            check_positions(index, size)
    longest = max(present, key=lambda i: len(i.sizes))
    for index in present:
        for dim in range(1, len(index.sizes) + 1):
            size, other = index.sizes[-dim], longest.sizes[-dim]
            if size.value != 1 and other.value != 1 and size != other:
                raise NotLowered(f"index tensors of sizes {size} and {other}")
    return len(longest.sizes)


def _index(error: str, b: Builder, meta: TensorMeta, x: Lowered, indices: Sequence[Lowered | None]) -> Lowered:
    rank = broadcast_rank(x, indices)
    return _gathered(b, meta, x, lambda p: computed_index(x.sizes, indices, rank, p, error))


lowering("index.Tensor")(functools.partial(_index, "index"))
lowering("_unsafe_index.Tensor")(functools.partial(_index, TRUSTED))
