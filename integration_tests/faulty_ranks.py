"""One rank of a program in which ranks differ, and then one dies while it compiles; `test_rank_faults.py` starts them.

    python faulty_ranks.py RANK STORE_FILE FOLDER

Prints lines of JSON: what has been done, and at last how the surviving rank ended.
"""

# mypy: allow-untyped-calls, allow-untyped-defs, no-warn-return-any

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import torchjit
from torchjit_store.folder import EntryFolder

SLOW = 0.2
"""Seconds that a look into the folder of entries takes on the slow disk."""


def tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def slow_disk() -> None:
    """Each read and write of the folder takes its time, on the second rank."""
    for name in ("read", "write"):
        plain = getattr(EntryFolder, name)

        def slowly(*args: Any, plain: Any = plain, **kwargs: Any) -> Any:
            time.sleep(SLOW)
            return plain(*args, **kwargs)

        setattr(EntryFolder, name, functools.wraps(plain)(slowly))


def losses(run: Any, sizes: list[int]) -> list[float]:
    """DDP over a model with a break, with this rank's batches."""
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x).relu()
            torchjit.graph_break()
            return self.second(x)

    model = DistributedDataParallel(run(Model()), bucket_cap_mb=0.0001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step, size in enumerate(sizes):
        torch.manual_seed(step)
        loss = model(torch.randn(size, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def exchanged(x: Tensor, w: Tensor) -> Tensor:
    """The collectives that most programs call; a compiled graph has functional ones in their place."""
    y = (x @ w).tanh()
    dist.all_reduce(y)
    rows = [torch.empty_like(y) for _ in range(2)]
    dist.all_gather(rows, y)
    total = torch.empty_like(y)
    dist.reduce_scatter(total, [r.sin() for r in rows])
    out = torch.empty_like(total)
    dist.all_to_all_single(out, total)
    dist.broadcast(out, 0)
    return out.cos() + rows[1]


def broken_here(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    """A compiler with a fault on one rank."""
    if dist.get_rank() == 1:
        raise RuntimeError("a fault of this rank's compiler")
    return gm.forward


def deadly(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    """The second rank is killed while it compiles."""
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return gm.forward


def differing(rank: int) -> None:
    """Ranks of which one compiles and the other one does not, or for other sizes, with another cache, from a slow disk."""
    sizes = [4] * 5 if rank == 0 else [4, 5, 7, 3, 6]
    compiled = functools.partial(torchjit.compile, backend="aot_eager")
    want = losses(lambda f: f, sizes)
    torch.testing.assert_close(losses(compiled, sizes), want)
    tell(done="other sizes, other cache, slow disk")
    torchjit.reset()
    torch.testing.assert_close(
        losses(lambda f: torchjit.compile(f, backend=broken_here, on_error="eager"), sizes), want
    )
    tell(done="a compiler that fails on one rank")
    torchjit.config.recompile_limit = 1
    torch.testing.assert_close(losses(functools.partial(compiled, dynamic=False), sizes), want)
    tell(done="a rank that reached its limit")
    torch.manual_seed(rank)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    mixed = torchjit.compile(exchanged, backend="aot_eager") if rank == 0 else exchanged
    torch.testing.assert_close(mixed(x, w), exchanged(x, w))
    tell(done="collectives of which one rank compiles its own")


def main() -> None:
    """Run as one rank."""
    rank, store, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    torchjit.config.store = "on"
    os.environ["TORCHJIT_CACHE_DIR"] = f"{folder}/cache{rank}"
    if rank == 1:
        slow_disk()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    differing(rank)
    os.environ["TORCHJIT_CACHE_DIR"] = f"{folder}/cache0"  # of the other one, with its leases
    try:
        losses(lambda f: torchjit.compile(f, backend=deadly), [4])
    except RuntimeError as error:
        tell(ended=str(error)[:200])
    sys.stdout.flush()
    os._exit(3)  # as a launcher ends a rank whose group is broken: no barrier at its exit


if __name__ == "__main__":
    main()
