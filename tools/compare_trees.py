"""Two checkouts beside each other, in turns: what a call costs, what captures take, what cold first calls take.

    git worktree add ../before COMMIT        # and build its C extensions
    uv run python tools/compare_trees.py ../before . [--rounds 5]

Each figure is measured in a process of its own per round, before and after taking turns; the least of the rounds counts, and the ratio of the two
is printed (above 1: the second is slower). Processor seconds for captures and first calls, wall microseconds for calls.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

CALLS = 20_000


def _measure() -> dict[str, float]:
    """In a process that has one of the two on its path."""
    import torch  # noqa: PLC0415  the parent needs no torch
    from torch import nn  # noqa: PLC0415

    start = time.process_time()
    import torchjit  # noqa: PLC0415

    imported = time.process_time() - start

    torch.set_num_threads(1)

    def blocks(n: int) -> Any:
        return nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(n)]).eval()

    def nothing(gm: Any, inputs: Any) -> Any:
        with torch.no_grad():
            out = gm(*inputs)
        return lambda *args: out

    found: dict[str, float] = {"import over torch": imported}
    x = torch.randn(4, 16)
    with torch.no_grad():
        for n in (1, 12, 80):
            model = blocks(n)
            start = time.process_time()
            fast = torchjit.compile(model, backend=nothing)
            fast(x)
            found[f"first capture, {n} blocks" if n == 1 else f"capture, {n} blocks"] = time.process_time() - start
            best = float("inf")
            for _ in range(7):
                start = time.perf_counter()
                for _ in range(CALLS // n):
                    fast(x)
                best = min(best, (time.perf_counter() - start) / (CALLS // n))
            found[f"call, {n} blocks"] = best
        again = float("inf")
        for _ in range(4):
            model = blocks(24)
            start = time.process_time()
            torchjit.compile(model, backend=nothing, options=None, isolate_recompiles=True)(x)
            again = min(again, time.process_time() - start)
        found["capture, 24 blocks, warm"] = again
    x = torch.randn(64, 64)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)) for _ in range(4)])
    start = time.process_time()
    fast = torchjit.compile(model)
    fast(x).sum().backward()
    found["cold first call, training, 4 blocks"] = time.process_time() - start
    # What an import does not load any more, a first call does: of interest is the sum.
    found["import and cold first call"] = imported + found["cold first call, training, 4 blocks"]
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(200):
            fast(x).sum().backward()
        best = min(best, (time.perf_counter() - start) / 200)
    found["training step, 4 blocks"] = best
    return found


def _run(tree: Path) -> dict[str, float]:
    paths = [str(p) for p in sorted((tree / "packages").glob("*/src"))]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHJIT_CACHE_DIR": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / "compare-trees-bytecode")
        environment["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, __file__, "--one"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, help="the checkout before, the checkout after")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(_measure()))
        return 0
    before, after = (tree.resolve() for tree in given.trees)
    _run(before), _run(after)  # writes bytecode
    rounds = [(_run(before), _run(after)) for _ in range(given.rounds)]
    for name in rounds[0][0]:
        old, new = (min(one[k][name] for one in rounds) for k in (0, 1))
        print(f"{name:40} {old * 1e6:12.2f} us {new * 1e6:12.2f} us   {new / old:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
