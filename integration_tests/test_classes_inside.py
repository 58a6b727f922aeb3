"""Class statements inside compiled functions: one graph, eager's results and gradients, a new class in each call."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import dataclasses
import enum
import typing

import pytest
import torch
from torch import nn

import torchjit


def module(x):
    class Scale(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor
            self.register_buffer("shift", x * 2)

        def forward(self, y):
            return y * self.factor + self.shift

    return Scale(3)(x)


def function_with_gradient(x):
    offset = x.mean()

    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            ctx.save_for_backward(y)
            return y * 2 + offset.detach()

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    return Halved.apply(x)


def dataclass_of_tensors(x):
    @dataclasses.dataclass
    class Pair:
        left: torch.Tensor
        right: torch.Tensor = x + 1
        names: list = dataclasses.field(default_factory=list)

        def total(self):
            return self.left * self.right

    return Pair(x.sin()).total()


def tuple_and_enum(x):
    class Mode(enum.Enum):
        ADD = 1
        MULTIPLY = 2

    class Step(typing.NamedTuple):
        mode: Mode
        operand: torch.Tensor

    for step in (Step(Mode.ADD, x), Step(Mode.MULTIPLY, x.cos())):
        x = x + step.operand if step.mode is Mode.ADD else x * step.operand
    return x


def closure_over_an_intermediate(x):
    scale = x.sum()

    class Base:
        def __call__(self, y):
            return y * scale

    class Child(Base):
        def __call__(self, y):
            return super().__call__(y) + 1

    return Child()(x)


PROGRAMS = (module, function_with_gradient, dataclass_of_tensors, tuple_and_enum, closure_over_an_intermediate)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_one_graph(program):
    compiled = torchjit.compile(program, backend="aot_eager", fullgraph=True)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(3, 4, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        expected, actual = program(x), compiled(y)
        assert torch.equal(actual, expected)
        expected.sum().backward()
        actual.sum().backward()
        assert torch.equal(y.grad, x.grad)
    assert len(torchjit.explain(program)(x).graphs) == 1


def test_a_class_that_is_returned():
    def program(x):
        class Holder:
            held = x * 2

            def get(self):
                return self.held + x

        return Holder, Holder()

    compiled = torchjit.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(2)
    (first, one), (second, two) = compiled(x), compiled(x + 1)
    assert first is not second and type(one) is first and type(two) is second
    assert torch.equal(one.get(), x * 3) and torch.equal(two.get(), (x + 1) * 3)
    assert first.__qualname__ == "test_a_class_that_is_returned.<locals>.program.<locals>.Holder"
