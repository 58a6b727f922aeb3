"""When DDP's all-reduces begin, beside the backward's end: eager, compiled in pieces of a bucket's size, compiled whole.

    python benchmarks/ddp_overlap.py [--ranks 2] [--layers 8] [--width 512] [--steps 8] [--bucket-mb 8]

Ranks are processes over gloo, with one thread each. A communication hook notes when a bucket is given to the all-reduce. Printed per
step: milliseconds from the backward's begin to the first all-reduce, to the end of what is computed, to the end of `backward()`.
"""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import argparse
import functools
import os
import statistics
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torchjit


def model_of(layers: int, width: int) -> nn.Module:
    """Layers with a product of `width` times `4 * width` and one back."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]
    return nn.Sequential(*parts)


def timed(model: Any, width: int, steps: int) -> list[float]:
    """Medians over the steps, the first three left out, and how many buckets there were."""
    begun: list[float] = []

    def noted(state, bucket):  # annotations that are text are refused
        begun.append(time.perf_counter())
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, noted)
    rows = []
    for step in range(steps + 3):
        x = torch.randn(256, width)
        loss = model(x).square().mean()
        dist.barrier()
        begun.clear()
        start = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        model.zero_grad()
        if step > 2:
            rows.append([begun[0] - start, begun[-1] - start, end - start])
    return [1e3 * statistics.median(column) for column in zip(*rows, strict=True)] + [len(begun)]


def rank_main(rank: int, ranks: int, store: str, layers: int, width: int, steps: int, bucket_mb: float) -> None:
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    whole = functools.partial(torchjit.compile, options={"gradient_buckets": False})
    for name, run in (("eager", lambda f: f), ("in pieces", torchjit.compile), ("whole", whole)):
        torch.manual_seed(0)
        model = DistributedDataParallel(run(model_of(layers, width)), bucket_cap_mb=bucket_mb)  # type: ignore[operator]
        first, last, end, buckets = timed(model, width, steps)
        if rank == 0:
            print(
                f"{name:10} first all-reduce {first:7.1f}  last {last:7.1f}  backward() {end:7.1f} ms, {buckets} buckets"
            )
        torchjit.reset()
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("ranks", 2), ("layers", 8), ("width", 512), ("steps", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--bucket-mb", type=float, default=8)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        given = (args.ranks, f"{folder}/store", args.layers, args.width, args.steps, args.bucket_mb)
        processes.spawn(rank_main, given, nprocs=args.ranks)


if __name__ == "__main__":
    main()
