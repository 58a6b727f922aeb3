"""Below `DistributedDataParallel` a backward gives its gradients bucket by bucket, and they are what eager PyTorch gives."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import torchjit
from torchjit_aot.autograd_nodes import delivery

Run = Callable[[Any], Any]
SMALL = 0.01
"""Megabytes of a bucket: a few parameters of the model below."""


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is computed: "piece" for each piece of a backward; tests add what else happens."""
    found: list[str] = []
    computed = delivery._computed

    def noted(*args: Any) -> Any:
        found.append("piece")
        return computed(*args)

    monkeypatch.setattr(delivery, "_computed", noted)
    return found


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.shift = nn.Parameter(torch.zeros(4 * 5 * 32))

    def forward(self, x: Tensor) -> Tensor:
        # The gradient of `shift` is a view of what the blocks before read.
        return x + self.down(torch.relu(self.up(self.norm(x)))) + self.shift[: x.numel()].view(x.shape)


class Model(nn.Module):
    """Two results, a buffer, a parameter that is used at both ends, one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(16, 32), nn.ModuleList(Block() for _ in range(3))
        self.batch_norm, self.aside = nn.BatchNorm1d(32), nn.Linear(32, 4)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        x = self.batch_norm(x.flatten(0, 1)).view(x.shape)
        return x @ self.embedding.weight.t(), self.aside(x)


def inside(run: Run, **options: Any) -> Any:
    torch.manual_seed(0)
    return DistributedDataParallel(run(Model()), bucket_cap_mb=SMALL, **options)


def outside(run: Run, **options: Any) -> Any:
    torch.manual_seed(0)
    return run(DistributedDataParallel(Model(), bucket_cap_mb=SMALL, **options))


def compiled(f: Any) -> Any:
    return torchjit.compile(f, backend="aot_eager")


def plainly(f: Any) -> Any:
    return f


def batches(count: int) -> Iterator[Tensor]:
    for k in range(count):
        torch.manual_seed(k)
        yield torch.randint(0, 16, (4, 5))


def steps(model: Any, *, aside: bool, accumulate: int = 1) -> list[Any]:
    """Losses, gradients and buffers of some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found: list[Any] = []
    for k, ids in enumerate(batches(3 * accumulate)):
        last = (k + 1) % accumulate == 0
        with contextlib.nullcontext() if last else model.no_sync():
            scores, more = model(ids)
            loss = scores.square().mean() + (more.sin().mean() if aside else 0)
            loss.backward()
        found.append(loss.detach())
        if last:
            found.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
            optimizer.step()
            optimizer.zero_grad()
    return [*found, [b.clone() for b in model.buffers()]]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {"aside": True}),
    "one result unused": ({"find_unused_parameters": True}, {"aside": False}),
    "static graph": ({"static_graph": True}, {"aside": True}),
    "views of buckets, accumulated": ({"gradient_as_bucket_view": True}, {"aside": True, "accumulate": 2}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("wrap", [inside, outside])
def test_gradients_equal_eager(case: str, wrap: Any, told: list[str]) -> None:
    options, how = CASES[case]
    want = steps(wrap(plainly, **options), **how)
    torch.testing.assert_close(steps(wrap(compiled, **options), **how), want)
    backwards = 3 * how.get("accumulate", 1)
    assert len(told) >= 3 * backwards, told


@pytest.mark.parametrize("wrap", [inside, outside])
def test_buckets_are_exchanged_while_the_backward_goes_on(wrap: Any, told: list[str]) -> None:
    """From the second step on, when DDP knows the order of gradients; the first one has all in one bucket."""
    model = wrap(compiled)

    def exchange(state, bucket):  # type: ignore[no-untyped-def]  # annotations that are text are refused
        told.append("bucket")
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model.register_comm_hook(None, exchange)
    for ids in batches(3):
        told.clear()
        sum(each.square().mean() for each in model(ids)).backward()
    pieces = told.count("piece")
    assert pieces >= 4
    # Each piece but the first has a bucket of the one before it; what is left after the last one are its own.
    assert told[: told.index("bucket")] == ["piece"], told
    assert sum(a == "bucket" and b == "piece" for a, b in zip(told, told[1:], strict=False)) >= pieces - 2, told


def test_a_step_that_is_part_of_the_backward(told: list[str]) -> None:
    """Hooks change a parameter as soon as its gradient is there: no later piece reads it."""

    def trained(run: Run) -> list[Tensor]:
        model = inside(run)
        for p in model.parameters():
            optimizer = torch.optim.SGD([p], lr=0.5)

            def step(p: Tensor, optimizer: Any = optimizer) -> None:
                optimizer.step()
                optimizer.zero_grad()

            p.register_post_accumulate_grad_hook(step)
        for ids in batches(3):
            sum(each.square().mean() for each in model(ids)).backward()
        return [p.detach() for p in model.parameters()]

    want = trained(plainly)
    torch.testing.assert_close(trained(compiled), want)
    assert len(told) >= 9


def test_other_ways_to_ask_for_gradients(told: list[str]) -> None:
    """Some inputs only, twice from one graph, with the tensors' own hooks."""

    def asked(run: Run) -> list[Any]:
        model, found = inside(run), list[Any]()
        parameters = list(model.parameters())
        (ids,) = batches(1)
        parameters[5].register_hook(lambda g: g * 2)
        loss = sum(each.square().mean() for each in model(ids))
        some = [model.module.aside.weight, model.module.blocks[1].up.weight, parameters[5]]
        found.append(torch.autograd.grad(loss, some, retain_graph=True))
        for retain in (True, False):
            torch.autograd.backward(loss, retain_graph=retain)
            found.append([p.grad.clone() for p in parameters])
        return found

    want = asked(plainly)
    torch.testing.assert_close(asked(compiled), want)
    assert told


class Recomputed(nn.Module):
    """Blocks that are compiled one by one and computed again in the backward, behind an input that is no leaf."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(run(Block()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x * 2
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def test_below_a_checkpoint_and_behind_other_operators(told: list[str]) -> None:
    def trained(run: Run) -> list[Any]:
        torch.manual_seed(0)
        model, found = DistributedDataParallel(Recomputed(run), bucket_cap_mb=SMALL), list[Any]()
        x = torch.randn(4, 5, 32, requires_grad=True)
        for _ in range(3):
            model(x).square().mean().backward()
            found.append([None if t.grad is None else t.grad.clone() for t in (x, *model.parameters())])
        return found

    want = trained(plainly)
    torch.testing.assert_close(trained(compiled), want)
    assert len(told) >= 12  # at least two for each block


def test_gradients_of_gradients_are_refused() -> None:
    model = inside(compiled)
    (ids,) = batches(1)
    loss = sum(each.square().mean() for each in model(ids))
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    want = torch.autograd.grad(
        sum(e.square().mean() for e in inside(plainly)(ids)), list(model.parameters()), allow_unused=True
    )
    assert len(want) == len(gradients)
    for gradient in gradients:
        with pytest.raises(RuntimeError, match="TJ-"):
            gradient.sum().backward(retain_graph=True)


def test_the_option_keeps_the_backward_whole(told: list[str]) -> None:
    model = inside(lambda f: torchjit.compile(f, backend="aot_eager", options={"gradient_buckets": False}))
    (ids,) = batches(1)
    sum(each.square().mean() for each in model(ids)).backward()
    assert told == []
