"""Sums along which one element at most is not zero: the gradient of a loss by class numbers, before it goes through a log-softmax.

Such a gradient is `where(position == class, value, 0)`, and its sum is `value`, where the class is one of the positions: no pass over the row.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchjit_core.expr import Symbol, as_expr
from torchjit_inductor.ir.kernel import LoopVar
from torchjit_inductor.ir.values import Value, apply, constant, index_value, where

__all__ = ["known_sums"]


def known_sums(loop: LoopVar) -> Callable[[Value], Value | None]:
    """What replaces a sum along a loop, for `substitute_all`; None where it has to be added up."""

    def replaced(value: Value) -> Value | None:
        return _summed(value.args[0], loop) if value.op == "reduce" and value.data == "sum" else None

    return replaced


def _summed(value: Value, loop: LoopVar) -> Value | None:
    if value.op in ("cast", "round_to", "neg"):  # these keep zeros
        if not (value.dtype.is_floating_point and value.args[0].dtype.is_floating_point):
            return None
        inside = _summed(value.args[0], loop)
        return None if inside is None else Value(value.op, (inside,), value.dtype, value.data)
    if value.op != "where" or value.args[2].op != "constant" or value.args[2].data != 0:
        return None
    test, element, zero = value.args
    if loop.symbol not in test.symbols:
        inside = _summed(element, loop)
        return None if inside is None else where(test, inside, zero)
    anywhere = None if loop.symbol in element.symbols else _somewhere(test, loop)
    return None if anywhere is None else where(anywhere, element, zero)


def _somewhere(test: Value, loop: LoopVar) -> Value | None:
    """Whether a test is true at some place of the loop; None where it may be at more than one."""
    parts = _parts(test)
    varying = [part for part in parts if loop.symbol in part.symbols]
    at = _position(varying[0], loop.symbol) if len(varying) == 1 else None
    if at is None:
        return None
    found = apply("and", apply("ge", at, constant(0, torch.int64)), apply("lt", at, index_value(loop.size)))
    for part in parts:
        if part is not varying[0]:
            found = apply("and", part, found)
    return found


def _parts(test: Value) -> list[Value]:
    """What has to be true."""
    return [test] if test.op != "and" else [part for side in test.args for part in _parts(side)]


def _position(test: Value, symbol: Symbol) -> Value | None:
    """Where along the loop a test is true: at no more than one place."""
    if test.op != "eq":
        return None
    for own, other in (test.args, reversed(test.args)):
        plain = own.op == "index" and not own.data.binders and own.data.index is as_expr(symbol)
        if plain and symbol not in other.symbols and other.dtype == torch.int64:
            return other
    return None
