"""Losses that are some of the results of a compiled function, as in `model(ids, labels=ids).loss.backward()`."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import torchjit


def losses(x, w, v):
    hidden = F.gelu(x @ w)
    keys, values = hidden.split(hidden.shape[0] // 2)
    logits = F.layer_norm(hidden, hidden.shape[-1:]) @ v
    picked = torch.cat([keys * 2, values])[::2]
    return F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.int64)), logits, keys, values.sqrt(), picked


def gradients(f, rows, used):
    generator = torch.Generator().manual_seed(rows)
    x, w, v = (torch.rand(size, generator=generator).requires_grad_() for size in ((rows, 4), (4, 6), (6, 5)))
    outputs = f(x, w, v)
    sum((outputs[k] * (k + 1)).sum() for k in used).backward()
    return [(t.grad, None if t.grad is None else t.grad.stride()) for t in (x, w, v)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients_of_some_results(backend, dynamic):
    compiled = torchjit.compile(losses, backend=backend, dynamic=dynamic, fullgraph=True)
    for rows, used in itertools.product((8, 6) if dynamic else (8,), ((0,), (1,), (2, 4), (3,), (0, 1, 2, 3, 4))):
        for want, have in zip(gradients(losses, rows, used), gradients(compiled, rows, used), strict=True):
            assert (want[0] is None) == (have[0] is None) and want[1] == have[1]
            if want[0] is not None:
                torch.testing.assert_close(have[0], want[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_infinite_derivatives_of_what_gets_no_gradient(backend, dynamic):
    def program(x):
        left, right = x.split(2)
        return (x * 3).sum(), left.sqrt(), right.log()

    compiled = torchjit.compile(program, backend=backend, dynamic=dynamic, fullgraph=True)
    for used in ((0,), (0, 1), (0, 2)):
        found = []
        for f in (program, compiled):
            x = torch.tensor([[0.0, 1.0]] * 4, requires_grad=True)
            outputs = f(x)
            sum(outputs[k].sum() for k in used).backward()
            found.append(x.grad)
        torch.testing.assert_close(*found)
