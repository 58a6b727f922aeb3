"""Symbolic sizes: what becomes a symbol, what is assumed, and that guards say exactly what was assumed."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from torchjit_core.expr import (
    Condition,
    Expr,
    as_expr,
    conj,
    constant,
    disj,
    eq,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    ne,
    negate,
)
from torchjit_core.guards import SymbolicCondition
from torchjit_core.location import CodeLocation
from torchjit_core.marks import SizeMark
from torchjit_core.paths import Arg
from torchjit_core.reasons import GraphBreak, UserError
from torchjit_guards import GuardProgram, ShapeEnv, SizeHistory

X, Y = Arg.of(0, "x"), Arg.of(1, "y")
WHERE = CodeLocation("model.py", "forward", 7)


class Sized:
    """Stands for a tensor: all that size paths ask for."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def size(self, dim: int) -> int:
        return self.sizes[dim]


def texts(env: ShapeEnv) -> list[str]:
    return [g.expression for g in env.guards() if isinstance(g, SymbolicCondition)]


def expr(size: int | Expr) -> Expr:
    assert isinstance(size, Expr)
    return size


def test_a_size_becomes_a_symbol_when_it_changes() -> None:
    history = SizeHistory()
    assert ShapeEnv(history).size(10, X.size(0)) == 10
    assert ShapeEnv(history).size(10, X.size(0)) == 10
    env = ShapeEnv(history)
    s = expr(env.size(5, X.size(0)))
    assert env.hint(s) == 5
    assert env.sources() == {next(iter(s.symbols)): X.size(0)}
    assert texts(env) == ["s0 >= 2"]
    # back to a value that was seen: it stays a symbol; another path is still constant
    env = ShapeEnv(history)
    assert isinstance(env.size(10, X.size(0)), Expr)
    assert env.size(7, Y.size(0)) == 7
    assert history.changing() == {X.size(0)}


def test_single_sizes_of_others_are_no_evidence() -> None:
    theirs = SizeHistory()
    for rows in (10, 12):
        env = ShapeEnv(theirs)
        env.size(rows, X.size(0)), env.size(8, X.size(1))
    mine = SizeHistory()
    mine.learn(theirs.for_others(), met_here=False)
    env = ShapeEnv(mine)
    assert isinstance(env.size(5, X.size(0)), Expr) and env.size(4, X.size(1)) == 4


def test_sizes_of_an_entry_that_serves_a_call_are() -> None:
    theirs = SizeHistory()
    for columns in (7, 8):
        env = ShapeEnv(theirs)
        env.size(3, X.size(0)), env.size(columns, X.size(1))
    mine = SizeHistory()
    mine.learn(theirs.for_others(), met_here=True)
    assert isinstance(ShapeEnv(mine).size(4, X.size(0)), Expr)


def test_zero_and_one_are_constants() -> None:
    env = ShapeEnv(dynamic=True)
    assert env.size(0, X.size(0)) == 0
    assert env.size(1, X.size(1)) == 1
    assert isinstance(env.size(2, X.size(2)), Expr)
    with pytest.raises(UserError, match="TJ-GRD-002"):
        env.size(1, Y.size(0), dynamic=True)


def test_dynamic_settings() -> None:
    never = ShapeEnv(dynamic=False)
    never.history.observe(X.size(0), 3)
    assert never.size(8, X.size(0)) == 8
    assert isinstance(never.size(8, X.size(1), dynamic=True), Expr)
    always = ShapeEnv(dynamic=True)
    assert always.size(8, X.size(0), dynamic=False) == 8
    assert isinstance(always.size(8, X.size(1)), Expr)


def test_duck_sizing_shares_a_symbol_and_guards_it() -> None:
    env = ShapeEnv(dynamic=True)
    a, b, c = env.size(6, X.size(0)), env.size(6, Y.size(0)), env.size(7, Y.size(1))
    assert a is b and a is not c
    program = GuardProgram(env.guards(), [], 2)
    assert program.check((Sized(9), Sized(9, 9)))
    assert not program.check((Sized(9), Sized(8, 9)))
    assert not program.check((Sized(1), Sized(1, 9)))


def test_integer_arguments_have_any_value() -> None:
    env = ShapeEnv(dynamic=True)
    n, m = expr(env.size(-4, X)), expr(env.size(1, Y))
    assert env.known(lt(n, 0)) is None and env.known(gt(m, 1)) is None
    program = GuardProgram(env.guards(), [], 2)
    assert program.check((-1, 2)) and program.check((0, 7)) and not program.check((2**70, 2))
    assert env.guard(lt(n, 0)) and not env.guard(gt(m, 1))
    program = GuardProgram(env.guards(), [], 2)
    assert program.check((-1, 1)) and program.check((-5, -5))
    assert not program.check((0, 1)) and not program.check((-1, 2)) and not program.check((-1, "2"))


