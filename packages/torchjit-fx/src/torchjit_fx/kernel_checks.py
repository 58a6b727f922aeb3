"""What eager's kernels check before they run and fake tensors do not: shapes that do not fit, memory that is read and written at once.

Such an operation is not for a graph: there it raises with the program's effects still to come, or is accepted, because a compiler
writes what it computes to memory of its own. About sizes that vary the values at capture decide, and what they decide is guarded, as
in torch's metadata functions; sizes that only the run knows are not asked about.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

__all__ = ["BEYOND", "overlaps_itself", "refuse_memory", "refuse_shapes"]

_aten = torch.ops.aten
BEYOND = frozenset({torch.as_strided, "as_strided", "as_strided_", _aten.as_strided.default, _aten.as_strided_.default})
"""Calls that reach what their argument does not: what they do hangs on the memory, which it may share, and not on its record alone."""
_Rule = Callable[..., str | None]


def refuse_shapes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, beyond: bool) -> None:
    """Raise if eager refuses the shapes of an operation that metadata functions accept.

    Args:
        func: an ATen overload.
        args, kwargs: over fake tensors.
        beyond: the program's call is one of `BEYOND`. Where torch makes a slice by strides, it stays within the memory.

    Raises:
        RuntimeError: it does.
    """
    rule = _RULES.get(func.overloadpacket)
    why = None if rule is None or (rule is _as_strided and not beyond) else rule(*args, **kwargs or {})
    if why is not None:
        raise RuntimeError(why)


def refuse_memory(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Raise if eager refuses to write to memory that the operation also reads.

    Args:
        func: an ATen overload.
        args, kwargs: over fake tensors.

    Raises:
        RuntimeError: it does.
    """
    written, in_full = _checks_memory(func)
    if not written:
        return
    named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | dict(kwargs or {})
    for name in written:
        out = named.get(name)
        if not isinstance(out, torch.Tensor):
            continue
        for other, value in named.items():
            if other not in written and any(_overlap(out, t, in_full) for t in _tensors(value)):
                raise RuntimeError("unsupported operation: some elements are read and written")


