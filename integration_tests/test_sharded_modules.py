"""Compiled modules under `fully_shard` and `DistributedDataParallel`, in one process: graphs begin behind the hooks, and values are eager's."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import torchjit
from torchjit_core.events import listen

Run = Callable[[Any], Any]


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def shard(module: Any, **kinds: Any) -> Any:
    """On the CPU, also where there is a GPU, to which `fully_shard` moves modules if it is not told otherwise."""
    return fully_shard(module, mesh=init_device_mesh("cpu", (1,)), **kinds)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return x + scale * self.down(torch.relu(self.up(self.norm(x))))


class Checkpointing(Block):
    """As transformers' layers: `__call__` is the program's."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(super().__call__, *args, use_reentrant=False, **kwargs)


class Model(nn.Module):
    def __init__(self, layers: int = 3, block: type[Block] = Block) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(block() for _ in range(layers)), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, scale=0.5)
        return self.head(x)


def per_block(run: Run, **kinds: Any) -> Any:
    model = Model(**kinds)
    for i, block in enumerate(model.layers):
        model.layers[i] = shard(run(block))
    return shard(model)


def in_mixed_precision(run: Run) -> Any:
    model, policy = Model(), MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for i, block in enumerate(model.layers):
        model.layers[i] = shard(run(block), mp_policy=policy, reshard_after_forward=False)
    return shard(model, mp_policy=policy)


def compiled_behind(run: Run) -> Any:
    """Methods of FSDP are those of the compiled module, too; the model around finds that it is sharded."""
    model = Model()
    for i, block in enumerate(model.layers):
        model.layers[i] = run(shard(block))
        model.layers[i].set_reshard_after_forward(False)
        assert isinstance(model.layers[i], FSDPModule)
    return shard(model)


def checkpointed(run: Run) -> Any:
    return per_block(run, block=Checkpointing)


def as_one(run: Run) -> Any:
    """Hooks of a group of modules look for the modules that they were given."""
    model = Model(layers=2)
    model.layers = nn.ModuleList(run(block) for block in model.layers)
    shard(list(model.layers))
    return shard(model)


def around(run: Run) -> Any:
    return run(per_block(lambda block: block))


def around_many(run: Run) -> Any:
    return run(per_block(lambda block: block, layers=10))


def in_place(run: Run) -> Any:
    """`module.compile()` before blocks are sharded, as trainers do it."""
    model = Model()
    for block in model.layers:
        compile_in_place(run, block)
        shard(block)
    return shard(model)


def in_place_behind(run: Run) -> Any:
    """... and after."""
    model = Model()
    for block in model.layers:
        compile_in_place(run, shard(block))
    return shard(model)


def replicated_in_place(run: Run) -> Any:
    model = DistributedDataParallel(Model(), bucket_cap_mb=0.001)
    compile_in_place(run, model)
    return model


def compile_in_place(run: Run, module: nn.Module) -> None:
    """What `module.compile()` does while `torch.compile` is torchjit's."""
    if (compiled := run(module._call_impl)) != module._call_impl:
        module._compiled_call_impl = compiled


def replicated(run: Run) -> Any:
    return run(DistributedDataParallel(Model(), bucket_cap_mb=0.001))


def replicated_inside(run: Run) -> Any:
    return DistributedDataParallel(run(Model()), bucket_cap_mb=0.001)


def losses(build: Callable[[Run], Any], run: Run) -> list[float]:
    torch.manual_seed(0)
    model = build(run)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    found = []
    for step in range(3):
        x = torch.linspace(-1, 1 + step, 32).reshape(4, 8)
        loss = (model(x) - x.sin()).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


@pytest.mark.parametrize(
    ("build", "graphs", "breaks"),
    [
        (per_block, 2, 0),  # of the first block, whose input needs no gradient, and of all others
        (in_mixed_precision, 2, 0),
        (compiled_behind, 2, 0),
        (checkpointed, 2, 0),
        (as_one, 2, 0),
        (in_place, 2, 0),
        (in_place_behind, 2, 0),
        (around, 3, 2),  # the head has one, too; the rest of the loop is found again behind each block
        (around_many, 3, 2),
        (replicated, 1, 0),
        (replicated_inside, 1, 0),
        (replicated_in_place, 1, 0),
    ],
)
def test_graphs_begin_behind_the_hooks(build: Callable[[Run], Any], graphs: int, breaks: int) -> None:
    counts: Counter[str] = Counter()

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if fields.get("stage", "captured") == "captured":
            counts[kind] += 1

    want = losses(build, lambda module: module)
    try:
        with listen(hear):
            got = losses(build, lambda module: torchjit.compile(module, backend="aot_eager", fullgraph=not breaks))
    finally:
        torchjit.reset()
    torch.testing.assert_close(got, want)
    assert (counts["graph"], counts["graph_break"], counts["fallback"]) == (graphs, breaks, 0)


def test_hooks_of_the_program_run_around_a_sharded_block() -> None:
    seen: list[Any] = []
    block = shard(torchjit.compile(Block(), backend="aot_eager"))
    block.register_forward_hook(lambda module, args, out: seen.append((module, out.shape)))
    block(torch.ones(2, 8))
    assert seen == [(block, torch.Size([2, 8]))]
    torchjit.reset()


def test_what_a_module_was_compiled_to_before_it_was_sharded_is_left() -> None:
    """An evaluation before, with hooks of the program, which are given the module itself."""
    block, seen = Block(), []
    block.register_forward_hook(lambda module, args, out: seen.append(module))
    with torchjit.replace_torch_compile():
        block.compile(backend="aot_eager")
    x = torch.ones(2, 8)
    before = block(x)
    shard(block)
    for _ in range(3):
        torch.testing.assert_close(block(x), before)
    found = torchjit.compiler.compilation_of(block._compiled_call_impl)  # type: ignore[attr-defined]
    assert found is not None and [site.region.code.co_name for site in found.sites] == ["forward"]
    assert torchjit.is_compiled(block) and all(module is block for module in seen) and len(seen) == 4
    torchjit.reset()
    torch.testing.assert_close(block(x), before)
