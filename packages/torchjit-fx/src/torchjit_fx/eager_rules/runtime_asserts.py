"""What has to hold of the values in tensors for an operation not to raise: asserts that a graph can make before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from torchjit_fx.assertions import IN_RANGE, WITHIN
from torchjit_fx.flatten import dimensions
from torchjit_fx.leaves import Raw, RawArgs, RawKwargs, SymLeaf, TensorLeaf

__all__ = [
    "AssertRule", "RuntimeAssert", "along", "binary", "classes", "drawn", "drawn_into", "embedding", "flat", "items", "margins", "one_hot", "puts",
]  # fmt: skip

RuntimeAssert: TypeAlias = "tuple[Any, ...]"
"""An operation without results, and its arguments. In the place of a size: the tensor, and its dimension or None for all elements."""
AssertRule: TypeAlias = "Callable[[tuple[Any, ...], dict[str, Any]], list[RuntimeAssert] | None]"
"""From raw arguments to what to test before the call; None if that is not known."""


def _given(args: RawArgs, kwargs: RawKwargs, position: int, name: str, default: Raw = None) -> Raw:
    return args[position] if len(args) > position else kwargs.get(name, default)


# -------------------------------------------------------------------------------------------------- indices


def _range(index: Raw, base: Raw, dim: Raw, *, negative: bool = False, ignored: Raw = None) -> RuntimeAssert | None:
    """The indices go to this dimension of a tensor, or to all its elements; may they be negative, and what else may they be?"""
    if not (isinstance(index, TensorLeaf) and isinstance(base, TensorLeaf)):
        return None
    if (ignored is not None and type(ignored) is not int) or index.record.dtype not in _INTEGERS:
        return None
    rank = len(base.record.sizes)
    if dim is not None and not (type(dim) is int and -rank <= dim < rank):
        return None
    return IN_RANGE, index, (base, None if dim is None else dim % rank), negative, ignored


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)


def _one(test: RuntimeAssert | None) -> list[RuntimeAssert] | None:
    return None if test is None else [test]


def _of_items(base: Raw, index: RawArgs) -> list[RuntimeAssert] | None:
    """Of `base[index]`."""
    if not isinstance(base, TensorLeaf):
        return None
    consumed = [dimensions(item) for item in index]
    if None in consumed or sum(item is ... for item in index) > 1:
        return None
    rank, total = len(base.record.sizes), sum(n for n in consumed if n is not None)
    dim, tests = 0, []
    for item, n in zip(index, consumed, strict=True):
        if isinstance(item, TensorLeaf) and item.record.dtype is not torch.bool:
            found = _range(item, base, dim, negative=True)
            if found is None:
                return None
            tests.append(found)
        dim += rank - total if item is ... else n or 0
    return tests


def items(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    """Of `x[index]`, and `x[index] = y`."""
    return None if kwargs else _of_items(args[0], args[1] if isinstance(args[1], tuple) else (args[1],))


def puts(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    indices = _given(args, kwargs, 1, "indices")
    return _of_items(_given(args, kwargs, 0, "input"), tuple(indices)) if isinstance(indices, tuple | list) else None


def along(*, negative: bool) -> AssertRule:
    """Of `f(x, dim, index, ...)`."""

    def tests(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
        base, dim, index = (_given(args, kwargs, k, name) for k, name in enumerate(("input", "dim", "index")))
        return None if dim is None else _one(_range(index, base, dim, negative=negative))

    return tests


def flat(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    """Of `f(x, index, ...)`, where indices go to all elements."""
    return _one(_range(_given(args, kwargs, 1, "index"), _given(args, kwargs, 0, "input"), None, negative=True))


def embedding(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    if _given(args, kwargs, 3, "max_norm") is not None:
        return None  # it writes
    return _one(_range(_given(args, kwargs, 0, "input"), _given(args, kwargs, 1, "weight"), 0))


def classes(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    scores, target = _given(args, kwargs, 0, "input"), _given(args, kwargs, 1, "target")
    ignored = _given(args, kwargs, 4, "ignore_index", -100)
    rank = len(scores.record.sizes) if isinstance(scores, TensorLeaf) else 0
    return _one(_range(target, scores, min(rank - 1, 1), ignored=ignored))


def margins(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    return _one(_range(_given(args, kwargs, 1, "target"), _given(args, kwargs, 0, "input"), -1))


def one_hot(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    index, count = _given(args, kwargs, 0, "tensor", kwargs.get("input")), _given(args, kwargs, 1, "num_classes", -1)
    if not isinstance(index, TensorLeaf) or not (type(count) is SymLeaf or (type(count) is int and count >= 0)):
        return None  # the number of classes is that of the largest index
    return [(IN_RANGE, index, count, False, None)]


# -------------------------------------------------------------------------------------------------- other values


def _within(*tensors: Raw) -> list[RuntimeAssert] | None:
    """Values from 0 to 1."""
    if not all(isinstance(t, TensorLeaf) and t.record.dtype.is_floating_point for t in tensors):
        return None
    return [(WITHIN, t, 0.0, 1.0) for t in tensors]


def drawn(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    """Of `bernoulli(probabilities)` and `bernoulli(like, p)`."""
    p = _given(args, kwargs, 1, "p")
    return _within(_given(args, kwargs, 0, "input")) if p is None else []


def drawn_into(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    """Of `x.bernoulli_(p)`."""
    p = _given(args, kwargs, 1, "p")
    return _within(p) if isinstance(p, TensorLeaf) else []


def binary(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    return _within(_given(args, kwargs, 0, "input"), _given(args, kwargs, 1, "target"))
