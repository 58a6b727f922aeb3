"""Views of other sizes, against eager's own."""

from __future__ import annotations

import math
import random

import torch

from torchjit_fx.eager_rules.view_strides import view_strides


def _factors(r: random.Random, n: int) -> list[int]:
    """Sizes with n elements, some of them 1."""
    sizes: list[int] = []
    while n > 1 and len(sizes) < 4:
        size = r.choice([k for k in range(2, n + 1) if n % k == 0])
        sizes.append(size)
        n //= size
    sizes.append(n)
    for _ in range(r.randrange(3)):
        sizes.insert(r.randrange(len(sizes) + 1), 1)
    return sizes


def test_views_lie_as_eagers_do() -> None:
    r = random.Random(3)
    refused = 0
    for _ in range(4000):
        sizes = [r.choice((1, 1, 2, 3, 4)) for _ in range(r.choice((0, 1, 2, 3, 4)))]
        if r.random() < 0.05 and sizes:
            sizes[r.randrange(len(sizes))] = 0
        order = r.sample(range(len(sizes)), len(sizes)) if r.random() < 0.5 else list(range(len(sizes)))
        x = torch.zeros([sizes[d] * (2 if r.random() < 0.1 else 1) for d in order]).permute(
            sorted(order, key=order.__getitem__)
        )
        x = x.permute([order.index(d) for d in range(len(sizes))]) if r.random() < 0.5 and order else x
        if x.dim() and r.random() < 0.3:
            x = x.unsqueeze(r.randrange(x.dim() + 1))
        if x.dim() and r.random() < 0.2:
            x = x.narrow(0, 0, min(1, x.shape[0])).expand(max(x.shape[0], 1) if x.shape[0] else 0, *x.shape[1:])
        if x.dim() and r.random() < 0.3:
            x = x[..., ::2]
        count = math.prod(x.shape)
        wanted = _factors(r, count) if count else [*x.shape, 2] if r.random() < 0.5 else [3, 0, 2, 1]
        try:
            want = x.view(wanted).stride()
        except RuntimeError:
            want, refused = None, refused + 1
        assert view_strides(x.shape, x.stride(), wanted) == want, (x.shape, x.stride(), wanted)
    assert 200 < refused < 2000
