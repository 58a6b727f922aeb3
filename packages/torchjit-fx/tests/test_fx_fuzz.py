"""Random programs of views, writes and modes: graphs against eager, with the metadata that the program could read."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchjit_core.reasons import GraphBreak
from torchjit_fx.testing import Captured, SimpleSizes

Check = Callable[..., Captured]

Operation = Callable[[Any, Any], Any]

PURE: tuple[Operation, ...] = (
    lambda x, y: x + y,
    lambda x, y: x * 2.0,
    lambda x, y: torch.where(x > 0, x, y),
    lambda x, y: x.detach(),
    lambda x, y: F.relu(x),
    lambda x, y: x.clone(),
    lambda x, y: x.sum(-1, keepdim=True).expand_as(x),
    lambda x, y: torch.cat([x, y], 0)[: x.shape[0]],
)
VIEWS: tuple[Operation, ...] = (
    lambda x, y: x.view(x.size()),
    lambda x, y: x.t(),
    lambda x, y: x.unsqueeze(0).squeeze(0),
    lambda x, y: x.transpose(0, 1).transpose(1, 0),
    lambda x, y: x[:],
    lambda x, y: x.split(x.shape[0])[0],
    lambda x, y: x.unbind(0)[0].expand(x.shape[0], x.shape[1]),
    lambda x, y: x.contiguous(),
    lambda x, y: x.reshape(x.shape),
    lambda x, y: F.dropout(x, 0.5, training=False),
    lambda x, y: x.data,
)
WRITES: tuple[Operation, ...] = (
    lambda x, y: x.mul_(0.5),
    lambda x, y: x.add_(y),
    lambda x, y: x.copy_(y),
    lambda x, y: x.zero_(),
    lambda x, y: F.relu(x, inplace=True),
    lambda x, y: (x[0].fill_(1.5), x)[1],
    lambda x, y: (x[:, 0].add_(1), x)[1],
    lambda x, y: torch.mul(y, 2, out=x) if not (x.requires_grad or y.requires_grad) else x.mul_(y),
    lambda x, y: x.__setitem__((slice(None), 0), y[:, 0]) or x,
)


class Program:
    """A program drawn from a seed; running it with proxies or tensors takes the same steps."""

    def __init__(self, seed: int, length: int = 12, ask: bool = True) -> None:
        self.seed = seed
        self.length = length
        self.ask = ask

    def __call__(self, *inputs: Any) -> Any:
        choose = random.Random(self.seed)
        pool = list(inputs)
        seen: list[Any] = []
        for _ in range(self.length):
            x, y = choose.choice(pool), choose.choice(pool)
            op = choose.choice(choose.choice((PURE, VIEWS, WRITES)))
            if choose.random() < 0.2:
                with torch.no_grad():
                    made = op(x, y)
            else:
                made = op(x, y)
            pool.append(made)
            if not self.ask:
                continue
            seen.append(
                (made is x, made.requires_grad, tuple(made.shape), made.is_contiguous(), made.stride(), made.is_leaf)
            )
        return [choose.choice(pool) for _ in range(4)], seen


def run(check: Check, seed: int, **options: Any) -> bool:
    """Check one program; False where it is refused or raises in eager."""
    torch.manual_seed(seed)
    program = Program(seed)
    weight = torch.randn(3, 3, requires_grad=True)
    args = [torch.randn(3, 3), torch.randn(3, 3), torch.randn(3, 3).t()]

    def fn(a: Any, b: Any, c: Any, w: Any) -> Any:
        return program(a, b, c, w * 1)

    try:
        # Reading is_leaf renews the history of a view, and so hides an error that eager raises without it.
        Program(seed, ask=False)(args[0].clone(), args[1].clone(), args[2].clone(), weight * 1)
        results, _ = fn(args[0].clone(), args[1].clone(), args[2].clone(), weight)
        roots = [t.sum() for t in results if t.requires_grad and t.grad_fn is not None]
        torch.autograd.backward(roots) if roots else None
    except RuntimeError:
        return False
    weight.grad = None
    try:
        check(fn, *args, weight, **options)
    except GraphBreak:
        return False
    return True


@pytest.mark.parametrize("start", range(0, 120, 30))
def test_programs(check: Check, start: int) -> None:
    assert sum(run(check, seed) for seed in range(start, start + 30)) > 5


def test_programs_with_symbolic_sizes(check: Check) -> None:
    assert sum(run(check, seed, sizes=SimpleSizes(lambda path: str(path)[2:] == "size(0)")) for seed in range(40)) > 2


@pytest.mark.slow
def test_many_programs(check: Check) -> None:
    assert sum(run(check, seed) for seed in range(1000, 4000)) > 800
