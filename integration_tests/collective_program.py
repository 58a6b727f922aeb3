"""One rank of a program with collectives, compiled and compared with eager; `test_collectives.py` starts the ranks.

    python collective_program.py RANK WORLD STORE_FILE cpu|cuda MODE

Prints one line of JSON: what was captured and what was told, for the test to judge.
"""

# mypy: no-warn-return-any

from __future__ import annotations

import copy
import json
import sys
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from parallel_programs import parallel
from torch import nn
from torch.distributed import _functional_collectives
from torch.nn.parallel import DistributedDataParallel

import torchjit
from torchjit_core.events import listen

functional: Any = _functional_collectives


def reduced(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A tensor-parallel product: the sum over ranks in the middle of a region."""
    y = torch.relu(x @ w).sin()
    y = functional.all_reduce(y, "sum", dist.group.WORLD)
    return (y.tanh() @ w).cos() + y


def gathered(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Rows of all ranks, and each rank's part of a sum."""
    rows = functional.all_gather_tensor((x @ w).sigmoid(), 0, dist.group.WORLD)
    part = functional.reduce_scatter_tensor(rows.exp(), "sum", 0, dist.group.WORLD)
    return part.sin() @ w + rows.mean()


def in_place(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The collectives that most programs call: they write to their argument."""
    y = (x @ w).tanh()
    dist.all_reduce(y)
    z = torch.empty_like(y)
    z.copy_(y.sin())
    dist.broadcast(z, 0)
    return (z * y).cos() @ w


def moved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Columns of all ranks, parts that ranks exchange, a rank's root, and a result that nobody reads."""
    world, rank = dist.get_world_size(), dist.get_rank()
    columns = functional.all_gather_tensor((x @ w).sin(), 1, dist.group.WORLD)
    part = functional.reduce_scatter_tensor(columns.cos(), "max", 1, dist.group.WORLD)
    functional.wait_tensor(functional.all_reduce(part.exp(), "sum", dist.group.WORLD))  # nobody reads it
    swapped = functional.all_to_all_single(part, None, None, dist.group.WORLD)
    rows = [torch.empty_like(swapped) for _ in range(world)]
    dist.all_gather(rows, swapped)
    total = torch.empty_like(swapped)
    parts = [r * (rank + 1) for r in rows]
    if x.is_cuda:
        dist.reduce_scatter(total, parts)
    else:  # a list is left to gloo
        dist.reduce_scatter_tensor(total, torch.cat(parts))
    out = torch.empty_like(total)
    dist.all_to_all_single(out, total)
    return functional.broadcast(out, world - 1, dist.group.WORLD).tanh() + rows[world - 1]


def steps(device: torch.device, mode: str, rank: int) -> None:
    """Each function eight times, with new inputs and weights updated between calls."""
    for f in (reduced, gathered, in_place, moved):
        torch.manual_seed(rank)
        compiled = torchjit.compile(f, mode=mode)
        w = torch.randn(64, 64, device=device) * 0.1
        held = []
        for step in range(8):
            x = torch.randn(32, 64, device=device)
            with torch.no_grad():
                got, want = compiled(x, w), f(x, w)
                w.mul_(0.99)
            held.append((got, want))
            if step % 3 == 2:
                held.clear()
            for mine, theirs in [(got, want), *held]:
                torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def gradients(device: torch.device, mode: str, rank: int) -> None:
    """Gradients through functional collectives are those of eager."""
    for f in (reduced, gathered):
        torch.manual_seed(rank)
        compiled = torchjit.compile(f, mode=mode)
        w = torch.randn(64, 64, device=device) * 0.1
        for _ in range(4):
            x = torch.randn(32, 64, device=device)
            found = []
            for g in (compiled, f):
                leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
                torch.autograd.backward(g(*leaves).square().mean())
                found.append([leaf.grad for leaf in leaves])
            torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


def training(device: torch.device, mode: str, rank: int) -> None:
    """Steps of `DistributedDataParallel` around a compiled model: hooks reduce the gradients while the backward replays."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8)).to(device)
    twin = copy.deepcopy(model)
    ids = [device.index] if device.type == "cuda" else None
    compiled = DistributedDataParallel(torchjit.compile(model, mode=mode), device_ids=ids)
    plain = DistributedDataParallel(twin, device_ids=ids)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (compiled, plain)]
    torch.manual_seed(rank + 1)
    for _ in range(8):
        x, y = torch.randn(32, 64, device=device), torch.randint(0, 8, (32,), device=device)
        losses = []
        for m, optimizer in zip((compiled, plain), optimizers, strict=True):
            loss = nn.functional.cross_entropy(m(x), y)
            torch.autograd.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-3, atol=1e-4)
    for mine, theirs in zip(compiled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def main() -> None:
    """Run as one rank."""
    rank, world, store, kind, mode = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    device = torch.device(kind, rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if kind == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world)
    kinds: Counter[str] = Counter()
    told: list[str] = []

    def hear(event: str, fields: dict[str, Any]) -> None:
        kinds[event] += 1
        if event in ("graph_break", "fallback"):
            told.append(f"{fields['reason']}: {fields['detail']}")

    with listen(hear):
        steps(device, mode, rank)
        report: dict[str, Any] = {"breaks": kinds["graph_break"]}
        gradients(device, mode, rank)
        captured = kinds["cudagraph_captured"]
        training(device, mode, rank)
    report |= {"captured": captured, "in training": kinds["cudagraph_captured"] - captured, "told": told}
    if kind == "cpu":
        report["parallel"] = parallel()
    torchjit.reset()
    dist.destroy_process_group()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