def test_attributes_wait_for_a_change_and_arguments_do_not() -> None:
    env = ShapeEnv(dynamic=True)
    assert env.size(12, X.instance_attr("heads")) == 12 and not env.varies(0.5, X.instance_attr("rate"))
    assert isinstance(env.size(12, X.item("heads")), Expr) and env.varies(0.5, Y)


def test_floats_become_inputs_when_they_change() -> None:
    history = SizeHistory()
    nan = float("nan")
    assert not ShapeEnv(history).varies(0.1, X) and not ShapeEnv(history).varies(0.1, X)
    assert not ShapeEnv(history).varies(nan, Y) and not ShapeEnv(history).varies(nan, Y)
    env = ShapeEnv(history)
    assert env.varies(0.2, X) and env.varies(0.2, Y)
    env.guard_numbers("f0 * 2.0 > 0.3", (("f0", X),), WHERE)
    env.guard_numbers("f0 * 2.0 > 0.3", (("f0", X),), WHERE)
    (guard,) = env.guards()
    program = GuardProgram([guard], [X], 1)
    assert program(0.4) == (0.4,) and program(0.1) is None
    assert not ShapeEnv(SizeHistory(), dynamic=False).varies(0.2, X)


def test_sizes_that_differed_do_not_share_a_symbol() -> None:
    history = SizeHistory()
    for rows, columns in ((1, 1), (1, 2), (2, 1)):
        env = ShapeEnv(history)
        env.size(rows, X.size(0)), env.size(columns, X.size(1))
    env = ShapeEnv(history)
    assert env.size(2, X.size(0)) is not env.size(2, X.size(1))
    assert texts(env) == ["s0 >= 2", "s1 >= 2"]


def test_marks() -> None:
    env = ShapeEnv()
    assert env.size(9, X.size(0), mark=SizeMark("static")) == 9
    assert env.size(1, X.size(1), mark=SizeMark("maybe")) == 1
    loose = expr(env.size(8, X.size(2), mark=SizeMark("maybe")))
    assert env.guard(eq(loose, 8))  # no error
    s = expr(env.size(8, Y.size(0), mark=SizeMark("dynamic", 4, 64)))
    assert env.guard(le(s, 100)) and env.guard(ge(s, 3))
    assert {g.expression for g in env.guards() if isinstance(g, SymbolicCondition)} >= {"s1 >= 4", "s1 <= 64"}
    with pytest.raises(UserError, match=r"TJ-GRD-004.*y\.size\(0\) is declared at least 4 and at most 64") as caught:
        env.guard(le(s, 32), WHERE)
    assert caught.value.location == WHERE
    with pytest.raises(UserError, match="TJ-GRD-004.*declared: at most 5"):
        env.size(6, Y.size(1), mark=SizeMark("dynamic", None, 5))
    env = ShapeEnv()
    with pytest.raises(UserError, match=r"TJ-GRD-002.*the program needs y\.size\(2\) == 7"):
        env.guard(eq(expr(env.size(7, Y.size(2), mark=SizeMark("dynamic"))), 7), WHERE)


def test_a_dimension_marked_unbacked_is_an_input_that_no_decision_sees() -> None:
    env = ShapeEnv()
    u = expr(env.size(1, X.size(0), mark=SizeMark("unbacked")))
    assert env.example(u) == 1 and env.known(ge(u, 0)) is True
    with pytest.raises(GraphBreak, match=r"TJ-GRD-003.*x\.size\(0\) == 1"):
        env.guard(eq(u, 1), WHERE)
    assert GuardProgram(env.guards(), [X.size(0)], 1)(Sized(5)) == (5,)


def test_nothing_is_decided_after_the_guards_are_made() -> None:
    env = ShapeEnv(dynamic=True)
    s = expr(env.size(10, X.size(0)))
    env.seal()
    assert env.guard(gt(s, 1)) is True
    with pytest.raises(GraphBreak, match="TJ-GRD-005"):
        env.guard(gt(s, 4))


def test_decisions_are_recorded_once_with_their_line() -> None:
    env = ShapeEnv(dynamic=True)
    s = expr(env.size(10, X.size(0)))
    assert env.guard(gt(s, 5), WHERE) is True
    assert env.guard(gt(s, 4)) is True  # implied
    assert env.guard(gt(s, 5)) is True
    assert env.guard(lt(s, 3)) is False  # implied
    assert env.guard(gt(s, 7)) is True  # makes the first one superfluous
    assert texts(env) == ["s0 >= 8"]
    env.guard(le(s, 100), WHERE)
    assert [(g.expression, g.location) for g in env.guards() if isinstance(g, SymbolicCondition)][-1] == (
        "s0 <= 100",
        WHERE,
    )


