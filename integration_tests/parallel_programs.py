"""Models over several processes, as their libraries' examples write them; `collective_program.py` runs them compiled and not.

    python integration_tests/parallel_programs.py RANK WORLD STORE_FILE STEPS [BACKEND COMPILER]

is one rank of a longer run, see `tools/parallel_steps.py`. Prints one line of JSON: the kinds that went wrong, and how.
"""

# mypy: allow-untyped-calls, allow-untyped-defs, no-warn-return-any

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import torchjit
from torchjit_core.events import listen

__all__ = ["parallel"]

Compile = Callable[[Any], Any]
Kind = Callable[[Compile, DeviceMesh], Any]
STEPS = 6
BUCKET = 0.001
"""Megabytes: of these small models a few parameters."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class WithABuffer(nn.Sequential):
    """Its statistics are broadcast before each step."""

    def __init__(self) -> None:
        super().__init__(Block(), nn.BatchNorm1d(8), Block())


def blocks() -> nn.Sequential:
    return nn.Sequential(Block(), Block())


# ---------------------------------------------------------------------------------------------------- replicas


def replicas_of_compiled(run: Compile, mesh: DeviceMesh) -> Any:
    return DistributedDataParallel(run(WithABuffer()), bucket_cap_mb=BUCKET)


def compiled_replicas(run: Compile, mesh: DeviceMesh) -> Any:
    return run(DistributedDataParallel(WithABuffer(), bucket_cap_mb=BUCKET))


class EveryOther(nn.Module):
    """Ranks use different parameters in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.even, self.odd = Block(), Block(), Block()
        self.calls = dist.get_rank()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = self.both(x)
        return self.even(x) if self.calls % 2 == 0 else self.odd(x)


def unused_parameters(run: Compile, mesh: DeviceMesh) -> Any:
    return DistributedDataParallel(run(EveryOther()), bucket_cap_mb=BUCKET, find_unused_parameters=True)


def compressed_gradients(run: Compile, mesh: DeviceMesh) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook  # noqa: PLC0415  heavy

    model = DistributedDataParallel(run(blocks()), bucket_cap_mb=BUCKET, static_graph=True)
    model.register_comm_hook(None, fp16_compress_hook)
    return model


# ------------------------------------------------------------------------------------------------- sharded parameters


def sharded_blocks(run: Compile, mesh: DeviceMesh) -> Any:
    model = blocks()
    for i, block in enumerate(model):
        model[i] = fully_shard(run(block), mesh=mesh)
    return fully_shard(model, mesh=mesh)


def compiled_around_shards(run: Compile, mesh: DeviceMesh) -> Any:
    model = blocks()
    for block in model:
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    return run(fully_shard(model, mesh=mesh))


def sharded_in_place(run: Compile, mesh: DeviceMesh) -> Any:
    """As `block.compile()` while `torch.compile` is torchjit's."""
    model = blocks()
    for block in model:
        if (compiled := run(block._call_impl)) != block._call_impl:
            block._compiled_call_impl = compiled
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Checkpointed(Block):
    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


