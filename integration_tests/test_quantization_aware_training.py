"""Observers and fake quantization of `torch.ao.quantization` in compiled modules."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import torchjit

pytestmark = pytest.mark.filterwarnings("ignore")  # torch says that this library moves to torchao


@pytest.mark.parametrize("qconfig", ["x86", "qnnpack"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_the_first_step_sizes_the_observers(backend: Any, qconfig: str) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig(qconfig)
    torch.ao.quantization.prepare_qat(model.train(), inplace=True)
    twin = copy.deepcopy(model)
    fast: Any = torchjit.compile(twin, backend=backend, on_error="raise")
    for batch in torch.randn(3, 4, 8):
        expected, found = model(batch), fast(batch)
        torch.testing.assert_close(found, expected)
        expected.square().mean().backward()
        found.square().mean().backward()
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad)
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(twin.get_buffer(name), buffer)
    assert len(fast.compiled.stats.breaks) <= 1
