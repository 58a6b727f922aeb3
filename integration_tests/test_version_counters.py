"""`Tensor._version` read inside of a region, after writes in it."""

from __future__ import annotations

import pytest
import torch

import torchjit


def a_view(x):
    base = torch.square(x)
    first, rest = base[0], base[1:]
    first.mul_(2)
    below = first.unsqueeze(0)
    first.add_(1)
    seen = base._version, first._version, below._version, rest._version
    return base, below * 2, seen


def an_argument(x):
    before = x._version
    x.mul_(2)
    x[0] = 1
    return x * 2, x._version - before


def a_result(x):
    y = x * 2
    zero = y._version
    y += 1
    one = y._version
    y.copy_(x)
    return y, zero, one, y._version, (y + 1)._version


def _write_twice(t):
    t.add_(1)
    t.mul_(3)
    return t


def in_a_function(x):
    y = x.sin()
    _write_twice(y)
    return y, y._version


def in_a_loop(x):
    y = x.sin()
    seen = []
    for _ in range(3):
        y.mul_(2)
        seen.append(y._version)
    return y, seen


def nothing_written(x):
    return (x * 2)._version, x.view(-1)._version - x._version, x.sin()


PROGRAMS = (a_view, an_argument, a_result, in_a_function, in_a_loop, nothing_written)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_versions(program, backend, dynamic):
    compiled = torchjit.compile(program, backend=backend, dynamic=dynamic)
    for n in (2, 3, 3):
        x = torch.randn(n, 4)
        got, want = compiled(x.clone()), program(x.clone())
        for g, w in zip(got, want, strict=True):
            assert torch.equal(g, w) if isinstance(w, torch.Tensor) else g == w
    if program not in (an_argument, in_a_function):  # eager refuses it; the function called is a graph of its own
        for _ in range(2):
            x = torch.randn(2, 4, requires_grad=True)
            got, want = compiled(x), program(x)
            assert [g for g in got if not isinstance(g, torch.Tensor)] == [
                w for w in want if not isinstance(w, torch.Tensor)
            ]


def made_from_nothing(x):
    window = torch.hann_window(5)
    return torch.rand(2), torch.randint(0, 5, x.shape), torch.randperm(4), window, torch.rand(4).view(2, 2), x * 2


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_new_tensors_were_not_written(backend, requires_grad):
    compiled = torchjit.compile(made_from_nothing, backend=backend)
    x = torch.ones(2, 3, requires_grad=requires_grad)
    assert [t._version for t in compiled(x)] == [t._version for t in made_from_nothing(x)] == [0] * 6


def a_view_too(x):
    view = x.view(-1)
    x.mul_(2)
    return view.sin()


def one_write(x):
    x.mul_(2)
    return x.sin()


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", [a_view_too, one_write])
def test_a_written_argument_counts_once(program, backend, requires_grad):
    x = torch.ones(2, 3, requires_grad=requires_grad) * 1.0
    torchjit.compile(program, backend=backend)(x)
    assert x._version == 1
