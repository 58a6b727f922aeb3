"""Results of a tensor subclass have the autograd history that eager gives them, whichever mode the caller is in."""

# mypy: allow-untyped-defs

from __future__ import annotations

import pytest
import torch

import torchjit


class Tagged(torch.Tensor):
    pass


def switched_on(x):
    torch.set_grad_enabled(True)
    return x.as_subclass(Tagged) + 1


def a_view_of_it(x):
    with torch.enable_grad():
        return (x.as_subclass(Tagged) * 2)[0]


def switched_off(x):
    with torch.no_grad():
        return x.as_subclass(Tagged)


def a_view_without_history(x):
    with torch.no_grad():
        return x.as_subclass(Tagged)[0]


def a_leaf(x):
    return torch.ones(2).as_subclass(Tagged).requires_grad_()


PROGRAMS = (switched_on, a_view_of_it, switched_off, a_view_without_history, a_leaf)


@pytest.mark.parametrize("caller", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_histories(program, backend, caller):
    seen = []
    for function in (program, torchjit.compile(program, backend=backend)):
        x = torch.ones(2, 3, requires_grad=True)
        with torch.set_grad_enabled(caller):
            made = function(x)
        if not made.is_leaf:
            made.sum().backward()
        seen.append((type(made), made.requires_grad, made.is_leaf, None if x.grad is None else x.grad.tolist()))
    assert seen[0] == seen[1]
