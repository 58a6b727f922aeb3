"""Properties of integer expressions: simplification keeps values, bounds contain them, conditions agree."""

import copy
import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchjit_core.expr import (
    Bounds,
    Condition,
    Expr,
    Symbol,
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
    symbol,
)

NAMES = ("a", "b", "c")
a, b, c = (symbol(n) for n in NAMES)
SYMBOLS = tuple(Symbol(n) for n in NAMES)


def _values(env: dict[str, int]) -> dict[Symbol, int]:
    return {Symbol(n): v for n, v in env.items()}


class Tree:
    """An expression as a plain recipe, evaluated by Python itself: the reference."""

    def __init__(self, text: str) -> None:
        self.text = text

    def plain(self, env: dict[str, int]) -> int:
        return int(eval(self.text, {"max": max, "min": min}, env))

    def expr(self) -> Expr:
        return as_expr(eval(self.text, {"max": maximum, "min": minimum}, {"a": a, "b": b, "c": c}))

    def __repr__(self) -> str:
        return self.text


def trees() -> st.SearchStrategy[Tree]:
    leaves = st.one_of(st.sampled_from(NAMES), st.integers(-6, 12).map(lambda n: f"({n})"))

    def grow(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(children, st.sampled_from("+-*"), children).map(lambda t: f"({t[0]}{t[1]}{t[2]})"),
            st.tuples(children, st.sampled_from(["//", "%"]), st.integers(1, 9).map(str)).map(
                lambda t: f"({t[0]}{t[1]}{t[2]})"
            ),
            st.tuples(children, st.sampled_from(["//", "%"]), st.sampled_from(["a", "(a*b)", "(b+1)"])).map(
                lambda t: f"({t[0]}{t[1]}{t[2]})"
            ),
            st.tuples(st.sampled_from(["max", "min"]), children, children).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        )

    return st.recursive(leaves, grow, max_leaves=8).map(Tree)


envs = st.fixed_dictionaries({n: st.integers(2, 40) for n in NAMES})


@settings(max_examples=150)
@given(trees(), envs)
def test_simplification_keeps_values(tree: Tree, env: dict[str, int]) -> None:
    assert tree.expr().evaluate(_values(env)) == tree.plain(env)


@settings(max_examples=150)
@given(trees(), envs)
def test_bounds_contain_values(tree: Tree, env: dict[str, int]) -> None:
    values = _values(env)
    e = tree.expr()
    assert tree.plain(env) in e.bounds()
    assert tree.plain(env) in e.bounds({s: Bounds(v - 1, v + 3) for s, v in values.items()})


@settings(max_examples=100)
@given(trees(), trees(), envs)
def test_conditions_agree_with_python(left: Tree, right: Tree, env: dict[str, int]) -> None:
    values = _values(env)
    x, y = left.plain(env), right.plain(env)
    pairs: list[tuple[Condition, bool]] = [
        (eq(left.expr(), right.expr()), x == y),
        (ne(left.expr(), right.expr()), x != y),
        (lt(left.expr(), right.expr()), x < y),
        (le(left.expr(), right.expr()), x <= y),
        (gt(left.expr(), right.expr()), x > y),
        (ge(left.expr(), right.expr()), x >= y),
    ]
    for condition, truth in pairs:
        assert condition.evaluate(values) is truth
        assert negate(condition).evaluate(values) is not truth
        assert condition.known() in (None, truth)
        assert eval(str(condition), {"max": max, "min": min}, env) is truth
    first, second = pairs[0], pairs[2]
    assert conj(first[0], second[0]).evaluate(values) is (first[1] and second[1])
    assert disj(first[0], second[0]).evaluate(values) is (first[1] or second[1])


@settings(max_examples=100)
@given(trees(), envs)
def test_text_is_python(tree: Tree, env: dict[str, int]) -> None:
    assert eval(str(tree.expr()), {"max": max, "min": min}, env) == tree.plain(env)


@given(trees(), envs)
def test_substitution_is_evaluation(tree: Tree, env: dict[str, int]) -> None:
    assert tree.expr().substitute(_values(env)).value == tree.plain(env)


@given(trees())
def test_interning_survives_pickle_and_copy(tree: Tree) -> None:
    e = tree.expr()
    assert pickle.loads(pickle.dumps(e)) is e
    assert copy.deepcopy(e) is e


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ((a + b) * 2 - 2 * b, "2*a"),
        ((6 * a + 3) // 3, "2*a + 1"),
        ((a * b) // b, "a"),
        ((a * b) % b, "0"),
        ((4 * a + 1) % 4, "1"),
        ((a // 3) // 4, "(a//12)"),
        ((a % 12) % 4, "(a%4)"),
        ((a * b + b) // b, "a + 1"),
        (constant(7) // 2 - 7, "-4"),
        (maximum(a, a + 1), "a + 1"),
        (minimum(a, 1), "1"),
    ],
)
def test_simplifications(made: Expr, text: str) -> None:
    assert str(made) == text


def test_common_symbols_are_factored_before_intervals() -> None:
    assert le(a, a * b).known() is True
    assert eq(a * b - a, 0).known() is False
    assert gt(a * b + a, 0).known() is True


def test_division_by_zero_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        a // 0
    with pytest.raises(ZeroDivisionError):
        a % 0


def test_bounds_of_products() -> None:
    assert Bounds(None, -1) * Bounds(2, None) == Bounds(None, -2)
    assert Bounds(0, None) * Bounds(None, None) == Bounds(None, None)
    assert Bounds(-3, 2).power(2).lower == 0


def _windows(depth: int) -> Expr:
    """Sizes of windows of windows: each is twice in the next, so that it is exponentially long when written out."""
    size = a
    for _ in range(depth):
        size = (size + b) // (size % 7 + 1)
    return size


def test_expressions_that_share_operands_take_no_exponential_time() -> None:
    deep = _windows(200)
    assert deep.length > 2**200
    value = 1000
    for _ in range(200):
        value = (value + 5) // (value % 7 + 1)
    assert deep.evaluate(_values({"a": 1000, "b": 5})) == value
    assert deep.substitute({Symbol("a"): 1000, Symbol("b"): 5}).value == value
    assert deep.substitute({Symbol("b"): c}).symbols == {Symbol("a"), Symbol("c")}
    assert deep.bounds().upper is None


def test_the_order_of_long_expressions_does_not_depend_on_who_was_first() -> None:
    program = """
from torchjit_core.expr import Symbol, symbol
a, b = symbol("a"), symbol("b")
def windows(s, depth):
    for _ in range(depth):
        s = (s + 1) // (s % 7 + 1)
    return s
first, second = (windows(s, 9) for s in {order})
product = windows(a, 9) * windows(b, 9) + windows(a, 9)
print([str(m) for m, _ in product.terms] == [str(m) for m, _ in (windows(a, 9) + windows(b, 9) * windows(a, 9)).terms])
print(hash(str(product)))
"""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program.format(order=order)],
            env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True,
        ).stdout
        for order in ("(a, b)", "(b, a)")
    ]  # fmt: skip
    assert outputs[0].startswith("True") and outputs[0] == outputs[1]


def test_length_counts_what_is_written() -> None:
    assert constant(3).length == 1
    assert (a + b).length == 3
    assert ((a + b) // c).length > (a + b).length
    assert (((a + b) // c) * ((a + b) // c + 1)).length > 2 * ((a + b) // c).length - 3
