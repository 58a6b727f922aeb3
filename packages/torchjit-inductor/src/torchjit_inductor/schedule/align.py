"""Finding one iteration space for two kernels.

Two kernels that access a common buffer walk it by their loops. Seen as digits of the buffer's address, the loops of
both are matched by stride; a loop that covers several digits of the other kernel is split. So `[N, C, H, W]`,
`[C, (N, H, W)]` and `[N, C, H*W]` over one tensor become one space, whatever the order of their loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import attrs

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.estimates import estimate
from torchjit_inductor.indexing import loop_symbol, stride
from torchjit_inductor.ir.kernel import LoopVar

__all__ = ["Space", "aligned", "space_of"]


@final
@attrs.frozen
class Space:
    """Loops that two kernels share, and how each kernel's own loop variables follow from them."""

    outer: tuple[LoopVar, ...]
    inner: tuple[LoopVar, ...]
    first: Mapping[Symbol, Expr]
    second: Mapping[Symbol, Expr]


@final
@attrs.define
class _Digit:
    """A piece of a loop: `var` contributes `scale` times this digit."""

    var: Symbol
    scale: Expr
    size: Expr
    stride: Expr


def aligned(
    first: Sequence[LoopVar], first_index: Expr, second: Sequence[LoopVar], second_index: Expr
) -> list[tuple[_Digit, _Digit]] | None:
    """Match the loops of two accesses of one buffer, digit by digit; None if they do not walk the same elements."""
    left, right = _digits(first, first_index), _digits(second, second_index)
    if left is None or right is None:
        return None
    moving_left = [d for d in left if d.stride.value != 0]
    moving_right = [d for d in right if d.stride.value != 0]
    pairs = _match(moving_left, moving_right)
    if pairs is None:
        return None
    # Loops along which neither access moves are paired in order.
    still_left = [d for d in left if d.stride.value == 0]
    still_right = [d for d in right if d.stride.value == 0]
    if [d.size for d in still_left] != [d.size for d in still_right]:
        return None
    return pairs + list(zip(still_left, still_right, strict=True))


def _digits(loops: Sequence[LoopVar], index: Expr) -> list[_Digit] | None:
    digits = []
    for var in loops:
        s = stride(index, var.symbol)
        if s is None:
            return None
        digits.append(_Digit(var.symbol, constant(1), var.size, s))
    return digits


def _match(left: list[_Digit], right: list[_Digit]) -> list[tuple[_Digit, _Digit]] | None:
    # From the smallest stride up: what is left of a longer loop continues at a larger stride.
    left, right = sorted(left, key=lambda d: _magnitude(d.stride)), list(right)
    pairs: list[tuple[_Digit, _Digit]] = []
    while left and right:
        a = left.pop(0)
        found = next((k for k, d in enumerate(right) if d.stride is a.stride), None)
        if found is None:
            return None
        b = right.pop(found)
        if a.size is not b.size:
            # The longer one is split; its rest continues at the stride where the shorter one ends.
            if _divides(b.size, a.size):
                left.insert(0, _rest(a, b.size))
                a.size = b.size
            elif _divides(a.size, b.size):
                right.append(_rest(b, a.size))
                b.size = a.size
            else:
                return None
        pairs.append((a, b))
    return None if left or right else pairs


def _divides(small: Expr, large: Expr) -> bool:
    return small.value not in (0, 1) and large.divisible_by(small)


def _rest(digit: _Digit, taken: Expr) -> _Digit:
    return _Digit(digit.var, digit.scale * taken, digit.size // taken, digit.stride * taken)


def space_of(
    pairs: Sequence[tuple[_Digit, _Digit]], outer: Sequence[LoopVar], inner: Sequence[LoopVar], lead: int
) -> Space | None:
    """The shared loops, in the order of the loops of one of the two kernels.

    Args:
        pairs: matched digits of the first and the second kernel.
        outer, inner: loops of the leading kernel, whose order and split into outer and inner is kept.
        lead: 0 if the first kernel leads, 1 if the second does.
    """
    made: list[list[LoopVar]] = [[], []]
    values: dict[int, Expr] = {}
    for level, loops in enumerate((outer, inner)):
        for var in loops:
            # Most significant digit first.
            own = [k for k, pair in enumerate(pairs) if pair[lead].var is var.symbol]
            own.sort(key=lambda k: _magnitude(pairs[k][lead].scale), reverse=True)
            for k in own:
                size = pairs[k][lead].size
                symbol = loop_symbol("xr"[level], len(made[level]), size)
                made[level].append(LoopVar(symbol, size))
                values[k] = as_expr(symbol)
    if len(values) != len(pairs):
        return None
    sides: list[dict[Symbol, Expr]] = []
    for side in (0, 1):
        mapping: dict[Symbol, Expr] = {}
        for k, pair in enumerate(pairs):
            digit = pair[side]
            mapping[digit.var] = mapping.get(digit.var, constant(0)) + digit.scale * values[k]
        sides.append(mapping)
    return Space(tuple(made[0]), tuple(made[1]), sides[0], sides[1])


def _magnitude(scale: Expr) -> float:
    return float(estimate(scale, {}, 61))