def sharded_in_mixed_precision(run: Compile, mesh: DeviceMesh) -> Any:
    """With a checkpoint in each block."""
    model = nn.Sequential(Checkpointed(), Checkpointed())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for i, block in enumerate(model):
        model[i] = fully_shard(run(block), mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def sharded_with_compiled_step(run: Compile, mesh: DeviceMesh) -> Any:
    """The clipping, by a norm over all ranks, and the optimizer's step are compiled."""
    model = sharded_blocks(run, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    return Trained(model, run(step), optimizer)


# ------------------------------------------------------------------------------------------------- sharded computation


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

    return Trained(run(forward), owner=layer)


def pipeline_parallel(run: Compile, mesh: DeviceMesh) -> Any:
    """Each rank has a stage, compiled on its own. The last one has the loss."""
    rank, world = mesh.get_rank(), mesh.size()
    stage = [Block() for _ in range(world)][rank]
    compiled = PipelineStage(run(stage), rank, world, next(stage.parameters()).device)
    return Trained(ScheduleGPipe(compiled, 2, loss_fn=lambda y, x: (y - x.sin()).square().mean()), owner=stage)


# ------------------------------------------------------------------------------------------------------ how they train


class Trained:
    """A model with what trains it.

    Args:
        model: takes an input; a schedule of a pipeline, which does a forward and backward.
        step: what is called behind the backward; by default the optimizer's step.
        optimizer: of the owner's parameters; by default SGD.
        owner: of the parameters, if not the model.
    """

    def __init__(self, model: Any, step: Any = None, optimizer: Any = None, owner: Any = None) -> None:
        parameters = (model if owner is None else owner).parameters()
        self.optimizer = optimizer or torch.optim.SGD(parameters, lr=0.05, momentum=0.9, foreach=False)
        self.model, self.step = model, step or self.optimizer.step

    def train(self, x: Tensor) -> float:
        """One step; its loss."""
        if isinstance(self.model, ScheduleGPipe):
            losses: list[Tensor] = []
            first, last = dist.get_rank() == 0, dist.get_rank() == dist.get_world_size() - 1
            self.model.step(*([x] if first else []), target=x if last else None, losses=losses)
            loss = sum(losses, torch.zeros(()))
        else:
            loss = (self.model(x) - x.sin()).square().mean()
            loss.backward()
        self.step()
        self.optimizer.zero_grad()
        return loss.item()


KINDS: dict[Kind, tuple[int, int] | None] = {
    replicas_of_compiled: (1, 0),
    compiled_replicas: (1, 0),
    unused_parameters: None,
    compressed_gradients: (1, 0),
    sharded_blocks: (2, 0),  # of equal blocks, the first of which is given what needs no gradient
    compiled_around_shards: (2, 2),
    sharded_in_place: (2, 0),
    sharded_in_mixed_precision: (2, 0),
    sharded_with_compiled_step: None,
    tensor_parallel: (1, 0),
    sequence_parallel: (1, 0),
    converted_inside: (1, 0),
    pipeline_parallel: None,  # torch 2.11 calls a stage once more, to know shapes
}
"""How many graphs and breaks there are, where the whole is one graph."""


def losses(kind: Kind, run: Compile, mesh: DeviceMesh, steps: int = STEPS) -> list[float]:
    torch.manual_seed(0)
    device = torch.device(mesh.device_type)
    with device:
        made = kind(run, mesh)
    trained = made if isinstance(made, Trained) else Trained(made)
    found = []
    for step in range(steps):
        torch.manual_seed(step if "parallel" in kind.__name__ else mesh.size() * step + mesh.get_rank())
        found.append(trained.train(torch.randn(4, 8, device=device)))
    return found


def tolerance(kind: Kind, compiler: str) -> float:
    """Kernels of a compiler round bfloat16 and half precision elsewhere than eager operators do."""
    narrow = kind in (compressed_gradients, sharded_in_mixed_precision)
    return 2e-2 if narrow and compiler != "aot_eager" else 1e-4


def parallel(steps: int = STEPS, device: str = "cpu", compiler: str = "aot_eager") -> dict[str, Any]:
    """Each kind for some steps, compiled and not; the kinds whose losses or graphs are not as they should be, and how."""
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    wrong: dict[str, Any] = {}
    for kind, expected in KINDS.items():
        told: list[str] = []
        counts = {"graph": 0, "graph_break": 0, "recompile": 0}

        def hear(event: str, fields: dict[str, Any], counts: Any = counts, told: Any = told) -> None:
            if event in counts and fields.get("stage", "captured") == "captured":
                counts[event] += 1
            if event in ("graph_break", "fallback"):
                told.append(f"{fields['reason']}: {fields['detail']}")

        want = losses(kind, lambda f: f, mesh, steps)
        with listen(hear):
            got = losses(kind, lambda f: torchjit.compile(f, backend=compiler), mesh, steps)
        close = torch.allclose(torch.tensor(got), torch.tensor(want), rtol=tolerance(kind, compiler), atol=1e-6)
        as_expected = expected in (None, (counts["graph"], counts["graph_break"]))
        if not close or not as_expected or any("fallback" in line for line in told):
            wrong[kind.__name__] = [counts, told[:4], want[-3:], got[-3:]]
        torchjit.reset()
    return wrong


def main() -> None:
    """Run as one rank."""
    rank, world, store, steps = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    backend, compiler = sys.argv[5:7] or ("gloo", "aot_eager")
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world)
    wrong = parallel(steps, "cuda" if backend == "nccl" else "cpu", compiler)
    dist.destroy_process_group()
    print(json.dumps({"kinds": [kind.__name__ for kind in KINDS], "wrong": wrong}))


if __name__ == "__main__":
    main()
