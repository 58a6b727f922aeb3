"""Strides of elementwise results, against eager's own kernels."""

from __future__ import annotations

import random

import torch

from torchjit_fx.eager_rules.elementwise_strides import dense_strides, elementwise_strides


def _operand(r: random.Random, shape: list[int]) -> torch.Tensor:
    """A tensor that broadcasts to a shape: in any order of dimensions, with gaps, expanded, in a memory format, with fewer dimensions."""
    sizes = [1 if r.random() < 0.15 else n for n in shape]
    if r.random() < 0.15:
        sizes = sizes[r.randrange(len(sizes)) :]
    order = r.sample(range(len(sizes)), len(sizes)) if r.random() < 0.7 else list(range(len(sizes)))
    inverse = sorted(range(len(sizes)), key=order.__getitem__)
    t = torch.zeros([sizes[d] for d in order]).permute(inverse)
    kind = r.random()
    if kind < 0.15:
        t = torch.stack([t, t], -1)[..., 0]
    elif kind < 0.3:
        dim = r.randrange(len(sizes))
        t = t.narrow(dim, 0, 1).expand(sizes)
    elif kind < 0.4 and len(sizes) == 4:
        t = t.contiguous(memory_format=torch.channels_last)
    return t


def test_elementwise_results_lie_as_eagers_do() -> None:
    r = random.Random(7)
    for _ in range(3000):
        shape = [r.choice((1, 2, 3, 4)) for _ in range(r.choice((2, 2, 3, 4, 5)))]
        operands = [_operand(r, shape) for _ in range(r.choice((1, 2, 3)))]
        if r.random() < 0.3:
            operands = [operands[0]] * len(operands)
        a, *others = operands
        if others and r.random() < 0.2:
            want = a * 2
            operands = [a, None]  # type: ignore[list-item]
        else:
            want = (torch.neg, torch.mul, torch.addcmul)[len(others)](*operands)
        said = [None if t is None else (tuple(t.shape), t.stride()) for t in operands]
        assert elementwise_strides(operands, want.shape) == want.stride(), said
        assert dense_strides(a) == torch.empty_like(a).stride(), said[:1]
