"""Numbers and sizes that only the run knows: which nodes bring them, and what the host program reads and tests.

A number read out of a tensor, and a size that depends on data, become variables of the host program. Kernels take them
like any other size. A step that defines or tests such a variable writes it, and a kernel that computes with it reads it,
so no kernel runs before the tests of the numbers that it uses.
"""

from __future__ import annotations

from collections.abc import Set

import torch
import torch.fx

from torchjit_core.expr import Expr, Symbol
from torchjit_inductor.lowering.sizes import NotLowered, expression
from torchjit_inductor.steps import HostNumber

__all__ = ["READ", "TEST", "maybe_empty", "names_in", "new_sizes", "reads_data"]

READ = torch.ops.aten._local_scalar_dense.default
TEST = torch.ops.aten._assert_scalar.default


def reads_data(op: object) -> bool:
    """Can a result of the op have a value or a size that depends on data?"""
    tags = getattr(op, "tags", ())
    return torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags


def new_sizes(val: object, known: Set[Symbol]) -> list[tuple[Symbol, int, int]]:
    """The symbols that a call's results show first, each with the position of the result and its dimension.

    Args:
        val: of the node: a tensor or a tuple.
        known: symbols that have a value already.
    """
    found: dict[Symbol, tuple[int, int]] = {}
    for position, result in enumerate(val if isinstance(val, (tuple, list)) else (val,)):
        if isinstance(result, torch.Tensor):
            for dim, size in enumerate(result.shape):
                symbol = None if isinstance(size, int) else _symbol(size)
                if symbol is not None and symbol not in known:
                    found.setdefault(symbol, (position, dim))
    return [(symbol, *place) for symbol, place in found.items()]


def _symbol(size: object) -> Symbol | None:
    try:
        return expression(size).as_symbol
    except NotLowered:
        return None


def names_in(value: object) -> tuple[str, ...]:
    """The variables that a number is computed from."""
    if isinstance(value, Expr):
        return tuple(sorted(s.name for s in value.symbols))
    if isinstance(value, HostNumber):
        return tuple(dict.fromkeys(n for a in value.args for n in names_in(a)))
    return ()


def maybe_empty(count: Expr) -> bool:
    """Can so many elements be none? Sizes of inputs are at least 2, those that only the run knows may be 0."""
    if count.value is not None:
        return count.value == 0
    low = count.bounds().lower
    if low is not None and low >= 1:
        return False
    return any(s.bounds.lower is None or s.bounds.lower < 1 for s in count.symbols)
