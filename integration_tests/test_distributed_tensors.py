"""DTensors and modules that share or shard their parameters, on a process group of one: what eager PyTorch gives, or its error."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import torchjit

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def product(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).relu().sin()


def inputs_and_gradients(run: Callable[[Run], Run], mesh: DeviceMesh) -> Any:
    x, w = (distribute_tensor(torch.randn(4, 4), mesh, [p]).requires_grad_() for p in (Replicate(), Shard(0)))
    y = run(product)(x, w)
    y.sum().backward()
    return y, x.grad, w.grad


def a_module(run: Callable[[Run], Run], mesh: DeviceMesh) -> Any:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    distribute_module(module, mesh)
    y = run(module)(distribute_tensor(torch.randn(4, 4), mesh, [Shard(0)]))
    y.sum().backward()
    return y, [p.grad.full_tensor() for p in module.parameters() if isinstance(p.grad, DTensor)]


def plain_results_that_become_distributed(run: Callable[[Run], Run], mesh: DeviceMesh) -> Any:
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    y = DTensor.from_local(run(product)(x, w), mesh, [Shard(0)])
    y.sum().backward()
    return y, x.grad, w.grad


def distributed_inside(run: Callable[[Run], Run], mesh: DeviceMesh) -> Any:
    def f(x: Tensor) -> Tensor:
        return (DTensor.from_local(x, mesh, [Replicate()]) * 2).to_local().sin()

    x = torch.randn(4, requires_grad=True)
    y = run(f)(x)
    y.sum().backward()
    return y, x.grad


def a_distributed_tangent(run: Callable[[Run], Run], mesh: DeviceMesh) -> Any:
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    y = run(product)(x, w)
    with pytest.raises(RuntimeError, match="mixed torch.Tensor and DTensor"):
        y.backward(distribute_tensor(torch.ones(4, 4), mesh, [Replicate()]))
    return y, x.grad, w.grad


def same(a: Any, b: Any) -> None:
    if isinstance(a, (tuple, list)):
        for one, other in zip(a, b, strict=True):
            same(one, other)
        return
    assert type(a) is type(b)
    if isinstance(a, DTensor):
        assert a.placements == b.placements
        a, b = a.full_tensor(), b.full_tensor()
    assert (a is None and b is None) or torch.equal(a, b)


@pytest.mark.parametrize(
    "scenario",
    [inputs_and_gradients, a_module, plain_results_that_become_distributed, distributed_inside, a_distributed_tangent],
)
def test_equals_eager(scenario: Callable[..., Any], mesh: DeviceMesh) -> None:
    torch.manual_seed(2)
    want = scenario(lambda f: f, mesh)
    torch.manual_seed(2)
    same(want, scenario(lambda f: torchjit.compile(f, backend="aot_eager"), mesh))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).relu())


def steps(run: Callable[[Run], Run], module: torch.nn.Module) -> list[Any]:
    """Three steps of which the second adds to the gradients of the first; weights and gradients after each."""
    called, optimizer, found = run(module), torch.optim.SGD(module.parameters(), 0.1), []
    for k in range(3):
        loss = called(torch.randn(3, 4)).square().mean()
        loss.backward()
        gradients = [
            p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad.clone()
            for p in module.parameters()
            if p.grad is not None
        ]
        found += [loss.detach(), *gradients]
        if k != 0:
            optimizer.step()
            optimizer.zero_grad()
    return found


OPTIONS: tuple[dict[str, Any], ...] = ({}, {"find_unused_parameters": True}, {"static_graph": True})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_replicated_parameters(options: dict[str, Any], mesh: DeviceMesh) -> None:
    """`DistributedDataParallel`: what it does before and after its module is left to Python, the module is one graph."""
    torch.manual_seed(0)
    twins = [DistributedDataParallel(copy.deepcopy(m), **options) for m in [torch.nn.Sequential(Block(), Block())] * 2]
    torch.manual_seed(1)
    want = steps(lambda f: f, twins[0])
    torch.manual_seed(1)
    torch.testing.assert_close(steps(torchjit.compile, twins[1]), want)
    told = torchjit.explain(twins[1])(torch.randn(3, 4))
    assert (len(told.graphs), len(told.breaks)) == (1, 0)


def test_sharded_parameters(mesh: DeviceMesh) -> None:
    """`fully_shard`: its hooks gather and free the parameters between graphs."""

    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        made = torch.nn.Sequential(Block(), Block())
        for block in made:
            fully_shard(block, mesh=mesh)
        return fully_shard(made, mesh=mesh)

    torch.manual_seed(1)
    want = steps(lambda f: f, model())
    torch.manual_seed(1)
    torch.testing.assert_close(steps(torchjit.compile, model()), want)