def test_equality_replaces_a_symbol() -> None:
    env = ShapeEnv(dynamic=True)
    a, b, c = (expr(env.size(n, X.size(i))) for i, n in enumerate((4, 8, 12)))
    assert env.guard(eq(b, 2 * a)) and env.guard(eq(a + b, c))
    assert env.known(eq(c, 3 * a)) is True
    assert env.known(gt(b, a)) is True
    assert env.guard(eq(a, 4))
    assert env.known(eq(c, 12)) is True
    assert GuardProgram(env.guards(), [], 1).check((Sized(4, 8, 12),))
    assert not GuardProgram(env.guards(), [], 1).check((Sized(4, 8, 13),))


def test_no_spurious_guards_from_factored_sizes() -> None:
    env = ShapeEnv(dynamic=True)
    a, b = expr(env.size(5, X.size(0))), expr(env.size(7, X.size(1)))
    assert (
        env.guard(gt(a * b, 0))
        and env.guard(ne(a * b - a, 0))
        and env.guard(ge(a * b, b))
        and not env.guard(eq(a * b, 1))
    )
    assert texts(env) == ["s0 >= 2", "s1 >= 2"]


def test_divisibility_implies_smaller_divisors() -> None:
    env = ShapeEnv(dynamic=True)
    s = expr(env.size(16, X.size(0)))
    assert env.guard(eq(s % 8, 0))
    assert env.known(eq(s % 4, 0)) is True
    assert env.known(eq(s % 16, 0)) is None


def test_a_forced_symbol_must_not_be_fixed() -> None:
    env = ShapeEnv()
    s = expr(env.size(10, X.size(0), dynamic=True))
    env.guard(gt(s, 3))
    with pytest.raises(
        UserError, match=r"x\.size\(0\) is marked dynamic, and the program needs x\.size\(0\) == 10"
    ) as caught:
        env.guard(eq(s, 10), WHERE)
    assert caught.value.location == WHERE


def declared(n: int, lower: int | None, upper: int | None) -> tuple[ShapeEnv, Expr]:
    env = ShapeEnv()
    return env, expr(env.size(n, X.size(0), mark=SizeMark("dynamic", lower, upper)))


