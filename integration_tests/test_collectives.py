"""Collectives inside compiled regions and around them: ranks as processes, each compared with eager."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

PROGRAM = Path(__file__).with_name("collective_program.py")


def run_ranks(world: int, folder: Path, device: str, mode: str) -> list[dict[str, Any]]:
    """What each rank reports."""
    command = [sys.executable, str(PROGRAM)]
    # Ranks meet in a file, so that no port has to be free.
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(world), str(folder / "store"), device, mode],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(world)
    ]  # fmt: skip
    ends = []
    try:
        ends = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    failed = [errors[-3000:] for rank, (_, errors) in zip(ranks, ends, strict=True) if rank.returncode != 0]
    assert not failed, "\n\n".join(failed)
    return [json.loads(out.splitlines()[-1]) for out, _ in ends]


@pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")
def test_collectives_on_the_cpu(tmp_path: Path) -> None:
    for report in run_ranks(2, tmp_path, "cpu", "default"):
        assert report["breaks"] == 0, report
        assert report["parallel"] == {}, report


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")
def test_fifty_steps_of_two_and_four_ranks() -> None:
    """Replicas, shards, tensor and sequence parallelism, a pipeline: losses as in eager mode."""
    subprocess.run([sys.executable, str(PROGRAM.parents[1] / "tools" / "parallel_steps.py")], check=True, timeout=3600)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("world", [1, 2])
def test_collectives_of_nccl_are_replayed(world: int, tmp_path: Path) -> None:
    if torch.cuda.device_count() < world:
        pytest.skip(f"needs {world} CUDA GPUs")
    for report in run_ranks(world, tmp_path, "cuda", "reduce-overhead"):
        # Each of the four functions is recorded (more than once where results are held), forward and backward of the model too.
        assert report["breaks"] == 0, report
        assert report["captured"] >= 4 and report["in training"] >= 2, report
        assert not [line for line in report["told"] if "TJ-CG-008" in line or "TJ-CG-004" in line], report


GROUPS = """
import torch, torchjit, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

@torchjit.compile(backend="eager")
def f(x):
    return x * dist.get_world_size() + dist.get_rank()

@torchjit.compile(backend="eager")
def g(x):
    dist.all_reduce(x)
    return x * dist.get_world_size()

@torchjit.compile(backend="eager")
def h(x, src):
    y = x + 1
    dist.broadcast(y, src)
    return y if dist.get_rank() == src else -y

for rank, size in ((0, 2), (1, 4), (0, 2), (1, 2)):
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    assert f(torch.ones(2)).tolist() == [float(size + rank)] * 2, (rank, size)
    assert g(torch.ones(2)).tolist() == [float(size)] * 2, (rank, size)
    assert h(torch.ones(2), 0).tolist() == [2.0 if rank == 0 else -2.0] * 2, (rank, size)
    dist.destroy_process_group()
assert [len(c.compiled.specializations) for c in (f, g, h)] == [3, 2, 3]  # ranks with equal code share it
"""


def test_sizes_and_ranks_are_those_of_the_group_now() -> None:
    """Groups have the same name each time; what a graph took from one does not hold for the next."""
    subprocess.run([sys.executable, "-c", GROUPS], check=True, timeout=120)
