"""Models over two processes, as their libraries' examples write them; `collective_program.py` runs them compiled and not."""

# mypy: allow-untyped-calls, allow-untyped-defs, no-warn-return-any

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import torchjit
from torchjit_core.events import listen

__all__ = ["parallel"]

Compile = Callable[[Any], Any]
STEPS = 20


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def blocks() -> nn.Sequential:
    return nn.Sequential(Block(), Block())


def replicas_of_compiled(run: Compile, mesh: DeviceMesh) -> Any:
    return DistributedDataParallel(run(blocks()))


def compiled_replicas(run: Compile, mesh: DeviceMesh) -> Any:
    return run(DistributedDataParallel(blocks()))


def sharded_blocks(run: Compile, mesh: DeviceMesh) -> Any:
    model = blocks()
    for i, block in enumerate(model):
        model[i] = fully_shard(run(block), mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(run: Compile, mesh: DeviceMesh) -> Any:
    model = blocks()
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})  # type: ignore[arg-type]
    return run(model)


def sequence_parallel(run: Compile, mesh: DeviceMesh) -> Any:
    """Rows are sharded between blocks: the column-parallel layer gathers them, the row-parallel one scatters its sum."""
    model = blocks()
    for block in model:
        up, down = ColwiseParallel(input_layouts=Shard(0)), RowwiseParallel(output_layouts=Shard(0))
        parallelize_module(block, mesh, {"up": up, "down": down})  # type: ignore[arg-type]
    return run(model)


def converted_inside(run: Compile, mesh: DeviceMesh) -> Any:
    """The program itself distributes and collects."""
    layer = nn.Linear(8, 8)

    def forward(x: Tensor) -> Tensor:
        whole = DTensor.from_local(layer(x), mesh, [Shard(0)], run_check=False)
        rows = whole.redistribute(placements=[Replicate()]).sin()
        return rows.redistribute(placements=[Shard(0)]).to_local() + x

    made = run(forward)
    return made, layer


KINDS: dict[Callable[[Compile, DeviceMesh], Any], tuple[int, int] | None] = {
    replicas_of_compiled: (1, 0),
    compiled_replicas: None,
    sharded_blocks: None,  # the hooks of `fully_shard` are between the graphs
    tensor_parallel: (1, 0),
    sequence_parallel: (1, 0),
    converted_inside: (1, 0),
}
"""How many graphs and breaks there are, where the whole is one graph."""


def losses(kind: Callable[[Compile, DeviceMesh], Any], run: Compile, mesh: DeviceMesh) -> list[float]:
    torch.manual_seed(0)
    made = kind(run, mesh)
    model, owner = made if isinstance(made, tuple) else (made, made)
    optimizer = torch.optim.SGD(owner.parameters(), lr=0.05, momentum=0.9)
    found = []
    for step in range(STEPS):
        torch.manual_seed(step if "parallel" in kind.__name__ else 2 * step + mesh.get_rank())
        x = torch.randn(4, 8)
        loss = (model(x) - x.sin()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def parallel() -> dict[str, Any]:
    """Each kind for some steps, compiled and not; the kinds whose losses or graphs are not as they should be, and how."""
    mesh = init_device_mesh("cpu", (2,))
    wrong: dict[str, Any] = {}
    for kind, expected in KINDS.items():
        told: list[str] = []
        counts = {"graph": 0, "graph_break": 0, "recompile": 0}

        def hear(event: str, fields: dict[str, Any], counts: Any = counts, told: Any = told) -> None:
            if event in counts and fields.get("stage", "captured") == "captured":
                counts[event] += 1
            if event in ("graph_break", "fallback"):
                told.append(f"{fields['reason']}: {fields['detail']}")

        want = losses(kind, lambda f: f, mesh)
        with listen(hear):
            got = losses(kind, lambda f: torchjit.compile(f, backend="aot_eager"), mesh)
        close = torch.allclose(torch.tensor(got), torch.tensor(want), rtol=1e-4, atol=1e-6)
        as_expected = expected in (None, (counts["graph"], counts["graph_break"]))
        if not close or not as_expected or any("fallback" in line for line in told):
            wrong[kind.__name__] = [counts, told[:4], want[-3:], got[-3:]]
        torchjit.reset()
    return wrong
