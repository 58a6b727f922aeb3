"""First calls with fresh caches, then steady state, of the demo's models: eager, torch.compile, torchjit.

Each compiler starts in a process and a cache folder of its own, so that "first call" means what a user meets.

    uv run python benchmarks/demo_models.py [--device cuda] [--mode reduce-overhead]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from torchjit.demo.models import GPT, resnet18


def job(model: str, device: str) -> tuple[torch.nn.Module, torch.Tensor, Callable[[Any], torch.Tensor]]:
    """The module, its input and the loss of its output."""
    torch.manual_seed(0)
    if model == "resnet18":
        return resnet18().to(device), torch.randn(16, 3, 128, 128, device=device), lambda out: out.pow(2).mean()
    tokens = torch.randint(0, 1024, (8, 128), device=device)
    return GPT().to(device), tokens, lambda out: F.cross_entropy(out[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def run_one(o: argparse.Namespace) -> dict[str, float]:
    """First call and median of the rest, in this process."""
    module, inputs, loss = job(o.model, o.device)
    module.train(o.phase == "train")
    f: Any = module
    if o.compiler == "torch":
        f = torch.compile(module, mode=o.mode)
    elif o.compiler == "torchjit":
        # Imported here: the other compilers' processes must not pay for it.
        import torchjit

        f = torchjit.compile(module, mode=o.mode)

    def step() -> None:
        if o.phase == "infer":
            with torch.no_grad():
                f(inputs)
        else:
            module.zero_grad(set_to_none=True)
            loss(f(inputs)).backward()
        if o.device == "cuda":
            torch.cuda.synchronize()

    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    times = []
    for _ in range(3):
        step()
    end = time.perf_counter() + o.seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return {"first_s": first, "ms": statistics.median(times) * 1e3}


def run_fresh(o: argparse.Namespace, model: str, phase: str, compiler: str) -> dict[str, Any]:
    """`run_one` in a new process with empty cache folders."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch",
            "TRITON_CACHE_DIR": f"{folder}/triton",
            "TORCHJIT_CACHE_DIR": f"{folder}/torchjit",
            "TMPDIR": folder,
        }
        command = [sys.executable, __file__, "--one", "--model", model, "--phase", phase, "--compiler", compiler]
        command += ["--device", o.device, "--seconds", str(o.seconds)] + (["--mode", o.mode] if o.mode else [])
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1][:200]}
        result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return result


def main() -> None:
    """Print a row per model and phase."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--mode")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--models", nargs="+", default=["resnet18", "gpt"])
    parser.add_argument("--phases", nargs="+", default=["infer", "train"])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    parser.add_argument("--compiler", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.one:
        print(json.dumps(run_one(o)))
        return
    print(
        "| model | phase | eager ms | torch.compile ms (first s) | torchjit ms (first s) | vs eager | first call ratio |"
    )
    print("|---|---|---|---|---|---|---|")
    for model in o.models:
        for phase in o.phases:
            rows = {c: run_fresh(o, model, phase, c) for c in ("eager", "torch", "torchjit")}
            errors = {c: r["error"] for c, r in rows.items() if "error" in r}
            if errors:
                print(f"| {model} | {phase} | {errors} |", flush=True)
                continue
            e, t, j = rows["eager"], rows["torch"], rows["torchjit"]
            print(
                f"| {model} | {phase} | {e['ms']:.2f} | {t['ms']:.2f} ({t['first_s']:.2f}) | {j['ms']:.2f} "
                f"({j['first_s']:.2f}) | {e['ms'] / j['ms']:.2f}x | {j['first_s'] / t['first_s']:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
