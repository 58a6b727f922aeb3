"""Views, as changes of the index; on a tensor in memory they stay views of its buffer where strides allow."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchjit_core.expr import Expr, as_expr, constant
from torchjit_inductor.estimates import estimate
from torchjit_inductor.ir.dtypes import KERNEL_DTYPES, compute_dtype
from torchjit_inductor.ir.values import Value, apply, cast, index_value
from torchjit_inductor.lowering.builder import Builder, Cost
from torchjit_inductor.lowering.places import Place, place_of
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.sizes import NotLowered, expression
from torchjit_inductor.lowering.tensors import Dims, Index, Lazy, Lowered, Point, Size, Strided, TensorMeta, masked
from torchjit_inductor.lowering.tensors import full as constant_tensor

__all__ = [
    "broadcast_index",
    "check_broadcast",
    "chosen",
    "dim_of",
    "dims_of",
    "inserted",
    "narrowed",
    "reshape_index",
    "view",
]


# ---------------------------------------------------------------------- index arithmetic
def broadcast_index(index: Index, sizes: Index) -> Index:
    """The index into an operand of `sizes` that is broadcast to the rank of `index`."""
    tail = index[len(index) - len(sizes) :]
    return tuple(constant(0) if n.value == 1 else i for i, n in zip(tail, sizes, strict=True))


def check_broadcast(sizes: Index, wanted: Index) -> None:
    """Make sure that each dimension is known to be the wanted one or of size 1.

    Raises:
        NotLowered: two symbolic sizes, of which one may be 1 in this very call (`s - (s + 1) // 2` for s = 3).
    """
    for size, want in zip(reversed(sizes), reversed(wanted), strict=False):
        if size.value != 1 and size != want:
            raise NotLowered(f"a dimension of size {size} broadcast to {want}")


def reshape_index(new: Index, new_sizes: Index, old_sizes: Index) -> Index:
    """The index into a row-major tensor of `old_sizes` of the element at `new` of its reshape to `new_sizes`.

    Dimensions are matched in groups of equal products, so that only regrouped ones need division.
    """
    old: list[Expr] = []
    a = b = 0
    while a < len(old_sizes) or b < len(new_sizes):
        a_end, b_end = _group(old_sizes, a, new_sizes, b)
        flat = constant(0)
        for i, n in zip(new[b:b_end], new_sizes[b:b_end], strict=True):
            flat = flat * n + i
        old.extend(_unravel(flat, old_sizes[a:a_end]))
        a, b = a_end, b_end
    return tuple(old)


def _group(old: Index, a: int, new: Index, b: int) -> tuple[int, int]:
    """The ends of the shortest runs from `a` and `b` with equal products."""
    left = right = constant(1)
    if a < len(old):
        left, a = old[a], a + 1
    if b < len(new):
        right, b = new[b], b + 1
    while left is not right:
        if a < len(old) and (b == len(new) or _smaller(left, right)):
            left, a = left * old[a], a + 1
        elif b < len(new):
            right, b = right * new[b], b + 1
        else:
            raise NotLowered("reshape of sizes that do not match")
    return a, b


def _smaller(left: Expr, right: Expr) -> bool:
    if left.value is not None and right.value is not None:
        return left.value < right.value
    # left divides right: it is the one to grow. Otherwise guess by a sample; a wrong guess only makes larger groups.
    if right.divisible_by(left) if left.value != 0 else False:
        return True
    if left.divisible_by(right) if right.value != 0 else False:
        return False
    env = {s: 61 + k for k, s in enumerate(sorted(left.symbols | right.symbols, key=lambda s: s.sort_key))}
    return estimate(left, env) < estimate(right, env)


def _unravel(flat: Expr, sizes: Index) -> list[Expr]:
    index: list[Expr] = []
    # Leading factor needs no remainder: the flat index is within the product.
    for k, size in enumerate(sizes):
        below = constant(1)
        for n in sizes[k + 1 :]:
            below = below * n
        if size.value == 1 or below.value == 0:
            index.append(constant(0))
            continue
        part = flat if below.value == 1 else flat // below
        leading = all(n.value == 1 for n in sizes[:k])
        index.append(part if leading or size.value == 0 else part % size)
    return index


def dim_of(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim + max(rank, 1) if dim < 0 else dim


def dims_of(dims: int | Sequence[int], rank: int) -> list[int]:
    """Dimensions counted from the front."""
    return [dim_of(d, rank) for d in ((dims,) if isinstance(dims, int) else dims)]


def view(tensor: Lowered, meta: TensorMeta, back: Callable[[Index], Index]) -> Lazy:
    """A tensor of the sizes of `meta` whose element at i is that of `tensor` at `back(i)`."""
    return Lazy(meta.sizes, tensor.dtype, tensor.device, lambda p: tensor.value(p.at(back(p.index))))


def _restrided(tensor: Strided, sizes: Index, strides: Index, offset: Expr | None = None) -> Strided:
    offset = tensor.offset if offset is None else offset
    return Strided(tensor.buffer, sizes, strides, offset, tensor.dtype, tensor.device)


# ---------------------------------------------------------------------- reshapes
@lowering("view", "_unsafe_view", "reshape", "_reshape_alias", "flatten.using_ints", "unflatten.int")
def _reshape(b: Builder, meta: TensorMeta, x: Lowered, *_: object, **__: object) -> Lowered:
    if isinstance(x, Strided):
        strides = reshape_strides(x.sizes, x.strides, meta.sizes)
        if strides is not None:
            return _restrided(x, meta.sizes, strides)
    # Whether the sizes can be matched shows now, not when the formula is used.
    reshape_index(tuple(constant(0) for _ in meta.sizes), meta.sizes, x.sizes)
    made = view(x, meta, lambda i: reshape_index(i, meta.sizes, x.sizes))
    if isinstance(x, Lazy) and x.layout is not None:
        # If it is put into memory, then as what it shows would be: with the channels innermost, for example.
        made.layout = reshape_strides(x.sizes, x.layout, meta.sizes)
    return made


def reshape_strides(old_sizes: Index, old_strides: Index, sizes: Index) -> Index | None:
    """Strides of a view with other sizes, or None if there is none."""
    strides: list[Expr] = []
    a = b = 0
    while a < len(old_sizes) or b < len(sizes):
        a_end, b_end = _group(old_sizes, a, sizes, b)
        # Within a group the old dimensions must walk on from one another.
        old = [(n, s) for n, s in zip(old_sizes[a:a_end], old_strides[a:a_end], strict=True) if n.value != 1]
        for (_, outer), (size, inner) in itertools.pairwise(old):
            if outer is not inner * size:
                return None
        running = old[-1][1] if old else constant(1)
        group: list[Expr] = []
        for n in reversed(sizes[b:b_end]):
            group.append(running)
            running = running * n
        strides.extend(reversed(group))
        a, b = a_end, b_end
    return tuple(strides)


@lowering("view.dtype")
def _bitcast(b: Builder, meta: TensorMeta, x: Lowered, dtype: torch.dtype) -> Lowered:
    if dtype == x.dtype:
        return x
    raise NotLowered("reinterpreting view")


@lowering("alias", "detach", "lift_fresh", "lift_fresh_copy", "positive", "resolve_conj", "resolve_neg")
def _same(b: Builder, meta: TensorMeta, x: Lowered) -> Lowered:
    if x.dtype.is_complex:  # aten's results may be conjugated by a bit, which `view_as_real` refuses
        raise NotLowered("a complex tensor")
    return x


@lowering("_neg_view")
def _neg_view(b: Builder, meta: TensorMeta, x: Lowered) -> Lowered:
    """Negative by value: kernels do not see the bit that aten sets (`x.conj().imag`)."""
    if x.dtype not in KERNEL_DTYPES:
        raise NotLowered(f"dtype {x.dtype}")
    return Lazy(x.sizes, x.dtype, x.device, lambda p: apply("neg", x.value(p)))


@lowering("clone", "contiguous", "alias_copy", "detach_copy")
def _clone(b: Builder, meta: TensorMeta, x: Lowered, **_: object) -> Lowered:
    # A formula of its own, so that an output gets memory of its own with the strides of `meta`.
    return Lazy(x.sizes, x.dtype, x.device, x.value)


# ---------------------------------------------------------------------- permutations and broadcasts
@lowering("permute")
def _permute(b: Builder, meta: TensorMeta, x: Lowered, dims: Sequence[int]) -> Lowered:
    order = [dim_of(d, len(x.sizes)) for d in dims]
    if isinstance(x, Strided):
        return _restrided(x, meta.sizes, tuple(x.strides[d] for d in order))
    return view(x, meta, lambda i: tuple(i[order.index(k)] for k in range(len(order))))


@lowering("transpose.int")
def _transpose(b: Builder, meta: TensorMeta, x: Lowered, first: int, second: int) -> Lowered:
    rank = len(x.sizes)
    if rank == 0:
        return x
    order = list(range(rank))
    first, second = dim_of(first, rank), dim_of(second, rank)
    order[first], order[second] = order[second], order[first]
    return _permute(b, meta, x, order)


@lowering("t", "numpy_T", "adjoint")
def _t(b: Builder, meta: TensorMeta, x: Lowered) -> Lowered:
    return x if len(x.sizes) < 2 else _permute(b, meta, x, list(reversed(range(len(x.sizes)))))


@lowering("expand")
def _expand(b: Builder, meta: TensorMeta, x: Lowered, sizes: Sequence[Size], **_: object) -> Lowered:
    check_broadcast(x.sizes, meta.sizes)
    if isinstance(x, Lazy) and meta.sizes != x.sizes and x.sizes and Cost.of(x).heavy:
        x = b.materialize(x)
    if isinstance(x, Strided):
        new = len(meta.sizes) - len(x.sizes)
        strides = [constant(0)] * new
        for n, s, m in zip(x.sizes, x.strides, meta.sizes[new:], strict=True):
            strides.append(constant(0) if n.value == 1 and m.value != 1 else s)
        return _restrided(x, meta.sizes, tuple(strides))
    return view(x, meta, lambda i: broadcast_index(i, x.sizes))


@lowering("unsqueeze")
def _unsqueeze(b: Builder, meta: TensorMeta, x: Lowered, dim: int) -> Lowered:
    dim = dim + len(x.sizes) + 1 if dim < 0 else dim
    if isinstance(x, Strided):
        return _restrided(x, meta.sizes, (*x.strides[:dim], meta.strides[dim], *x.strides[dim:]))
    made = view(x, meta, lambda i: (*i[:dim], *i[dim + 1 :]))
    if isinstance(x, Lazy) and x.layout is not None:
        made.layout = (*x.layout[:dim], meta.strides[dim], *x.layout[dim:])
    return made


@lowering("squeeze", "squeeze.dim", "squeeze.dims")
def _squeeze(b: Builder, meta: TensorMeta, x: Lowered, dims: Dims = None) -> Lowered:
    rank = len(x.sizes)
    asked = range(rank) if dims is None else dims_of(dims, rank)
    kept = [k for k in range(rank) if not (k in asked and x.sizes[k].value == 1)]
    if len(kept) != len(meta.sizes):
        raise NotLowered("squeeze of a symbolic size")
    if isinstance(x, Strided):
        return _restrided(x, meta.sizes, tuple(x.strides[k] for k in kept))

    def back(index: Index) -> Index:
        places = dict(zip(kept, index, strict=True))
        return tuple(places.get(k, constant(0)) for k in range(rank))

    return view(x, meta, back)


# ---------------------------------------------------------------------- pieces
def narrowed(x: Strided, sizes: Index, dim: int, start: Expr, step: int = 1) -> Strided:
    """The part of a tensor in memory from `start` on."""
    strides = tuple(s * step if k == dim else s for k, s in enumerate(x.strides))
    return _restrided(x, sizes, strides, x.offset + start * x.strides[dim])


def chosen(x: Strided, dim: int, at: Expr) -> Strided:
    """One place in a dimension of a tensor in memory, which goes away."""
    sizes, strides = (tuple(n for k, n in enumerate(of) if k != dim) for of in (x.sizes, x.strides))
    return _restrided(x, sizes, strides, x.offset + at * x.strides[dim])


def _narrow(meta: TensorMeta, x: Lowered, dim: int, start: Expr, step: int = 1) -> Lowered:
    if isinstance(x, Strided):
        return narrowed(x, meta.sizes, dim, start, step)
    return view(x, meta, lambda i: tuple(start + e * step if k == dim else e for k, e in enumerate(i)))


def _clamped_start(start: Size | Place | None, size: Expr) -> Expr:
    """Where a slice begins, for a start that may be None, negative or beyond the end.

    Raises:
        NotLowered: symbolic sizes leave it open.
    """
    if isinstance(start, Place):
        return start.at
    begin = expression(0 if start is None else start)
    if begin.value is not None and begin.value < 0:
        begin = size + begin
    low, gap = begin.bounds().lower, (size - begin).bounds()
    if size.value is not None and begin.value is not None:
        return constant(min(max(begin.value, 0), size.value))
    if low is None or low < 0 or gap.lower is None or gap.lower < 0:
        raise NotLowered(f"slice from {begin} of a size {size}")
    return begin


@lowering("slice.Tensor")
def _slice(
    b: Builder,
    meta: TensorMeta,
    x: Lowered,
    dim: int = 0,
    start: Size | Place | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Lowered:
    dim = dim_of(dim, len(x.sizes))
    return _narrow(meta, x, dim, _clamped_start(start, x.sizes[dim]), step)


@lowering("select.int")
def _select(b: Builder, meta: TensorMeta, x: Lowered, dim: int, index: Any) -> Lowered:
    dim = dim_of(dim, len(x.sizes))
    at = place_of(index, x.sizes[dim])
    if isinstance(x, Strided):
        return chosen(x, dim, at)
    return view(x, meta, lambda i: (*i[:dim], at, *i[dim:]))


@lowering("split.Tensor", "split_with_sizes", "unsafe_split.Tensor", "chunk")
def _split(
    b: Builder, metas: tuple[TensorMeta, ...], x: Lowered, sizes: Sequence[Size], dim: int = 0
) -> tuple[Lowered, ...]:
    dim = dim_of(dim, len(x.sizes))
    start, pieces = constant(0), []
    for meta in metas:
        pieces.append(_narrow(meta, x, dim, start))
        start = start + meta.sizes[dim]
    return tuple(pieces)


@lowering("unbind.int")
def _unbind(b: Builder, metas: tuple[TensorMeta, ...], x: Lowered, dim: int = 0) -> tuple[Lowered, ...]:
    return tuple(_select(b, meta, x, dim, k) for k, meta in enumerate(metas))


@lowering("unfold")
def _unfold(b: Builder, meta: TensorMeta, x: Lowered, dim: int, size: Any, step: Any) -> Lowered:
    """Windows, as a view: what is computed and lies in several windows is stored once."""
    if not x.sizes:
        raise NotLowered("unfold of a tensor without dimensions")
    dim = dim_of(dim, len(x.sizes))
    by = expression(step)
    if isinstance(x, Lazy) and not (isinstance(size, int) and isinstance(step, int) and size <= step):
        cost = b.cost(x)
        x = b.materialize(x) if cost.nodes > cost.loads + cost.casts else x
    if isinstance(x, Strided):
        strides = tuple(s * by if k == dim else s for k, s in enumerate(x.strides))
        return _restrided(x, meta.sizes, (*strides, x.strides[dim]))
    return view(x, meta, lambda i: tuple(e * by + i[-1] if k == dim else e for k, e in enumerate(i[:-1])))


@lowering("as_strided")
def _as_strided(
    b: Builder, meta: TensorMeta, x: Lowered, sizes: Sequence[Size], strides: Sequence[Size], offset: Any = None
) -> Lowered:
    if not isinstance(x, Strided) or (offset is not None and expression(offset).value != 0):
        # The offset counts from the storage's start, which for an input need not be its first element.
        raise NotLowered("as_strided of a computed tensor or with an offset")
    if x.offset.value != 0:
        raise NotLowered("as_strided of a view with an offset")
    return _restrided(x, meta.sizes, tuple(expression(s) for s in strides))


@lowering("diagonal")
def _diagonal(b: Builder, meta: TensorMeta, x: Lowered, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Lowered:
    dim1, dim2 = dim_of(dim1, len(x.sizes)), dim_of(dim2, len(x.sizes))
    rest = [k for k in range(len(x.sizes)) if k not in (dim1, dim2)]

    def back(i: Index) -> Index:
        places = dict(zip(rest, i, strict=False))
        places[dim1], places[dim2] = i[-1] + max(-offset, 0), i[-1] + max(offset, 0)
        return tuple(places[k] for k in range(len(x.sizes)))

    return view(x, meta, back)


@lowering("roll")
def _roll(b: Builder, meta: TensorMeta, x: Lowered, shifts: Size | Sequence[Size], dims: Sequence[int] = ()) -> Lowered:
    """A view with `(i - shift) % n` for an index: readers read where the values come from, nothing is copied."""
    given = [shifts] if isinstance(shifts, (int, Expr)) else shifts
    known = [k for k in given if isinstance(k, int)]
    if len(given) != len(dims) or len(known) != len(dims):
        raise NotLowered("a roll of all elements, or by symbolic sizes")
    by = [0] * len(x.sizes)
    for d, shift in zip(dims, known, strict=True):
        by[dim_of(d, len(by))] += shift

    def rolled(i: Expr, n: Expr, k: int) -> Expr:
        if not k or n.value in (0, 1):
            return i
        # Remainders of what is never negative.
        ahead = as_expr(abs(k)) % n
        return (i + (n - ahead if k > 0 else ahead)) % n

    return view(x, meta, lambda index: tuple(map(rolled, index, x.sizes, by)))


@lowering("pixel_shuffle")
def _pixel_shuffle(b: Builder, meta: TensorMeta, x: Lowered, factor: int) -> Lowered:
    def back(index: Index) -> Index:
        *batch, channel, row, column = index
        channel = (channel * factor + row % factor) * factor + column % factor
        return (*batch, channel, row // factor, column // factor)

    return view(x, meta, back)


@lowering("pixel_unshuffle")
def _pixel_unshuffle(b: Builder, meta: TensorMeta, x: Lowered, factor: int) -> Lowered:
    def back(index: Index) -> Index:
        *batch, channel, row, column = index
        row, column = row * factor + channel // factor % factor, column * factor + channel % factor
        return (*batch, channel // (factor * factor), row, column)

    return view(x, meta, back)


@lowering("channel_shuffle")
def _channel_shuffle(b: Builder, meta: TensorMeta, x: Lowered, groups: int) -> Lowered:
    each = x.sizes[1] // groups
    return view(x, meta, lambda i: (i[0], i[1] % groups * each + i[1] // groups, *i[2:]))


@lowering("flip")
def _flip(b: Builder, meta: TensorMeta, x: Lowered, dims: Sequence[int]) -> Lowered:
    flipped = {dim_of(d, len(x.sizes)) for d in dims}
    return view(x, meta, lambda i: tuple(n - 1 - e if k in flipped else e for k, (e, n) in enumerate(zip(i, x.sizes))))


# ---------------------------------------------------------------------- several into one, and padding
_MOST_COMPUTED = 8
"""So many tensors are joined by who reads the result, which computes them there."""
_MOST_READ = 64
"""On GPUs, so many that are in memory are read there by who reads the result. More are joined by aten, and read once more."""


@lowering("cat")
def _cat(b: Builder, meta: TensorMeta, tensors: Sequence[Lowered], dim: int = 0) -> Lowered:
    # A 1-d tensor of size 0 is skipped whatever the other shapes are, as in eager.
    pieces = [t for t in tensors if not (len(t.sizes) == 1 and t.sizes[0].value == 0)]
    dim = dim_of(dim, len(meta.sizes))
    if len(pieces) > _MOST_COMPUTED:
        if len(pieces) > _MOST_READ or meta.device.type != "cuda":
            raise NotLowered("cat of many tensors")
        pieces = [b.materialize(piece) for piece in pieces]
    starts = [constant(0)]
    for piece in pieces:
        starts.append(starts[-1] + piece.sizes[dim])

    def value(point: Point) -> Value:
        where = index_value(point.index[dim])

        def from_piece(k: int, p: Point) -> Value:
            piece, start = pieces[k], starts[k]

            def read(q: Point) -> Value:
                moved = tuple(e - start if d == dim else e for d, e in enumerate(q.index))
                return cast(piece.value(q.at(moved)), meta.dtype)

            known = True if k == len(pieces) - 1 else _decided(p.index[dim], starts[k + 1])
            if known is not None:
                return read(p) if known else from_piece(k + 1, p)
            end = index_value(starts[k + 1])
            rest = from_piece(k + 1, p.under(apply("ge", where, end)))
            return masked(apply("lt", where, end), read, p, rest)

        return from_piece(0, point)

    if not pieces:
        return constant_tensor(0, meta)
    return Lazy(meta.sizes, meta.dtype, meta.device, value)


def _decided(index: Expr, end: Expr) -> bool | None:
    """index < end, if the loop bounds decide it."""
    gap = (end - index).bounds()
    if gap.lower is not None and gap.lower > 0:
        return True
    return False if gap.upper is not None and gap.upper <= 0 else None


@lowering("stack")
def _stack(b: Builder, meta: TensorMeta, tensors: Sequence[Lowered], dim: int = 0) -> Lowered:
    dim = dim + len(meta.sizes) if dim < 0 else dim
    one = constant(1)
    lifted = [
        Lazy(
            (*t.sizes[:dim], one, *t.sizes[dim:]), t.dtype, t.device,
            lambda p, t=t: t.value(p.at((*p.index[:dim], *p.index[dim + 1 :]))),  # type: ignore[misc]
        )
        for t in tensors
    ]  # fmt: skip
    return _cat(b, meta, lifted, dim)


@lowering("constant_pad_nd")
def _pad(b: Builder, meta: TensorMeta, x: Lowered, pad: Sequence[Any], value: Any = 0) -> Lowered:
    rank = len(x.sizes)
    before = [constant(0)] * rank
    starts, ends = set[int](), set[int]()
    for k in range(len(pad) // 2):
        dim = rank - 1 - k
        before[dim] = expression(pad[2 * k])
        for end, added in ((starts, before[dim].value), (ends, expression(pad[2 * k + 1]).value)):
            if added is None or added > 0:  # where elements are taken away, there is nothing to be tested
                end.add(dim)
    outside = constant_tensor(value, meta)

    def formula(point: Point) -> Value:
        inner = tuple(i - n for i, n in zip(point.index, before, strict=True))
        tests = []
        for dim in range(rank):
            at = index_value(inner[dim])
            tests += [apply("ge", at, index_value(0))] if dim in starts else []
            tests += [apply("lt", at, index_value(x.sizes[dim]))] if dim in ends else []
        if not tests:
            return x.value(point.at(inner))
        mask = functools.reduce(lambda before, test: apply("and", before, test), tests)
        return masked(mask, lambda p: x.value(p.at(inner)), point, outside.value(point))

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


def _in_range(at: Value, start: Expr, end: Expr) -> Value:
    return apply("and", apply("ge", at, index_value(start)), apply("lt", at, index_value(end)))


def inserted(meta: TensorMeta, dim: int, at: Expr, length: Expr | None, part: Lowered, rest: Lowered) -> Lazy:
    """`rest` with `part` in the place of a slice along a dimension; without a length, of the one place there."""
    dtype = compute_dtype(meta.dtype)

    def formula(point: Point) -> Value:
        here = index_value(point.index[dim])
        if length is None:
            inside = apply("eq", here, index_value(at))
            moved = tuple(i for k, i in enumerate(point.index) if k != dim)
        else:
            inside = _in_range(here, at, at + length)
            moved = tuple(i - at if k == dim else i for k, i in enumerate(point.index))
        return masked(inside, lambda p: cast(part.value(p.at(moved)), dtype), point, rest.value(point))

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


@lowering("slice_backward")
def _slice_backward(
    b: Builder, meta: TensorMeta, grad: Lowered, sizes: Sequence[Size], dim: int, start: Any, end: Any, step: int
) -> Lowered:
    if step != 1:
        raise NotLowered("slice_backward with a step")
    dim = dim_of(dim, len(meta.sizes))
    begin = _clamped_start(start, meta.sizes[dim])
    return inserted(meta, dim, begin, grad.sizes[dim], grad, constant_tensor(0, meta))


@lowering("select_backward")
def _select_backward(
    b: Builder, meta: TensorMeta, grad: Lowered, sizes: Sequence[Size], dim: int, index: Any
) -> Lowered:
    dim = dim_of(dim, len(meta.sizes))
    return inserted(meta, dim, place_of(index, meta.sizes[dim]), None, grad, constant_tensor(0, meta))


@lowering("repeat")
def _repeat(b: Builder, meta: TensorMeta, x: Lowered, repeats: Sequence[Size]) -> Lowered:
    new = len(meta.sizes) - len(x.sizes)
    if any(n.value == 0 for n in meta.sizes):
        return constant_tensor(0, meta)
    return view(
        x, meta, lambda i: tuple(e % as_expr(n) if n.value != 1 else constant(0) for e, n in zip(i[new:], x.sizes))
    )
