"""Runs of a project, each in a fork of a process that has imported torch, and what they must agree on."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs

from .projects import Project

sys.path.append(str(Path(__file__).parents[2] / "integration_tests"))
import forked

__all__ = ["ALSO_IMPORTED", "Run", "difference", "run"]

_PROGRAM = str(Path(__file__).with_name("run_project.py"))
SECONDS = 60.0
ALSO_IMPORTED = ("torch._dynamo", "torch._higher_order_ops", "torch.fx.experimental.proxy_tensor", "torch._subclasses.schema_check_mode", "torchjit.cache",
                 "torchjit.listeners", "torchjit_report.logs", "torchjit_report.progress", "torchjit_report.remarks", "torchjit_store.torch_values",
                 "numpy", "unittest.mock", "stale_starts.known")  # fmt: skip
"""What optimizers, custom operators, `torch.cond` and a compilation import: most of what a short program takes."""


@attrs.frozen
class Run:
    """Facts by case, those of eager calls (None where there are none), counts and texts of events; `failed` where the process did not come to its end."""

    facts: dict[str, Any]
    eager: dict[str, Any] | None
    counts: dict[str, int]
    said: list[str]
    failed: str = ""

    @property
    def captured(self) -> int:
        """How many regions were captured."""
        return self.counts.get("captured", 0)


def run(project: Project, parent: Path, how: str, store: str, cases: tuple[str, ...] | None = None) -> Run:
    """Write the project and run its cases, or only these.

    Args:
        parent: where the project's folder and the cache are.
        how: as `run_project.py` has it.
        store: the value of TORCHJIT_STORE; "" leaves it alone.
    """
    folder = project.write(parent)
    environment = {
        **os.environ,
        **project.environment,
        "TORCHJIT_CACHE_DIR": str(parent / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    if store:
        environment["TORCHJIT_STORE"] = store
    command = [sys.executable, _PROGRAM, str(folder), how, *(project.cases if cases is None else cases)]
    try:
        done = forked.run(command, cwd=parent, env=environment, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        return Run({}, {}, {}, [], f"killed after {SECONDS:.0f} s\n{error.stderr}")
    if done.returncode or not done.stdout.strip():
        return Run({}, {}, {}, [], f"status {done.returncode}\n{done.stderr[-3000:]}")
    return Run(**json.loads(done.stdout.strip().splitlines()[-1]))


def difference(got: Any, want: Any, place: str = "") -> str | None:
    """The first place where facts differ, or None. Floating values may differ by rounding."""
    if isinstance(got, float) and isinstance(want, float):
        close = math.isclose(got, want, rel_tol=2e-3, abs_tol=1e-4) or (math.isnan(got) and math.isnan(want))
        return None if close else f"{place}: {got} instead of {want}"
    if isinstance(got, dict) and isinstance(want, dict) and got.keys() == want.keys():
        return next((d for k in want if (d := difference(got[k], want[k], f"{place} {k}"))), None)
    if isinstance(got, list) and isinstance(want, list) and len(got) == len(want):
        return next((d for n, (a, b) in enumerate(zip(got, want)) if (d := difference(a, b, f"{place}[{n}]"))), None)
    return (
        None if got == want and type(got) is type(want) else f"{place}: {str(got)[:300]} instead of {str(want)[:300]}"
    )
