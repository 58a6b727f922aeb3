"""Properties of ShapeEnv over random programs: what is known is true, ranges contain, guards are the path conditions.

50 examples of each here; more with

    TORCHJIT_EXAMPLES=20000 uv run pytest packages/torchjit-guards/tests/test_guards_properties.py
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from torchjit_core.expr import Condition, Expr, Symbol, conj, constant, disj, eq, ge, gt, le, lt, maximum, minimum, ne
from torchjit_core.marks import SizeMark
from torchjit_core.paths import Arg
from torchjit_core.reasons import GraphBreak, UserError
from torchjit_guards import GuardProgram, ShapeEnv

EXAMPLES = settings(
    max_examples=int(os.environ.get("TORCHJIT_EXAMPLES", "50")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

SIZES = Arg.of(0, "x")
INTS = tuple(Arg.of(i + 1, f"n{i}") for i in range(2))


class Sized:
    """Stands for a tensor."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes

    def size(self, dim: int) -> int:
        return self.sizes[dim]


def expressions(symbols: Sequence[Expr], divisors: bool = True) -> st.SearchStrategy[Expr]:
    """Sums, products, extremes, and divisions by numbers and by symbols (sizes, which are at least 1)."""
    base = st.one_of(st.sampled_from(list(symbols)), st.integers(-9, 9).map(constant))
    plain: list[Any] = [operator.add, operator.sub, operator.mul, maximum, minimum]
    divide: list[Any] = [operator.floordiv, operator.mod]

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        by = (
            st.one_of(st.integers(1, 7).map(constant), st.sampled_from(list(symbols)))
            if divisors
            else st.integers(1, 7).map(constant)
        )
        return st.one_of(
            st.tuples(st.sampled_from(plain), inner, inner).map(lambda t: t[0](t[1], t[2])),
            st.tuples(st.sampled_from(divide), inner, by).map(lambda t: t[0](t[1], t[2])),
        )

    return st.recursive(base, grow, max_leaves=7)


def conditions(symbols: Sequence[Expr], divisors: bool = True) -> st.SearchStrategy[Condition]:
    side = expressions(symbols, divisors)
    simple = st.tuples(st.sampled_from([eq, ne, lt, le, gt, ge]), side, side).map(lambda t: t[0](t[1], t[2]))
    join = st.tuples(st.sampled_from([conj, disj]), simple, simple).map(lambda t: t[0](t[1], t[2]))
    return st.one_of(simple, simple, join)


def symbolic(size: int | Expr) -> Expr:
    assert isinstance(size, Expr)
    return size


def symbol_of(e: int | Expr) -> Symbol:
    assert isinstance(e, Expr) and e.as_symbol is not None
    return e.as_symbol


