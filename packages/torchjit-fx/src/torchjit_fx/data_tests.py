"""What has to hold of the values in tensors for an operation not to raise: tests that a graph can make before it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from torchjit_fx.assertions import IN_RANGE, WITHIN
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.indices import dimensions
from torchjit_fx.leaves import SymLeaf, TensorLeaf
from torchjit_fx.protocols import CaptureContext

__all__ = ["INDEXING", "ITEMS", "VALUES", "Test", "record_test", "value_tests"]

Test = tuple[Any, ...]
"""An operation without results, and its arguments. In the place of a size: the tensor, and its dimension or None for all elements."""
_Call = Callable[[tuple[Any, ...], dict[str, Any]], "list[Test] | None"]


def value_tests(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
    """What to test before a call; None if that is not known.

    Args:
        fn: what is called, one of `INDEXING`, `ITEMS`, `VALUES` or something else.
        args, kwargs: raw.
    """
    if fn in ITEMS and not kwargs:
        return _of_items(args[0], args[1] if isinstance(args[1], tuple) else (args[1],))
    rule = _RULES.get(fn)
    return None if rule is None else rule(args, kwargs)


def record_test(test: Test, domain: CallDomain, capture: CaptureContext) -> None:
    """Add it to the graph."""
    op, tensor, *rest = test
    if op is IN_RANGE and isinstance(rest[0], tuple):
        base, dim = rest[0]
        rest[0] = _count(base, domain, capture) if dim is None else domain.dimension(base, dim, capture)
    domain.recorder.add_test(op, (tensor, *rest), capture)


def _count(base: TensorLeaf, domain: CallDomain, capture: CaptureContext) -> Any:
    count: Any = 1
    for dim in range(len(base.record.sizes)):
        count = domain.call_plainly(operator.mul, (count, domain.dimension(base, dim, capture)), {}, capture)
    return count


def _functions(*names: str) -> frozenset[Any]:
    """Methods and functions of these names."""
    found = [getattr(space, name, None) for space in (torch.Tensor, torch) for name in names]
    return frozenset(f for f in found if f is not None)


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any = None) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)


# -------------------------------------------------------------------------------------------------- indices

ITEMS = frozenset({operator.getitem, operator.setitem, torch.Tensor.__getitem__, torch.Tensor.__setitem__})


def _range(index: Any, base: Any, dim: Any, *, negative: bool = False, ignored: Any = None) -> Test | None:
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


def _one(test: Test | None) -> list[Test] | None:
    return None if test is None else [test]


def _of_items(base: Any, index: tuple[Any, ...]) -> list[Test] | None:
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


def _puts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
    indices = _given(args, kwargs, 1, "indices")
    return _of_items(_given(args, kwargs, 0, "input"), tuple(indices)) if isinstance(indices, tuple | list) else None


def _along(*, negative: bool) -> _Call:
    """Of `f(x, dim, index, ...)`."""

    def tests(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
        base, dim, index = (_given(args, kwargs, k, name) for k, name in enumerate(("input", "dim", "index")))
        return None if dim is None else _one(_range(index, base, dim, negative=negative))

    return tests


def _flat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
    """Of `f(x, index, ...)`, where indices go to all elements."""
    return _one(_range(_given(args, kwargs, 1, "index"), _given(args, kwargs, 0, "input"), None, negative=True))


def _embedding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
    if _given(args, kwargs, 3, "max_norm") is not None:
        return None  # it writes
    return _one(_range(_given(args, kwargs, 0, "input"), _given(args, kwargs, 1, "weight"), 0))


def _classes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
    scores, target = _given(args, kwargs, 0, "input"), _given(args, kwargs, 1, "target")
    ignored = _given(args, kwargs, 4, "ignore_index", -100)
    rank = len(scores.record.sizes) if isinstance(scores, TensorLeaf) else 0
    return _one(_range(target, scores, min(rank - 1, 1), ignored=ignored))


def _margins(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
    return _one(_range(_given(args, kwargs, 1, "target"), _given(args, kwargs, 0, "input"), -1))


def _one_hot(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
    index, count = _given(args, kwargs, 0, "tensor", kwargs.get("input")), _given(args, kwargs, 1, "num_classes", -1)
    if not isinstance(index, TensorLeaf) or not (type(count) is SymLeaf or (type(count) is int and count >= 0)):
        return None  # the number of classes is that of the largest index
    return [(IN_RANGE, index, count, False, None)]


_ALONG = _functions(
    "gather", "index_select", "index_add", "index_add_", "index_copy", "index_copy_", "index_reduce", "index_reduce_", "scatter", "scatter_",
    "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_",
)  # fmt: skip
_RULES: dict[Any, _Call] = {
    **dict.fromkeys(_ALONG, _along(negative=False)),
    **dict.fromkeys(_functions("index_fill", "index_fill_"), _along(negative=True)),
    **dict.fromkeys(_functions("take", "put", "put_"), _flat),
    **dict.fromkeys(_functions("index_put", "index_put_"), _puts),
    F.embedding: _embedding, F.cross_entropy: _classes, F.nll_loss: _classes, F.multi_margin_loss: _margins, F.one_hot: _one_hot,
}  # fmt: skip
INDEXING = frozenset(_RULES)


# -------------------------------------------------------------------------------------------------- other values


def _within(*tensors: Any) -> list[Test] | None:
    """Values from 0 to 1."""
    if not all(isinstance(t, TensorLeaf) and t.record.dtype.is_floating_point for t in tensors):
        return None
    return [(WITHIN, t, 0.0, 1.0) for t in tensors]


def _drawn(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
    """Of `bernoulli(probabilities)` and `bernoulli(like, p)`."""
    p = _given(args, kwargs, 1, "p")
    return _within(_given(args, kwargs, 0, "input")) if p is None else []


def _drawn_into(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
    """Of `x.bernoulli_(p)`."""
    p = _given(args, kwargs, 1, "p")
    return _within(p) if isinstance(p, TensorLeaf) else []


def _binary(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Test] | None:
    return _within(_given(args, kwargs, 0, "input"), _given(args, kwargs, 1, "target"))


_BETWEEN: dict[Any, _Call] = {
    **dict.fromkeys(_functions("bernoulli"), _drawn),
    **dict.fromkeys(_functions("bernoulli_"), _drawn_into),
    F.binary_cross_entropy: _binary,
}
_RULES |= _BETWEEN
VALUES = frozenset(_BETWEEN)
