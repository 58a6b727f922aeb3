"""Second derivatives through compiled functions are refused on every route (TJ-AOT-009), never left out."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.functional as functional
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchjit

Function = Callable[..., Any]


def _cube(x: torch.Tensor) -> torch.Tensor:
    return (x**3).sum()


def _saves_its_result(x: torch.Tensor) -> torch.Tensor:
    return x.exp().sum()


def _with_a_break(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torchjit.graph_break()
    return (y * y).exp().sum()


def _point() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 3.0], requires_grad=True)


def _by_input(f: Function) -> Any:
    x = _point()
    y = f(x)
    (d,) = torch.autograd.grad(y, x, create_graph=True)
    return torch.autograd.grad(y + (d**2).sum(), x)


def _backward_for_inputs(f: Function) -> Any:
    x = _point()
    y = f(x)
    (d,) = torch.autograd.grad(y, x, create_graph=True)
    (y + (d**2).sum()).backward(inputs=[x])
    return x.grad


def _for_an_input_that_is_no_leaf(f: Function) -> Any:
    h = _point() * 2
    y = f(h)
    (d,) = torch.autograd.grad(y, h, create_graph=True)
    return torch.autograd.grad(y + (d**2).sum(), h)


def _behind_an_input_that_is_gone(f: Function) -> Any:
    x = _point()
    y = f(x * 2)
    (d,) = torch.autograd.grad(y, x, create_graph=True)
    return torch.autograd.grad(y + (d**2).sum(), x)


def _for_a_tangent(f: Function) -> Any:
    x, v = _point(), torch.ones((), requires_grad=True)
    (d,) = torch.autograd.grad(f(x), x, v, create_graph=True)
    return torch.autograd.grad(d.sum() + v, v)


def _after_a_retained_graph(f: Function) -> Any:
    x = _point()
    y = f(x)
    torch.autograd.grad(y, x, retain_graph=True)
    (d,) = torch.autograd.grad(y, x, create_graph=True)
    return torch.autograd.grad(y + (d**2).sum(), x)


def _in_a_checkpoint(f: Function) -> Any:
    x = _point()
    y = checkpoint(f, x, use_reentrant=False)
    (d,) = torch.autograd.grad(y, x, create_graph=True)
    return torch.autograd.grad(y + (d**2).sum(), x)


ROUTES: list[Function] = [
    _by_input,
    _backward_for_inputs,
    _for_an_input_that_is_no_leaf,
    _behind_an_input_that_is_gone,
    _for_a_tangent,
    _after_a_retained_graph,
    _in_a_checkpoint,
    lambda f: functional.hessian(f, _point().detach()),
    lambda f: functional.hessian(f, _point().detach(), vectorize=True),
    lambda f: functional.hvp(f, _point().detach(), torch.ones(3)),
    lambda f: functional.vhp(f, _point().detach(), torch.ones(3)),
    lambda f: functional.jvp(f, _point().detach(), torch.ones(3)),
]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("f", [_cube, _saves_its_result, _with_a_break])
def test_every_route_is_refused(f: Function, backend: str) -> None:
    compiled = torchjit.compile(f, backend=backend)
    for route in ROUTES:
        with pytest.raises(RuntimeError, match="TJ-AOT-009"):
            route(compiled)


def test_linear_functions_have_none() -> None:
    """Their gradients are constants, as in eager mode; those of tangents are not."""
    compiled = torchjit.compile(lambda x: (2 * x).sum(), backend="aot_eager")
    x = _point()
    (d,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    assert not d.requires_grad
    assert _by_input(compiled)[0].tolist() == [2.0, 2.0, 2.0]
    assert not functional.hessian(compiled, x.detach()).any()
    with pytest.raises(RuntimeError, match="TJ-AOT-009"):
        _for_a_tangent(compiled)


def test_gradient_penalties_of_modules() -> None:
    def penalty(net: Function, weight: torch.Tensor) -> Any:
        z = torch.ones(2, 3, requires_grad=True)
        score = net(z).sum()
        (slope,) = torch.autograd.grad(score, z, create_graph=True)
        return torch.autograd.grad(score + 10 * ((slope.norm(dim=1) - 1) ** 2).mean(), weight)

    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    with pytest.raises(RuntimeError, match="TJ-AOT-009"):
        penalty(torchjit.compile(net, backend="aot_eager"), net[0].weight)
    whole = torchjit.compile(penalty, backend="aot_eager")  # inside of one region it is computed
    torch.testing.assert_close(whole(net, net[0].weight), penalty(net, net[0].weight))


def test_some_of_several_results() -> None:
    """One result's backward, one after another's has freed its part, and results that are different nodes of autograd."""

    def two(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.exp().sum(), (w.tanh() ** 2).sum()

    compiled = torchjit.compile(two, backend="aot_eager")
    for no_leaf in (False, True):
        for first in (False, True):
            x, w = _point(), _point()
            a, b = (t * 1 for t in (x, w)) if no_leaf else (x, w)
            y, z = compiled(a, b)
            if first:
                (z_grad,) = torch.autograd.grad(z, b)
                torch.testing.assert_close(z_grad, torch.autograd.grad((b.tanh() ** 2).sum(), b)[0])
            (d,) = torch.autograd.grad(y, a, create_graph=True)
            torch.testing.assert_close(d.detach(), a.detach().exp())
            with pytest.raises(RuntimeError, match="TJ-AOT-009"):
                torch.autograd.grad(y + (d**2).sum(), a)


def test_frozen_weights_between_inputs() -> None:
    """What leads to an input that no backward saves, and that is no leaf, is kept for this alone, without its memory."""

    def f(h: torch.Tensor) -> torch.Tensor:
        return torch.relu(h).sin().sum()

    compiled = torchjit.compile(f)
    x = torch.randn(4, requires_grad=True)
    y = compiled(x * 3)
    (d,) = torch.autograd.grad(y, x, create_graph=True)
    x3 = (x.detach() * 3).requires_grad_()
    torch.testing.assert_close(d.detach(), 3 * torch.autograd.grad(f(x3), x3)[0])
    with pytest.raises(RuntimeError, match="TJ-AOT-009"):
        torch.autograd.grad(y + (d**2).sum(), x)


def test_a_gradient_penalty_inside_of_the_compiled_function_is_one_graph_as_the_hint_says() -> None:
    critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def penalty(x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean()

    x = torch.randn(6, 4)
    penalty(x.clone()).backward()
    expected = [p.grad for p in critic.parameters()]
    critic.zero_grad()
    compiled: Any = torchjit.compile(penalty, fullgraph=True)
    compiled(x.clone()).backward()
    torch.testing.assert_close([p.grad for p in critic.parameters()], expected)
    outside: Any = torchjit.compile(critic)
    x.requires_grad_()
    (slope,) = torch.autograd.grad(outside(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="TJ-AOT-009(.|\n)*inside of a compiled function"):
        slope.sum().backward()
