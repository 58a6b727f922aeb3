"""What eager's kernels check, and the dtypes that they give, is kept where a decomposition or a lowering takes their place."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchjit

T = torch.tensor
X, P = torch.linspace(-2, 2, 12).view(4, 3), torch.linspace(0, 1, 12).view(4, 3)
NAN = float("nan")


def _bad(value, place=7):
    made = P.clone()
    made.view(-1)[place] = value
    return made


REFUSED = {
    "index_copy, before the first": (lambda x, i: torch.index_copy(x, 0, i, x[:1] + 1), (X, T([-1]))),
    "index_copy, behind the last": (lambda x, i: torch.index_copy(x, 1, i, x[:, :2] + 1), (X, T([0, 3]))),
    "index_copy_ onto a new tensor": (lambda x, i: (x * 2).index_copy_(0, i, x[:2]), (X, T([3, -4]))),
    "index_add": (lambda x, i: torch.index_add(x, 0, i, x[:1] + 1), (X, T([-1]))),
    "index_fill": (lambda x, i: torch.index_fill(x, 0, i, 2.0) + 1, (X, T([-5]))),
    "binary_cross_entropy, input": (lambda p, t: F.binary_cross_entropy(p, t), (_bad(1.5), P)),
    "binary_cross_entropy, target": (lambda p, t: F.binary_cross_entropy(p, t, reduction="sum"), (P, _bad(-0.5))),
    "binary_cross_entropy, not a number": (lambda p, t: F.binary_cross_entropy(p, t, p, reduction="none"), (P, _bad(NAN))),
    "binary_cross_entropy, another input": (lambda p, t: F.binary_cross_entropy(p * 1.5, t.sigmoid()), (P, X)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), (X, T([0, 1, 2, 3]))),
    "nll_loss": (lambda x, i: F.nll_loss(x, i, reduction="none"), (X, T([0, -1, 2, 0]))),
    "smooth_l1_loss": (lambda a, b: F.smooth_l1_loss(a, b, beta=-1.5), (X, P)),
    "huber_loss": (lambda a, b: F.huber_loss(a, b, delta=0.0), (X, P)),
    "softshrink": (lambda a: F.softshrink(a, -0.5), (X,)),
    "celu": (lambda a: F.celu(a, 0.0), (X,)),
    "interpolate, to nothing": (lambda x: F.interpolate(x[None, None], size=(0, 3), mode="bilinear"), (X,)),
    "prelu of integers": (lambda x, w: F.prelu(x, w), (T([1, -2, 3]), T([1]))),
    "logsigmoid of integers": (lambda x: F.logsigmoid(x), (T([1, -2, 3]),)),
    "binary_cross_entropy_with_logits of integers": (lambda x: F.binary_cross_entropy_with_logits(x, x.float()), (T([1, 0]),)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses(name):
    f, args = REFUSED[name]
    with pytest.raises(Exception) as want:
        f(*args)
    with pytest.raises(want.type):
        torchjit.compile(f)(*args)


def _half(x):
    return x.to(torch.bfloat16)


ANSWERED = {
    "soft_margin_loss": (lambda a, b: F.soft_margin_loss(a, b), (_half(X), X.sign())),
    "huber_loss": (lambda a, b: F.huber_loss(a, b) + 1, (_half(X), P)),
    "huber_loss of float64": (lambda a, b: F.huber_loss(a, b, reduction="none"), (X, P.double())),
    "binary_cross_entropy": (lambda p, t, w: F.binary_cross_entropy(p, t, weight=w), (_half(P), _half(P), P + 1)),
    "index_fill from the end": (lambda x, i: (torch.index_fill(x.t(), 1, i, 7), torch.index_fill(x, 0, i[0], x.detach()[0, 0])), (X, T([-1, 0]))),
    "index_copy": (lambda x, i: torch.index_copy(x.t() * 2, 1, i, x[:2].t()) + 1, (X, T([3, 0]))),
    "binary_cross_entropy at both ends": (lambda p, t: F.binary_cross_entropy(p.t(), t.t(), reduction="none"), (P, P.flip(0))),
    "binary_cross_entropy of nothing": (lambda p: F.binary_cross_entropy(p[:0], p[:0]), (P,)),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERED)
def test_what_eager_answers(name):
    f, args = ANSWERED[name]
    floats = {a.dtype for a in args if a.is_floating_point()}
    near = {"rtol": 0.02, "atol": 0.02} if torch.bfloat16 in floats else {}
    sides = []
    for g in (f, torchjit.compile(f)):
        first = args[0].clone().requires_grad_(len(floats) == 1)  # backwards do not mix dtypes
        made = g(first, *args[1:])
        results = list(made) if isinstance(made, tuple) else [made]
        if first.requires_grad:
            sum(t.sum() for t in results).backward()
        sides.append([*(t.detach() for t in results), first.grad])
    for got, want in zip(sides[1], sides[0], strict=True):
        if want is not None:
            torch.testing.assert_close(got, want, equal_nan=True, check_stride=True, **near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_remainders_of_quotients_that_overflow(dtype):
    """Eager's are not numbers in whole vectors, and right in what is left over."""
    largest, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    a = T([largest, -largest, 1e30, 7.5, -7.5, 0.0, largest / 3, NAN, 5.0, float("inf")], dtype=dtype).repeat(5)
    b = T([least, 1e-30, -1e-30, least, 2.0, 1e-3, 3 * least, 1.0, float("inf"), 2.0], dtype=dtype).repeat(5)
    got = torchjit.compile(lambda a, b: (torch.fmod(a, b), torch.remainder(a, b), a % b, torch.fmod(a, 1e-30)))(a, b)
    one = [[torch.fmod(x, y), torch.remainder(x, y), x % y, torch.fmod(x, 1e-30)] for x, y in zip(a, b, strict=True)]
    for column, want in zip(got, zip(*one, strict=True), strict=True):
        torch.testing.assert_close(column, torch.stack(want), rtol=0, atol=0, equal_nan=True)