def overlaps_itself(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """May two elements of such a tensor be one in memory? What a write leaves there depends on the order that it is made in.

    Args:
        sizes, strides: ints, and torch.SymInts.
    """
    seen_sizes, seen_strides = [_seen(n) for n in sizes], [_seen(n) for n in strides]
    if None in seen_sizes or None in seen_strides:
        return any(_holds(stride == 0) and not _holds(size == 1) for size, stride in zip(sizes, strides, strict=True))
    if 0 in seen_sizes:
        return not _holds(sizes[seen_sizes.index(0)] == 0)
    # If each step is found to be beyond what the ones before reach, the order needs no guard.
    order: Any = sorted(range(len(sizes)), key=lambda d: (seen_strides[d], seen_sizes[d]))
    last: Any = 0
    for d in order:
        if seen_sizes[d] == 1 and _holds(sizes[d] == 1):
            continue
        if _holds(strides[d] <= last):
            return True
        last = last + strides[d] * (sizes[d] - 1)
    return False


_NOT_EVEN_IN_FULL = frozenset(
    {
        "index_put", "index_add", "index_copy", "index_reduce", "scatter", "scatter_add", "scatter_reduce", "put", "gather",
        "index_select", "take", "cat", "stack", "masked_scatter",
    }
)  # fmt: skip
"""Operations that refuse to read what they write even if it is the same tensor, or whose result is then not defined."""
_NOT_IN_PART = frozenset({"copy", "addr", "bernoulli", "cumsum", "cumprod"})
"""Operations that, as all elementwise ones, read what they write only element by element."""


@functools.cache
def _checks_memory(func: Any) -> tuple[frozenset[str], bool]:
    """The written arguments, if the kernel looks at their memory, and whether it refuses the same tensor as well."""
    schema = func._schema
    written = frozenset(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    if func.namespace != "aten" or not written:
        return frozenset(), False
    name = schema.name.removeprefix("aten::")
    name = name.removesuffix("_") or name
    if name in _NOT_EVEN_IN_FULL:
        return written, True
    packet: Any = getattr(_aten, name, func.overloadpacket)
    elementwise = any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())
    if elementwise or name in _NOT_IN_PART:
        return written, False
    # Of others some look, and what the rest leave in their own operand is not defined: `torch.sum(x, 0, out=x)`.
    out = frozenset(a.name for a in schema.arguments if a.kwarg_only and a.name in written)
    return out, True


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _overlap(out: torch.Tensor, t: torch.Tensor, in_full: bool) -> bool:
    """As `at::get_overlap_status` has it, which gives up on tensors with gaps."""
    if t is out:
        return in_full
    if t.layout is not torch.strided or t.untyped_storage()._cdata != out.untyped_storage()._cdata:
        return False
    ours, theirs = _extent(out), _extent(t)
    if None in map(_seen, (*ours, *theirs, *out.stride(), *t.stride())):
        return False
    if not (_holds(ours[0] < theirs[1]) and _holds(theirs[0] < ours[1])):
        return False  # nothing is shared, with gaps or without
    if not _is_dense(out) or not _is_dense(t):
        return False
    if any(_unequal(a, b) for a, b in zip((*ours, *out.stride()), (*theirs, *t.stride()), strict=False)):
        return True
    return in_full if out.dim() == t.dim() else True


def _is_dense(t: torch.Tensor) -> bool:
    """Are its elements, of which there are some, all that is between the first and the last?"""
    if any(_holds(n == 0) for n in t.shape):
        return False
    expected: Any = 1
    for stride, size in sorted((stride, size) for size, stride in zip(t.shape, t.stride(), strict=True) if size != 1):
        if _unequal(stride, expected):
            return False
        expected = expected * size
    return True


def _extent(t: torch.Tensor) -> tuple[Any, Any]:
    begin: Any = t.storage_offset() * t.itemsize
    return begin, begin + t.numel() * t.itemsize


def _holds(condition: Any) -> bool:
    """Is a condition on sizes known to hold, or does it at capture, with a guard? Not if only the run knows."""
    if isinstance(condition, torch.SymBool):
        node: Any = condition.node
        return bool(condition) if node.has_hint() else node.maybe_as_bool() is True
    return bool(condition)


def _seen(n: Any) -> int | None:
    """The value of a size at capture, None if only the run knows it."""
    if type(n) is int:
        return n
    hint: int | None = n.node.hint
    return hint


def _differ(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Are these sizes known not to be the same?"""
    return len(some) != len(others) or any(map(_unequal, some, others))


def _unequal(a: Any, b: Any) -> bool:
    return a is not None and b is not None and _holds(a != b)


def _misfit(n: Any, wanted: Any, *ones: Any) -> bool:
    """Is a size known to be not the wanted one, and none of `ones` to be 1? One condition, so that the guard says no more."""
    if n is None or wanted is None:
        return False
    condition: Any = n != wanted
    for other in ones:
        condition = _both(condition, other != 1)
    return _holds(condition)


def _both(a: Any, b: Any) -> Any:
    if isinstance(a, torch.SymBool):
        return a & b
    return b if a else False


def _index_put(x: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> str | None:
    place = 0
    for index in indices:
        is_mask = isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
        if is_mask and any(map(_unequal, index.shape, x.shape[place:])):  # torch 2.11's metadata function does not ask
            return f"a mask of shape {list(index.shape)} for {list(x.shape[place:])}"
        place += index.dim() if is_mask else 1
    shape = _indexed(x, indices)
    if shape is None:
        return "shape mismatch: indexing tensors could not be broadcast together"
    given = tuple(values.shape)
    if len(given) > len(shape) or any(_misfit(n, k, n) for n, k in zip(given[::-1], shape[::-1], strict=False)):
        return f"shape mismatch: a value of shape {list(given)} for an index that chooses {list(shape)}"
    return None


def _indexed(x: Any, indices: Any) -> list[Any] | None:
    """The shape of `x[indices]`, None for each size that only the run knows; None as a whole if the indices do not fit each other."""
    shapes: list[Any] = []  # of the index of each dimension of x
    for index in indices:
        if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
            shapes += [(None,)] * index.dim()
        else:
            shapes.append(tuple(index.shape) if isinstance(index, torch.Tensor) else None)
    shapes += [None] * (x.dim() - len(shapes))  # too many are refused by the metadata function
    shapes = shapes[: x.dim()]
    chosen: list[Any] = []
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


def _broadcast(a: Any, b: Any) -> Any:
    """The size of two that fit each other."""
    if type(a) is int and type(b) is int:
        return max(a, b) if 0 not in (a, b) else 0
    for n, other in ((a, b), (b, a)):
        if type(n) is int:
            return n if n != 1 else other
    return None if a is None or b is None or _unequal(a, b) else a


def _index_add(x: Any, dim: int, index: Any, source: Any, *args: Any, **kwargs: Any) -> str | None:
    if not x.dim() or not source.dim() or not -x.dim() <= dim < x.dim():
        return None
    ours, theirs = list(x.shape), list(source.shape)
    dim %= x.dim()
    if len(ours) == len(theirs):
        ours[dim] = theirs[dim]
    return f"a source of shape {theirs} for {list(x.shape)}" if _differ(ours, theirs) else None


def _index_reduce(x: Any, dim: int, index: Any, source: Any, *args: Any, **kwargs: Any) -> str | None:
    if source.dim() and -source.dim() <= dim < source.dim() and _unequal(index.numel(), source.shape[dim]):
        return f"{index.numel()} indices for a source of shape {list(source.shape)}"
    return _index_add(x, dim, index, source)


def _index_select(x: Any, dim: int, index: Any, **kwargs: Any) -> str | None:
    if index.dim() > 1 or (not x.dim() and _unequal(index.numel(), 1)):
        return f"index_select(): an index of shape {list(index.shape)} for {list(x.shape)}"
    return None


def _put(x: Any, index: Any, source: Any, accumulate: bool = False) -> str | None:
    return "put_(): as many sources as indices" if _unequal(index.numel(), source.numel()) else None


def _searchsorted(sorted_sequence: Any, value: Any, *args: Any, **kwargs: Any) -> str | None:
    number = not isinstance(value, torch.Tensor) or not value.dim()
    return (
        "searchsorted() of a number wants boundaries of one dimension"
        if number and sorted_sequence.dim() != 1
        else None
    )


def _masked_scatter(x: Any, mask: Any, source: Any) -> str | None:
    short = len(mask.shape) <= len(x.shape)
    sizes = zip(mask.shape[::-1], x.shape[::-1], strict=False)
    fits = short and not any(_misfit(n, k, n) for n, k in sizes)
    return None if fits else f"a mask of shape {list(mask.shape)} for {list(x.shape)}"


def _scattered(view: Callable[..., Any]) -> _Rule:
    """Of an operation that replaces a view."""

    def rule(x: Any, src: Any, *args: Any, **kwargs: Any) -> str | None:
        chosen = tuple(view(x, *args, **kwargs).shape)  # raises what the view raises
        return f"a source of shape {list(src.shape)} for {list(chosen)}" if _differ(src.shape, chosen) else None

    return rule


def _select(x: Any, dim: int, index: Any) -> str | None:
    """The metadata functions of older versions (2.11) take any index, and give what reads beyond the memory."""
    if not -x.dim() <= dim < x.dim() or _seen(index) is None or _seen(x.shape[dim]) is None:
        return None
    size = x.shape[dim]
    outside = _holds(index >= size) or _holds(index < -size)
    return f"select(): index {index} out of range for {list(x.shape)} at dimension {dim}" if outside else None


def _select_scatter(x: Any, src: Any, dim: int, index: Any) -> str | None:
    return _select(x, dim, index) or _scattered(_aten.select)(x, src, dim, index)


def _as_strided(x: Any, size: Any, stride: Any, storage_offset: Any = None) -> str | None:
    offset = x.storage_offset() if storage_offset is None else storage_offset
    held = x.untyped_storage().nbytes()
    if len(size) != len(stride) or None in map(_seen, (*size, *stride, offset, held)):
        return None
    if any(_holds(n == 0) for n in size):
        return None
    needed = (offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1) * x.itemsize
    return f"sizes {list(size)} and strides {list(stride)} need {needed} bytes" if _holds(needed > held) else None


def _arange(*args: Any, dtype: Any = None, **kwargs: Any) -> str | None:
    return "arange not implemented for 'Bool'" if dtype is torch.bool else None


def _pow(x: Any, exponent: Any) -> str | None:
    """Not an error: metadata functions have int64 where the kernel gives bool."""
    both = isinstance(x, torch.Tensor) and x.dtype is torch.bool and type(exponent) is bool
    return "the metadata of a truth value to the power of one is wrong" if both else None


def _upsample(x: Any, output_size: Any, *args: Any, **kwargs: Any) -> str | None:
    empty = output_size is not None and any(_seen(n) is not None and _holds(n <= 0) for n in output_size)
    return f"an image of {list(output_size)}" if empty else None


_RULES: dict[Any, _Rule] = {
    _aten.upsample_linear1d: _upsample, _aten.upsample_bilinear2d: _upsample, _aten.upsample_trilinear3d: _upsample,
    _aten.upsample_bicubic2d: _upsample,
    _aten.pow: _pow,
    _aten.arange: _arange,
    _aten.index_put: _index_put, _aten.index_put_: _index_put, _aten._index_put_impl_: _index_put,
    _aten.index_add: _index_add, _aten.index_add_: _index_add,
    _aten.index_reduce: _index_reduce, _aten.index_reduce_: _index_reduce,
    _aten.index_select: _index_select, _aten.put: _put, _aten.put_: _put, _aten.masked_scatter_: _masked_scatter,
    _aten.select: _select, _aten.select_copy: _select, _aten.select_scatter: _select_scatter,
    _aten.slice_scatter: _scattered(_aten.slice),
    _aten.diagonal_scatter: _scattered(_aten.diagonal),
    _aten.searchsorted: _searchsorted, _aten.as_strided: _as_strided, _aten.as_strided_: _as_strided,
}  # fmt: skip
