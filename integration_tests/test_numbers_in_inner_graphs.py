"""Arithmetic on floats that vary between calls, inside of what becomes a graph of its own."""

# mypy: allow-untyped-calls, allow-untyped-defs, no-warn-return-any

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch.func import grad, vmap

import torchjit


class Reversed(torch.autograd.Function):
    """Multiplies the gradient by a number that the backward computes of the forward's."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale * 2
        return x * ctx.scale

    @staticmethod
    def backward(ctx, g):
        return -ctx.scale * g, None


class Noted(torch.autograd.Function):
    """Its forward tells a number to whoever calls it."""

    @staticmethod
    def forward(ctx, x, scale, told):
        told.append(scale * 2)
        return x * told[-1]

    @staticmethod
    def backward(ctx, g):
        return g * 3, None, None


def reversed_gradient(x, s):
    return Reversed.apply(x, s + 1)


def number_outside(x, s):
    told: list[float] = []
    return Noted.apply(x, s, told) * (told[0] + 1)


def hook(x, s):
    y = x * 2
    y.register_hook(lambda g: g * (s * 3))
    return y.sin()


def gradient(x, s):
    return grad(lambda t: (t * (s * 2)).sin().sum())(x)


def batched(x, s):
    return vmap(lambda row: row * (s / 2))(x)


def checkpointed(x, s):
    return torch.utils.checkpoint.checkpoint(lambda t: (t * (s * 2)).sin(), x, use_reentrant=False)


@pytest.mark.parametrize("f", [reversed_gradient, number_outside, hook, gradient, batched, checkpointed])
def test_arithmetic_on_a_float_that_varies(f: Callable[..., Any]) -> None:
    fast = torchjit.compile(f, on_error="raise")
    for s in (0.5, 0.75, 1.25):
        x = torch.randn(4, 3, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        expected, found = f(x, s), fast(y, s)
        torch.testing.assert_close(found, expected)
        expected.sum().backward()
        found.sum().backward()
        torch.testing.assert_close(y.grad, x.grad)


@pytest.mark.parametrize("f", [reversed_gradient, hook, gradient, batched])
def test_one_compilation_more_is_enough(f: Callable[..., Any]) -> None:
    fast: Any = torchjit.compile(f, backend="eager", on_error="raise", fullgraph=f is not hook)
    for s in (0.5, 0.75, 1.25, 2.5):
        fast(torch.randn(4, 3, requires_grad=True), s)
    assert len(fast.compiled.stats.regions) == 2 and not fast.compiled.stats.breaks
