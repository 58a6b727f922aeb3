"""Peak memory of a step on the CPU: eager, torch.compile and torchjit, each in a process of its own.

    uv run --group models python benchmarks/cpu_memory.py [--models resnet18 gpt2] [--phases infer train] [--compilers eager torchjit]

Counted are the bytes that PyTorch's allocator gives and takes back during a step after warm-up (its own profiler reports each of
them), above what was held before: results, saved tensors, gradients, intermediates and constants that are made in the step.
Memory that oneDNN and MKL keep for themselves, and the programs, are in nobody's figure. `held` is how much more is held after
the first two steps than before them: constants and caches of the compiler, without results and gradients.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

COMPILERS = ("eager", "torch", "torchjit")
DEFAULT = ("resnet18", "mobilenet_v3_large", "convnext_tiny", "bert", "gpt2", "llama")


def memory_events(step: Callable[[], Any]) -> list[int]:
    """Bytes given (positive) and taken back (negative), in order."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        kept = step()
    inner: Any = profile.profiler
    events = [e for e in inner.kineto_results.events() if e.name() == "[memory]"]
    del kept
    return [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]


def peak(changes: list[int]) -> int:
    """The most bytes in use at once."""
    live = most = 0
    for change in changes:
        live += change
        most = max(most, live)
    return most


def measure(model: str, phase: str, compiler: str) -> dict[str, Any]:
    """One model, phase and compiler, in this process."""
    import torch

    import torchjit
    from cpu_model_list import MODELS
    from cpu_models import tensors_of

    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, kwargs = MODELS[model]()
    module.train(phase == "train")
    call = {
        "eager": lambda: module,
        "torch": lambda: torch.compile(module),
        "torchjit": lambda: torchjit.compile(module),
    }[compiler]()

    def step() -> Any:
        if phase == "infer":
            with torch.no_grad():
                return call(**kwargs)
        out = tensors_of(call(**kwargs))
        sum(t.float().pow(2).mean() for t in out if t.requires_grad).backward()
        return None

    def warm() -> None:
        for _ in range(2):
            step()
            module.zero_grad(set_to_none=True)
        gc.collect()

    held = sum(memory_events(warm)) if compiler == "torchjit" else 0
    if not held:
        warm()
    changes = memory_events(step)
    return {"model": model, "phase": phase, "compiler": compiler, "peak": peak(changes), "held": held}


def run_fresh(model: str, phase: str, compiler: str) -> dict[str, Any]:
    """`measure` in a process and cache folders of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch", "TORCHJIT_CACHE_DIR": f"{folder}/torchjit", "OMP_NUM_THREADS": "1"}  # fmt: skip
        command = [sys.executable, __file__, "--one", model, phase, compiler]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=DEFAULT)
    parser.add_argument("--phases", nargs="+", default=["infer", "train"], choices=["infer", "train"])
    parser.add_argument("--compilers", nargs="+", default=COMPILERS, choices=COMPILERS)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    print("peak MiB of a step | " + " | ".join(options.compilers) + " | held by torchjit", flush=True)
    for phase in options.phases:
        for model in options.models:
            rows = [run_fresh(model, phase, compiler) for compiler in options.compilers]
            cells = [f"{r['peak'] / 2**20:.1f}" if "peak" in r else r["error"] for r in rows]
            held = next((r["held"] for r in rows if r.get("compiler") == "torchjit"), 0)
            print(f"{model}, {phase} | {' | '.join(cells)} | {held / 2**20:.1f}", flush=True)


if __name__ == "__main__":
    main()
