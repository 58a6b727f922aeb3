"""What has to hold of the values in tensors for an operation not to raise: asserts that a graph can make before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from torchjit_fx.assertions import IN_RANGE
from torchjit_fx.flatten import dimensions
from torchjit_fx.leaves import Raw, RawArgs, RawKwargs, TensorLeaf

__all__ = ["AssertRule", "RuntimeAssert", "along", "classes", "embedding", "items"]

RuntimeAssert: TypeAlias = "tuple[Any, ...]"
"""An operation without results, and its arguments. In the place of a size: the tensor, and its dimension or None for all elements."""
AssertRule: TypeAlias = "Callable[[tuple[Any, ...], dict[str, Any]], list[RuntimeAssert] | None]"
"""From raw arguments to what to test before the call; None if that is not known."""


def _given(args: RawArgs, kwargs: RawKwargs, position: int, name: str, default: Raw = None) -> Raw:
    return args[position] if len(args) > position else kwargs.get(name, default)


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


def items(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    """Of `x[index]`, and `x[index] = y`."""
    if kwargs or not isinstance(args[0], TensorLeaf):
        return None
    base, index = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
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


def along(*, negative: bool) -> AssertRule:
    """Of `f(x, dim, index, ...)`."""

    def tests(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
        base, dim, index = (_given(args, kwargs, k, name) for k, name in enumerate(("input", "dim", "index")))
        return None if dim is None else _one(_range(index, base, dim, negative=negative))

    return tests


def embedding(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    if _given(args, kwargs, 3, "max_norm") is not None:
        return None  # it writes
    return _one(_range(_given(args, kwargs, 0, "input"), _given(args, kwargs, 1, "weight"), 0))


def classes(args: RawArgs, kwargs: RawKwargs) -> list[RuntimeAssert] | None:
    scores, target = _given(args, kwargs, 0, "input"), _given(args, kwargs, 1, "target")
    ignored = _given(args, kwargs, 4, "ignore_index", -100)
    rank = len(scores.record.sizes) if isinstance(scores, TensorLeaf) else 0
    return _one(_range(target, scores, min(rank - 1, 1), ignored=ignored))
