"""Random numbers on one CPU thread: drawn as eager does, computed in the kernels (`fallback_random=False`), and torch.compile's.

    python benchmarks/cpu_random.py [--rounds 12]

Processor time of one thread, the minimum of interleaved runs, 1,048,576 floats.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import torchjit

PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.1) * 2,
    "rand_like": lambda x: torch.rand_like(x) * x,
    "randn_like": lambda x: torch.randn_like(x) * x,
    "bernoulli": lambda x: torch.bernoulli(x, 0.3) * x,
}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    x = torch.randn(1024, 1024)
    print("| program | eager ms | torchjit ms | torchjit, in the kernel ms | torch.compile ms |\n|---|---|---|---|---|")
    for name, fn in PROGRAMS.items():
        torch._dynamo.reset()
        calls: list[Callable[..., Any]] = [fn, torchjit.compile(fn)]
        calls += [torchjit.compile(fn, options={"fallback_random": False}), torch.compile(fn)]
        best = [math.inf] * len(calls)
        with torch.no_grad():
            for k in range(rounds):
                for which, call in enumerate(calls):
                    start = time.thread_time()
                    call(x)
                    best[which] = min(best[which], time.thread_time() - start if k else math.inf)
        print(f"| {name} | {' | '.join(f'{seconds * 1e3:.2f}' for seconds in best)} |", flush=True)


if __name__ == "__main__":
    main()
