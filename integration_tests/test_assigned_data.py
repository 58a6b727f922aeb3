"""`parameter.data = tensor` inside of compiled code: what later calls, aliases and the program outside see."""

# mypy: allow-untyped-defs

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchjit


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.shadow = [torch.ones(4, 4), torch.ones(4)]


@torch.no_grad()
def swapped(m, x):
    parameters = list(m.linear.parameters())
    kept = [p.data for p in parameters]
    for p, s in zip(parameters, m.shadow, strict=True):
        p.data = s
    y = m.linear(x)
    for p, b in zip(parameters, kept, strict=True):
        p.data = b
    return y, m.linear(x), kept


@torch.no_grad()
def averaged(m, x):
    for p in m.linear.parameters():
        p.data = 0.9 * p.data + 0.1
    return m.linear(x)


def descent(m, x):
    parameters = list(m.linear.parameters())
    loss = m.linear(x).pow(2).sum()
    for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        p.data = p.data - 0.1 * g
    return loss.detach()


def old_memory(m, x):
    old = m.linear.weight.data
    m.linear.weight.data = old * 2
    old.add_(1)
    return old, m.linear.weight.data, m.linear.weight


@torch.no_grad()
def new_memory(m, x):
    w, v = m.linear.weight, x + 1
    w.data = v
    v.mul_(2)
    w.add_(1)
    return w.mul_(2) is w, v, w.stride()


@torch.no_grad()
def other_strides(m, x):
    m.linear.weight.data = x.t()
    return m.linear.weight.stride(), m.linear.weight.is_contiguous(), m.linear.weight @ x


def caught(m, x):
    try:
        m.linear.weight.data = x * 2
        raise KeyError
    except KeyError:
        m.linear.bias.data = x[0].clone()
    return x


@torch.no_grad()
def chained(m, x):
    m.linear.weight.data = x * 1
    m.other.data = x * 3
    m.linear.weight.data = m.other
    return m.other


def shape(m, x):
    m.linear.weight.data = x[:2]
    return m.linear.weight.shape


def gradients(m, x):
    m.linear.weight.data = m.linear.weight.data * 0.5
    m.linear(x).sum().backward()
    grad, m.linear.weight.grad, m.linear.bias.grad = m.linear.weight.grad, None, None
    return grad


PROGRAMS = {
    swapped: 0,
    averaged: 0,
    descent: 0,
    old_memory: 0,
    new_memory: 0,
    other_strides: 0,
    caught: 0,
    chained: 1,
    shape: 1,
    gradients: 2,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_program(f, backend):
    outcomes = []
    compiled = torchjit.compile(f, backend=backend)
    for g in (f, compiled):
        model = Model()
        model.other = nn.Parameter(torch.zeros(4, 4))
        results = [g(model, torch.arange(16.0).view(4, 4) * n) for n in ((1, 2) if f is not shape else (1,))]
        outcomes.append((results, list(model.parameters()), model.shadow))
    torch.testing.assert_close(outcomes[1], outcomes[0])
    assert [p.stride() for p in outcomes[1][1]] == [p.stride() for p in outcomes[0][1]]
    assert sum(len(s.breaks) for s in compiled.compiled.specializations) <= PROGRAMS[f]
