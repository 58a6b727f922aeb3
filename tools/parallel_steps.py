"""Trains the programs of `integration_tests/parallel_programs.py` on several processes, compiled and not, and compares their losses.

    python tools/parallel_steps.py [--ranks 2 4] [--steps 50] [--backend gloo] [--compiler aot_eager]

With `--backend nccl` each rank has a GPU of its own. Exits 1 if any differs. Each number of ranks is a run of its own; a rank has one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[1] / "integration_tests" / "parallel_programs.py"


QUIET_LINKS = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""No multicast over NVLink, which not every machine allows."""


def own_environment(rank: int, folder: str) -> dict[str, str]:
    """With a cache for each rank: graphs that another rank has compiled would not be counted."""
    return {**QUIET_LINKS, "OMP_NUM_THREADS": "1", "RANK": str(rank), "TORCHJIT_CACHE_DIR": f"{folder}/cache{rank}"}


def run_ranks(world: int, steps: int, seconds: float, backend: str, compiler: str) -> list[dict[str, Any]]:
    """What each rank tells; its errors if one failed, which ends the others."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), str(rank), str(world), f"{folder}/store", str(steps), backend, compiler],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **own_environment(rank, folder)},
            )
            for rank in range(world)
        ]
        try:
            ends = [rank.communicate(timeout=seconds)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"ranks ended with {[rank.returncode for rank in ranks]}")
    return [json.loads(out.splitlines()[-1]) for out in ends]


def main() -> None:
    """Print a line for each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=1800, help="the most that one run may take")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    parser.add_argument("--compiler", default="aot_eager", help="the backend of torchjit.compile")
    args = parser.parse_args()
    failed = False
    for world in args.ranks:
        told = run_ranks(world, args.steps, args.seconds, args.backend, args.compiler)
        wrong = {rank: each["wrong"] for rank, each in enumerate(told) if each["wrong"]}
        kinds = ", ".join(told[0]["kinds"])
        print(f"{world} ranks, {args.steps} steps: {'equal' if not wrong else json.dumps(wrong, indent=1)} ({kinds})")
        failed |= bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
