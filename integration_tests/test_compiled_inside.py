"""What was compiled on its own, called in a compiled region, is part of that region: one graph, as with torch.compile."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import functools

import pytest
import torch
from compare import check
from torch import nn

import torchjit


def eager(function):
    return torchjit.compile(function, backend="eager")


double = eager(lambda x: x * 2)
linear = nn.Linear(3, 3)
compiled_linear = eager(linear)


class Methods(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = eager(nn.Linear(3, 3))
        self.register_buffer("calls", torch.zeros(()))

    @eager
    def forward(self, x, scale=2.0):
        self.calls += 1
        return self.positive(self.inner(x)) * scale

    @torchjit.compile(backend="eager", fullgraph=True)
    def positive(self, x):
        return x.relu()

    @staticmethod
    @eager
    def shifted(x):
        return x + 1

    @classmethod
    @eager
    def named(cls, x):
        return x + len(cls.__name__)

    @property
    @eager
    def total(self):
        return self.calls + 1

    @eager
    def __matmul__(self, x):
        return self.inner.weight @ x


methods = Methods()

PROGRAMS = {
    "function": lambda x: double(x) + 1,
    "lambda given to map": lambda x: sum(map(double, [x, x])),
    "partial": lambda x: functools.partial(double)(x),
    "module": lambda x: compiled_linear(x) * compiled_linear.weight.sum() + compiled_linear.in_features,
    "module with methods": lambda x: methods(x, scale=3.0),
    "method as a value": lambda x: (lambda f: f(x))(methods.positive),
    "static, class and property": lambda x: methods.shifted(x) + Methods.named(x) + methods.total,
    "operator": lambda x: methods @ x,
    "transformed": lambda x: torch.func.vmap(double)(x[None]) + torch.func.grad(lambda t: double(t).sum())(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_one_graph_and_equal_to_eager(name: str) -> None:
    program = PROGRAMS[name]
    found = torchjit.explain(program)(torch.randn(3))
    assert (found.graph_count, found.breaks) == (1, ())
    check(eager(program), program, torch.randn(3, requires_grad=True), backward=True)


def test_breaks_inside_are_breaks_of_the_caller() -> None:
    @eager
    def inner(x):
        y = compiled_linear(x)
        torchjit.graph_break()
        return y + 1

    found = torchjit.explain(lambda x: inner(x) * 2)(torch.randn(3))
    assert (found.graph_break_count, found.op_count) == (1, 3)


def test_another_function_in_its_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = eager(lambda x: double(x) + compiled_linear(x))
    x = torch.randn(3)
    outer(x)
    monkeypatch.setitem(globals(), "double", eager(lambda x: x * 3))
    torch.testing.assert_close(outer(x), x * 3 + linear(x))
    removed = compiled_linear.register_forward_hook(lambda module, args, out: out * 5)
    torch.testing.assert_close(outer(x), x * 3 + linear(x))
    removed.remove()
    with torch.no_grad():
        linear.weight.add_(1)
    torch.testing.assert_close(outer(x), x * 3 + linear(x))


def test_a_disabled_function_inside_of_a_compiled_one_stays_disabled() -> None:
    left_alone = torchjit.disable(double)
    assert torchjit.explain(lambda x: left_alone(x) + 1)(torch.randn(3)).graph_break_count == 1