def grid(count: int, values: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(values, repeat=count)


@EXAMPLES
@given(hints=st.lists(st.integers(2, 12), min_size=1, max_size=3, unique=True), data=st.data())
def test_guards_are_the_path_condition_over_sizes(hints: list[int], data: st.DataObject) -> None:
    env = ShapeEnv(dynamic=True)
    symbols = [symbolic(env.size(h, SIZES.size(i))) for i, h in enumerate(hints)]
    decided = [(c, env.guard(c)) for c in data.draw(st.lists(conditions(symbols), max_size=8))]
    program = GuardProgram(env.guards(), [], 1)
    assert program.check((Sized(hints),))
    for values in grid(len(hints), (1, 2, 3, 5, 6, 7, 12, 31)):
        bound = dict(zip(map(symbol_of, symbols), values, strict=True))
        same = min(values) >= 2 and all(c.evaluate(bound) is truth for c, truth in decided)
        assert program.check((Sized(values),)) is same


@EXAMPLES
@given(hints=st.tuples(st.integers(-20, 20), st.integers(-20, 20)), data=st.data())
def test_guards_are_the_path_condition_over_ints(hints: tuple[int, int], data: st.DataObject) -> None:
    """Any sign, and 0: only constants divide."""
    env = ShapeEnv(dynamic=True)
    symbols = [symbolic(env.size(h, path)) for h, path in zip(hints, INTS, strict=True)]
    decided = [(c, env.guard(c)) for c in data.draw(st.lists(conditions(symbols, divisors=False), max_size=8))]
    program = GuardProgram(env.guards(), [], 3)
    assert program.check((None, *hints))
    for values in grid(2, (-21, -8, -2, -1, 0, 1, 2, 3, 9, 20)):
        bound = dict(zip(map(symbol_of, symbols), values, strict=True))
        assert program.check((None, *values)) is all(c.evaluate(bound) is truth for c, truth in decided)


@EXAMPLES
@given(hints=st.lists(st.integers(2, 9), min_size=1, max_size=2, unique=True), data=st.data())
def test_ranges_after_decisions_contain_the_values(hints: list[int], data: st.DataObject) -> None:
    env = ShapeEnv(dynamic=True)
    symbols = [symbolic(env.size(h, SIZES.size(i))) for i, h in enumerate(hints)]
    for c in data.draw(st.lists(conditions(symbols), max_size=5)):
        env.guard(c)
    asked = data.draw(expressions(symbols))
    program = GuardProgram(env.guards(), [], 1)
    low, high = data.draw(st.integers(-40, 40)), data.draw(st.integers(-40, 40))
    above, below = env.known(ge(asked, low)), env.known(le(asked, high))
    for values in grid(len(hints), (2, 3, 4, 5, 7, 9, 40)):
        if program.check((Sized(values),)):
            value = asked.evaluate(dict(zip(map(symbol_of, symbols), values, strict=True)))
            assert above is None or above is (value >= low)
            assert below is None or below is (value <= high)


@EXAMPLES
@given(low=st.integers(2, 6), width=st.integers(0, 14), data=st.data())
def test_a_declared_range_is_served_whole_or_refused(low: int, width: int, data: st.DataObject) -> None:
    """mark_dynamic(min=, max=): one compilation serves every size of the range, or the user is told."""
    env = ShapeEnv()
    hint = data.draw(st.integers(low, low + width))
    made = symbolic(env.size(hint, SIZES.size(0), mark=SizeMark("dynamic", low, low + width)))
    side = st.tuples(st.integers(-3, 3), st.integers(-30, 30)).map(lambda t: made * t[0] + t[1])
    ordered = st.tuples(st.sampled_from([lt, le, gt, ge]), side, side).map(lambda t: t[0](t[1], t[2]))
    try:
        for c in data.draw(st.lists(ordered, max_size=4)):
            env.guard(c)
    except UserError:
        return
    program = GuardProgram(env.guards(), [], 1)
    assert all(program.check((Sized([n]),)) for n in range(low, low + width + 1))


@EXAMPLES
@given(count=st.integers(1, 2), data=st.data())
def test_stated_facts_decide_only_what_they_imply(count: int, data: st.DataObject) -> None:
    """Numbers that only the run knows: what is known follows from what the run tests."""
    env = ShapeEnv()
    symbols = [env.unbacked("u", 0, None) for _ in range(count)]
    stated = data.draw(st.lists(conditions(symbols, divisors=False), max_size=4))
    for c in stated:
        try:
            env.assume(c)
        except (GraphBreak, UserError):
            return  # it contradicts what was stated before, or is constant
    asked = data.draw(conditions(symbols, divisors=False))
    answer, larger = env.known(asked), env.oblivious(asked)
    assume(answer is not None or larger is not None)
    for values in grid(count, (0, 1, 2, 3, 4, 6, 9, 30)):
        bound = dict(zip(map(symbol_of, symbols), values, strict=True))
        if all(c.evaluate(bound) for c in stated):
            assert answer is None or asked.evaluate(bound) is answer
            if min(values) >= 2:
                assert larger is None or asked.evaluate(bound) is larger
