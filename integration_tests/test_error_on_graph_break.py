"""`torchjit.error_on_graph_break`: in blocks, on functions, nested, across breaks."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import pytest
import torch

import torchjit
import torchjit_fx
from torchjit.exc import Unsupported


@torchjit.disable
def obstacle(x):
    return x * 2


def test_an_error_in_the_block_and_a_break_outside_of_it():
    def f(x, strict):
        x = obstacle(x) + 1
        with torchjit.error_on_graph_break(strict):
            x = obstacle(x) + 1
        return obstacle(x)

    x = torch.ones(3)
    compiled = torchjit.compile(f, backend="eager")
    assert torch.equal(compiled(x, False), f(x, False))
    with pytest.raises(Unsupported, match="disable"):
        compiled(x, True)
    assert not torchjit_fx.breaks_are_errors()
    assert torch.equal(compiled(x, False), f(x, False))


def test_on_a_function_and_the_innermost_counts():
    @torchjit.error_on_graph_break(False)
    def lenient(x):
        return obstacle(x) + 1

    @torchjit.error_on_graph_break(True)
    def strict(x, inner):
        return inner(x.sin())

    x = torch.ones(3)
    compiled = torchjit.compile(strict, backend="eager")
    assert strict.__name__ == "strict"
    assert torch.equal(compiled(x, lenient), x.sin() * 2 + 1)
    with pytest.raises(Unsupported):
        compiled(x, obstacle)
    assert torch.equal(compiled(x, torch.cos), x.sin().cos())


def test_a_break_inside_keeps_the_state_for_what_follows():
    def f(x):
        with torchjit.error_on_graph_break(True):
            with torchjit.error_on_graph_break(False):
                x = obstacle(x)
                x = obstacle(x)
            return obstacle(x)

    compiled = torchjit.compile(f, backend="eager")
    for _ in range(2):
        with pytest.raises(Unsupported):
            compiled(torch.ones(3))
    assert not torchjit_fx.breaks_are_errors()


def test_around_the_call():
    compiled = torchjit.compile(lambda x: obstacle(x) + 1, backend="eager")
    with torchjit.error_on_graph_break(True), pytest.raises(Unsupported):
        compiled(torch.ones(3))
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))


def test_fullgraph_is_stronger():
    @torchjit.compile(backend="eager", fullgraph=True)
    def f(x):
        with torchjit.error_on_graph_break(False):
            return obstacle(x)

    with pytest.raises(Unsupported):
        f(torch.ones(3))


def test_the_graph_says_nothing_of_it():
    @torchjit.compile(backend="aot_eager", fullgraph=True)
    def f(x):
        with torchjit.error_on_graph_break(True):
            return x * 2

    assert torch.equal(f(torch.ones(3)), torch.full((3,), 2.0))
    (made,) = f.compiled.specializations
    assert [n.op for n in made.graphs[0].graph.nodes].count("call_function") == 1


def test_an_exception_leaves_the_state_as_it_was():
    @torchjit.compile(backend="eager")
    def f(x, n):
        with torchjit.error_on_graph_break(True):
            if n > 1:
                raise ValueError(n)
            return x + n

    assert torch.equal(f(torch.ones(3), 1), torch.full((3,), 2.0))
    with pytest.raises(ValueError, match="2"):
        f(torch.ones(3), 2)
    assert not torchjit_fx.breaks_are_errors()
