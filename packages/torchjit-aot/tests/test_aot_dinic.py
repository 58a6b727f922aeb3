"""The maximum flow against brute force over all cuts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchjit_aot.dinic import FlowNetwork

Edges = list[tuple[int, int, int]]


def cut_value(edges: Edges, source_side: set[int]) -> int:
    return sum(c for a, b, c in edges if a in source_side and b not in source_side)


def smallest_cut(n: int, edges: Edges) -> int:
    inner = range(1, n - 1)
    subsets = itertools.chain.from_iterable(itertools.combinations(inner, k) for k in range(n - 1))
    return min(cut_value(edges, {0, *chosen}) for chosen in subsets)


@st.composite
def networks(draw: st.DrawFn) -> tuple[int, Edges]:
    n = draw(st.integers(2, 8))
    vertex = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex, st.integers(0, 20)), max_size=25))
    return n, [(a, b, c) for a, b, c in edges if a != b]


@settings(max_examples=300, deadline=None)
@given(networks())
def test_flow_equals_the_smallest_cut(network: tuple[int, Edges]) -> None:
    n, edges = network
    flow = FlowNetwork(n)
    for a, b, c in edges:
        flow.add_edge(a, b, c)
    value = flow.max_flow(0, n - 1)
    assert value == smallest_cut(n, edges)
    sink_side = flow.sink_side(n - 1)
    assert not sink_side[0] and sink_side[n - 1]
    assert cut_value(edges, {v for v in range(n) if not sink_side[v]}) == value


@settings(max_examples=100, deadline=None)
@given(networks())
def test_the_cut_is_the_nearest_to_the_sink(network: tuple[int, Edges]) -> None:
    n, edges = network
    flow = FlowNetwork(n)
    for a, b, c in edges:
        flow.add_edge(a, b, c)
    value = flow.max_flow(0, n - 1)
    mine = {v for v, reached in enumerate(flow.sink_side(n - 1)) if reached}
    for k in range(n - 1):
        for chosen in itertools.combinations(range(1, n - 1), k):
            if cut_value(edges, {0, *chosen}) == value:
                assert mine <= set(range(n)) - {0, *chosen}


def test_long_chain_needs_no_recursion() -> None:
    flow = FlowNetwork(20_000)
    for v in range(19_999):
        flow.add_edge(v, v + 1, 3 + v % 5)
    assert flow.max_flow(0, 19_999) == 3


def test_negative_capacity_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        FlowNetwork(2).add_edge(0, 1, -1)
