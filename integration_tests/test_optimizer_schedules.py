"""Learning rates and step counters that change are inputs: a schedule never compiles an optimizer again and again."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, OneCycleLR, StepLR

import torchjit

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "fused adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True, fused=True),
    "fused adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "fused adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.01, fused=True),
}
SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], LRScheduler]] = {
    "lambda": lambda o: LambdaLR(o, lambda step: 0.9**step),
    "step": lambda o: StepLR(o, 2),
    "cosine": lambda o: CosineAnnealingLR(o, 8),
    "one cycle": lambda o: OneCycleLR(  # moves momentum or betas, too
        o, max_lr=0.2, total_steps=12, cycle_momentum=type(o) is not torch.optim.Adagrad
    ),
}


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """In float32 rounding would hide a rate that is a little stale."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def data(step: int) -> torch.Tensor:
    return torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4) * (step + 1)


def loss_of(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x).pow(2).mean()


def train(
    net: nn.Module, optimizer: torch.optim.Optimizer, schedule: LRScheduler, step: Callable[[], Any]
) -> list[Any]:
    losses = []
    for n in range(8):
        optimizer.zero_grad()
        loss = loss_of(net, data(n))
        loss.backward()
        step()
        schedule.step()
        losses.append(loss.detach())
    return losses


def equal(a: nn.Module, b: nn.Module) -> None:
    for left, right in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-12)


def regions(fast: Any) -> list[int]:
    return [len(site.specializations) for site in fast.compiled.sites]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_compiled_step_follows_the_schedule(optimizer: str, schedule: str) -> None:
    nets = model(), model()
    optimizers = [OPTIMIZERS[optimizer](net.parameters()) for net in nets]
    schedules = [SCHEDULES[schedule](o) for o in optimizers]
    want = train(nets[0], optimizers[0], schedules[0], optimizers[0].step)
    fast: Any = torchjit.compile(optimizers[1].step, backend="aot_eager", on_error="raise")
    got = train(nets[1], optimizers[1], schedules[1], fast)
    torch.testing.assert_close(got, want)
    equal(*nets)
    # the state's first step, the constant rate, the rate (and the counter) as inputs
    assert max(regions(fast)) <= 3, fast.compiled.stats


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_training_step_follows_the_schedule(optimizer: str, backend: str) -> None:
    def run(compiled: bool) -> tuple[nn.Module, Any]:
        net = model()
        o = OPTIMIZERS[optimizer](net.parameters())
        schedule = SCHEDULES["one cycle"](o)

        def step(x: torch.Tensor) -> torch.Tensor:
            o.zero_grad()
            loss = loss_of(net, x)
            loss.backward()
            o.step()
            return loss

        fast = torchjit.compile(step, backend=backend, on_error="raise") if compiled else step
        for n in range(8):
            fast(data(n))
            schedule.step()
        return net, fast

    (want, _), (got, fast) = run(False), run(True)
    equal(want, got)
    assert max(regions(fast)) <= 3, fast.compiled.stats


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "ASGD", "SGD"])
@pytest.mark.parametrize("foreach", [None, False, True])
def test_a_warm_up_that_begins_with_a_rate_of_zero(name: str, foreach: bool | None) -> None:
    """The rows of an embedding that no token used have gradients and averages of 0: 0 / 0 must not come out."""
    tables = []
    for compiled in (False, True):
        torch.manual_seed(0)
        table = nn.Embedding(4, 2)
        optimizer = getattr(torch.optim, name)(table.parameters(), lr=0.01, foreach=foreach)
        schedule = LambdaLR(optimizer, lambda step: min(1.0, step / 2))

        def step(rows: torch.Tensor) -> None:
            table(rows).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        once = torchjit.compile(step) if compiled else step
        for _ in range(3):
            once(torch.tensor([0, 2]))
            schedule.step()
        tables.append(table.weight.detach())
    torch.testing.assert_close(tables[1], tables[0], rtol=1e-6, atol=1e-9)


def test_a_fused_optimizer_with_a_scaler_is_called_between_graphs() -> None:
    nets = model().float(), model().float()
    for net, compiled in zip(nets, (False, True), strict=True):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def step(x: torch.Tensor) -> None:
            scaler.scale(loss_of(net, x)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

        once = torchjit.compile(step, on_error="raise") if compiled else step
        for n in range(4):
            once(data(n).float())
    torch.testing.assert_close(list(nets[1].parameters()), list(nets[0].parameters()))
