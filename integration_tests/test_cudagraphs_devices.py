"""Several CUDA devices in one process: a pool for each, models on one or on both. Needs two GPUs."""

# mypy: no-warn-return-any

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import torchjit
from torchjit_core.events import listen

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs"),
]


def close(got: Any, want: Any) -> None:
    torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-4)


def block(device: str, width: int = 64) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width)).to(device)


class OverTwo(nn.Module):
    """The first half on one device, the second on another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = block("cuda:0"), block("cuda:1")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).sin()
        return self.second(y.to("cuda:1")).tanh()


@pytest.mark.parametrize("current", [0, 1])
def test_a_function_of_either_device(current: int) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax((x @ w).sin().cos(), -1).sum(0) + x.mean()

    compiled = torchjit.compile(f, mode="reduce-overhead")
    captured: list[Any] = []
    with (
        torch.cuda.device(current),
        listen(lambda kind, _: captured.append(kind) if kind == "cudagraph_captured" else None),
    ):
        weights = [torch.randn(64, 64, device=f"cuda:{n}") for n in range(2)]
        held = []
        for step in range(10):
            w = weights[step % 2]
            x = torch.randn(64, 64, device=w.device)
            got = compiled(x, w)
            assert got.device == w.device
            held.append((got, f(x, w)))
            for mine, want in held:
                close(mine, want)
    assert len(captured) >= 2


@pytest.mark.parametrize("current", [0, 1])
def test_training_on_either_device(current: int) -> None:
    with torch.cuda.device(current):
        for device in ("cuda:0", "cuda:1"):
            torch.manual_seed(0)
            model = block(device)
            twin = copy.deepcopy(model)
            compiled = torchjit.compile(model, mode="reduce-overhead")
            for _ in range(6):
                x = torch.randn(32, 64, device=device)
                got, want = compiled(x), twin(x)
                close(got, want)
                got.square().mean().backward()
                want.square().mean().backward()
                for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
                    close(mine.grad, theirs.grad)
                    mine.grad = theirs.grad = None
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_model_over_two_devices(mode: str) -> None:
    torch.manual_seed(0)
    model = OverTwo()
    twin = copy.deepcopy(model)
    compiled = torchjit.compile(model, mode=mode)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, twin)]
    captured: list[Any] = []
    with listen(lambda kind, fields: captured.append(fields["graph"]) if kind == "cudagraph_captured" else None):
        for _ in range(8):
            x = torch.randn(32, 64, device="cuda:0")
            for m, optimizer in zip((compiled, twin), optimizers, strict=True):
                m(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            with torch.no_grad():
                close(compiled(x), twin(x))
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            close(mine, theirs)
    # A part of the forward, of the backward and of inference on each device.
    assert len(set(captured)) >= (6 if mode == "reduce-overhead" else 0)


def test_reset_gives_the_memory_of_both_devices_back() -> None:
    model = OverTwo()
    x = torch.randn(32, 64, device="cuda:0")
    with torch.no_grad():
        model(x)

    def reserved() -> list[int]:
        torch.cuda.empty_cache()
        return [torch.cuda.memory_reserved(n) for n in range(2)]

    torchjit.reset()
    before = reserved()
    compiled = torchjit.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(5):
            compiled(x)
    torchjit.reset()
    after = reserved()
    assert all(b <= a for a, b in zip(before, after, strict=True)), (before, after)
