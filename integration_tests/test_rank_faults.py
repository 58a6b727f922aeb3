"""Ranks that differ, fail or die: collectives stay those of eager PyTorch, and nobody waits for the one that is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

PROGRAM = Path(__file__).with_name("faulty_ranks.py")


@pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")
def test_ranks_that_differ_and_one_that_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(tmp_path / "store"), str(tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**environment, "RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        ends = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    told = [[json.loads(line) for line in out.splitlines()] for out, _ in ends]
    errors = "\n\n".join(error[-3000:] for _, error in ends)
    assert all(len([line for line in each if "done" in line]) == 4 for each in told), (told, errors)
    assert [rank.returncode for rank in ranks] == [3, -signal.SIGKILL], (told, errors)
    assert "ended" in told[0][-1], (told, errors)
