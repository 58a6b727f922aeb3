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
