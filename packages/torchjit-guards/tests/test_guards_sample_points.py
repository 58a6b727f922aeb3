"""What is refuted at sample points, or left out because nothing cancels, is what bounds could not have shown.

200 examples here; more with TORCHJIT_EXAMPLES=20000, as in test_guards_properties.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from torchjit_core.expr import Bounds, Condition, Expr, Symbol, as_expr, constant, le, symbol
from torchjit_guards.facts import Facts
from torchjit_guards.sample_points import SamplePoints

SYMBOLS = (Symbol("a"), Symbol("b"), Symbol("c", None, None), Symbol("d", None, 40))
FEW = settings(
    max_examples=int(os.environ.get("TORCHJIT_EXAMPLES", "200")),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much],
)


def _expressions() -> st.SearchStrategy[Expr]:
    atoms = st.sampled_from([as_expr(s) for s in SYMBOLS] + [as_expr(SYMBOLS[0]) // 3, as_expr(SYMBOLS[1]) % 5])
    monomials = st.lists(atoms, max_size=2).map(_product)
    return st.lists(st.tuples(st.integers(-4, 4), monomials), min_size=1, max_size=4).map(
        lambda terms: sum((m * c for c, m in terms), constant(0))
    )


def _product(atoms: Sequence[Expr]) -> Expr:
    product = constant(1)
    for atom in atoms:
        product = product * atom
    return product


def _follows(e: Expr, conditions: Sequence[Condition], facts: Facts) -> bool:
    """Facts._bounded without what saves work."""
    gaps = ((e - f.expr).bounds(facts.ranges).upper for f in conditions)
    return any(gap is not None and gap <= 0 for gap in gaps)


@given(st.lists(_expressions(), min_size=1, max_size=4), _expressions())
@FEW
def test_what_follows_is_what_bounds_show(known: list[Expr], asked: Expr) -> None:
    facts = Facts()
    for e in known:
        facts.add(le(e, 0))
    kept = [f for f in facts._implying if f.kind == "le" and not f.symbols.isdisjoint(asked.symbols)]
    # Of facts that contradict each other, or the ranges, anything may follow.
    assume(all(f.known(facts.ranges) is not False for f in kept))
    assume(all(b.lower is None or b.upper is None or b.lower <= b.upper for b in facts.ranges.values()))
    alone = asked.bounds(facts.ranges).upper
    if _follows(asked, kept, facts) and not facts.replacements:
        # where it follows from the ranges alone nobody asks `_bounded`
        assert facts._bounded(asked) or (alone is not None and alone <= 0)


@given(_expressions(), _expressions(), st.sampled_from(SYMBOLS), st.integers(2, 30))
@FEW
def test_points_lie_in_the_ranges(e: Expr, f: Expr, s: Symbol, limit: int) -> None:
    ranges: dict[Symbol, Bounds] = {}
    points = SamplePoints(lambda s: ranges.get(s, s.bounds))

    def refuted_rightly() -> None:
        if points.refute(e, f):
            gap = (e - f).bounds({s: ranges.get(s, s.bounds) for s in SYMBOLS}).upper
            assert gap is None or gap > 0

    refuted_rightly()
    ranges[s] = s.bounds.intersect(Bounds(None, limit))
    points.narrowed(s)
    refuted_rightly()


def test_a_range_that_is_narrowed_moves_the_points() -> None:
    a = Symbol("a")
    ranges = {a: Bounds(2, None)}
    points = SamplePoints(ranges.__getitem__)
    assert points.refute(as_expr(a), constant(50))  # a <= 50 is false for a large a
    ranges[a] = Bounds(2, 50)
    points.narrowed(a)
    assert not points.refute(as_expr(a), constant(50))


def test_an_error_at_a_point_refutes_nothing() -> None:
    zero = symbol("z", 0, 0)
    points = SamplePoints(lambda s: s.bounds)
    assert not points.refute(symbol("a") // zero + 10, constant(0))