@pytest.mark.parametrize(
    ("decision", "hole"),
    [
        (lambda s: eq(s % 3, 1), 2),
        (lambda s: ne(s % 3, 0), 3),
        (lambda s: ne(s, 40), 40),
        (lambda s: ne(s * s, 81), 9),
        (lambda s: disj(lt(s, 20), gt(s, 30)), 20),
        (lambda s: ne(s // 4, 7), 28),
        (lambda s: gt(60 % (s - 5), -1), 5),
    ],
)
@pytest.mark.parametrize("upper", [64, 10**9, None])
def test_a_declared_range_has_no_holes(decision: Any, hole: int, upper: int | None) -> None:
    env, s = declared(10, 2, upper)
    with pytest.raises(UserError, match=rf"TJ-GRD-004.*declared at least 2.*leaves out {hole}\n") as caught:
        env.guard(decision(s), WHERE)
    assert caught.value.location == WHERE


def test_a_hole_at_the_far_end_of_a_wide_range() -> None:
    env, s = declared(10, 2, 10**6)
    with pytest.raises(UserError, match="leaves out 999999"):
        env.guard(ne(s, 10**6 - 1), WHERE)


def test_what_excludes_no_size_is_no_hole() -> None:
    env, s = declared(10, 2, 64)
    assert env.guard(le(s % 3, 2)) and env.guard(le(s // 2, 32)) and not env.guard(eq(s % 7, 9))
    other = expr(env.size(20, X.size(1), dynamic=True))
    assert env.guard(eq(other, 2 * s)), "the sizes of two dimensions depend on one another"
    assert env.guard(ge(other + s, 6))
    same = expr(env.size(10, X.size(2), dynamic=True))
    assert env.guard(eq(same, s))
    with pytest.raises(UserError, match="TJ-GRD-004.*leaves out"):
        env.guard(eq(same % 5, 0), WHERE)


def test_a_dimension_without_a_declared_range_may_have_holes() -> None:
    env, s = declared(10, None, None)
    assert env.guard(eq(s % 3, 1))


def test_unbacked_symbols_break_unless_known() -> None:
    env = ShapeEnv(dynamic=True)
    s = expr(env.size(10, X.size(0)))
    u = env.unbacked("item", 0, None)
    assert env.guard(ge(u, 0)) is True
    with pytest.raises(GraphBreak, match="TJ-GRD-003") as caught:
        env.guard(gt(u, 3), WHERE)
    assert caught.value.location == WHERE
    with pytest.raises(GraphBreak):
        env.hint(u + 1)
    env.assume(gt(u, 3), WHERE)
    assert env.guard(gt(u, 2)) is True
    assert env.asserts() == ((gt(u, 3), WHERE),)
    env.assume(eq(u, s), WHERE)
    assert env.hint(u) == 10
    assert all("u0" not in text for text in texts(env))


def test_a_third_size_does_not_miss() -> None:
    history = SizeHistory()
    for sizes, static in [((10, 3), True), ((8, 3), False)]:
        env = ShapeEnv(history)
        n, k = (env.size(v, X.size(i)) for i, v in enumerate(sizes))
        assert k == 3 and isinstance(n, int) is static
    assert env.guard(eq(as_expr(n) * 3, 24)) or True
    env = ShapeEnv(history)
    env.size(8, X.size(0))
    program = GuardProgram(env.guards(), [X.size(0)], 1)
    assert program(Sized(5, 3)) == (5,)
    assert program(Sized(9, 3)) == (9,)
    assert program(Sized(1, 3)) is None


# ---------------------------------------------------------------------- properties
def run_conditions(data: st.DataObject, hints: list[int]) -> tuple[ShapeEnv, list[tuple[Condition, bool]], list[Expr]]:
    env = ShapeEnv(dynamic=True)
    symbols = [expr(env.size(h, X.size(i), dynamic=None)) for i, h in enumerate(hints)]
    distinct = list(dict.fromkeys(symbols))
    decided = [(c, env.guard(c)) for c in data.draw(st.lists(conditions(distinct), max_size=6))]
    return env, decided, symbols


def terms(symbols: list[Expr]) -> st.SearchStrategy[Expr]:
    base = st.one_of(st.sampled_from(symbols), st.integers(-8, 8).map(constant))
    binary: list[Any] = [operator.add, operator.sub, operator.mul, maximum, minimum]
    return st.recursive(
        base,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(binary), inner, inner).map(lambda t: t[0](t[1], t[2])),
            st.tuples(inner, st.integers(1, 6)).map(lambda t: t[0] // t[1]),
            st.tuples(inner, st.integers(1, 6)).map(lambda t: t[0] % t[1]),
        ),
        max_leaves=5,
    )


def conditions(symbols: list[Expr]) -> st.SearchStrategy[Condition]:
    simple = st.tuples(st.sampled_from([eq, ne, lt, le, gt, ge]), terms(symbols), terms(symbols)).map(
        lambda t: t[0](t[1], t[2])
    )
    return st.one_of(
        simple, simple, st.tuples(st.sampled_from([conj, disj]), simple, simple).map(lambda t: t[0](t[1], t[2]))
    )


sizes_in = st.lists(st.integers(2, 9), min_size=1, max_size=3)


def assignments(n: int) -> list[tuple[int, ...]]:
    """For three sizes few of each, or hundreds of checks say the same."""
    return list(itertools.product((1, 2, 3, 4, 6, 8, 9, 17) if n < 3 else (1, 2, 3, 6, 9), repeat=n))


@settings(max_examples=25, deadline=None)
@given(hints=sizes_in, data=st.data())
def test_guards_hold_exactly_where_the_decisions_are_the_same(hints: list[int], data: st.DataObject) -> None:
    env, decided, symbols = run_conditions(data, hints)
    program = GuardProgram(env.guards(), [], 1)
    assert program.check((Sized(*hints),))
    for values in assignments(len(hints)):
        bound: dict[Any, int] = {}
        consistent = all(v >= 2 and bound.setdefault(next(iter(s.symbols)), v) == v for s, v in zip(symbols, values))
        same = consistent and all(c.evaluate(bound) is truth for c, truth in decided)
        assert program.check((Sized(*values),)) is same, (values, texts(env))


@settings(max_examples=25, deadline=None)
@given(hints=sizes_in, data=st.data())
def test_what_is_known_is_true_wherever_the_guards_hold(hints: list[int], data: st.DataObject) -> None:
    env, _, symbols = run_conditions(data, hints)
    question = data.draw(conditions(list(dict.fromkeys(symbols))))
    answer = env.known(question)
    assume(answer is not None)
    assert env.known(negate(question)) is not answer
    program = GuardProgram(env.guards(), [], 1)
    for values in assignments(len(hints)):
        if program.check((Sized(*values),)):
            assert question.evaluate({next(iter(s.symbols)): v for s, v in zip(symbols, values)}) is answer
