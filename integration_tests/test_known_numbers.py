"""Numbers that a module keeps as buffers, where Python needs them: sizes, branches, loops."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchjit


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 3)
        self.register_buffer("stride", torch.tensor(2), persistent=False)
        self.register_buffer("total", torch.tensor(5, dtype=torch.int64), persistent=False)
        self.register_buffer("causal", torch.tensor(True))
        self.register_buffer("scale", torch.tensor(1.5))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        length = x.shape[-1]
        frames = torch.ceil((length - 3 + self.total) / self.stride + 1).to(torch.int64) - 1
        extra = frames * self.stride + 3 - self.total - length
        left = self.total - self.total // 2
        if self.causal and max(left, extra) > 0:
            x = F.pad(x, (left, extra))
        if length > left:
            x = x * self.scale
        return self.conv(x) + int(self.stride) + self.total.item(), extra, max(left, 1), min(1, left)


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        if self.count == 0:
            x = x + 1
        self.count += 1
        return x * int(self.count)


def breaks_of(compiled):
    return [b for s in compiled.compiled.specializations for b in s.breaks]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_numbers_of_buffers(backend):
    module = Padded()
    compiled = torchjit.compile(module.forward, backend=backend, fullgraph=True, dynamic=False)
    for n in (12, 12, 13):
        x = torch.randn(1, 2, n)
        torch.testing.assert_close(compiled(x), module(x))
    module.stride.fill_(3)
    torch.testing.assert_close(compiled(x), module(x))
    module.causal = torch.tensor(False)
    torch.testing.assert_close(torchjit.compile(module.forward, backend=backend)(x), module(x))


def test_a_number_that_changes():
    plain, module = Counted(), Counted()
    compiled: Any = torchjit.compile(module.forward, backend="eager")
    for _ in range(6):
        torch.testing.assert_close(compiled(torch.ones(2)), plain(torch.ones(2)))
        assert module.count == plain.count
    assert len(compiled.compiled.specializations) <= 6


def test_numbers_of_floats_and_arguments_break():
    module = Padded()
    for f in (lambda x: x * float(module.scale), lambda x, n=torch.tensor(2): x * int(n)):
        compiled = torchjit.compile(f, backend="eager")
        torch.testing.assert_close(compiled(torch.ones(2)), f(torch.ones(2)))
        assert breaks_of(compiled)
