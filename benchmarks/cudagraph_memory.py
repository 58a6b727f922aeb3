"""GPU memory of `mode="reduce-overhead"`, torchjit beside torch.compile: what CUDA graphs keep, and the peaks on the way there.

    python benchmarks/cudagraph_memory.py --bench PATH/model_bench.py --models gpt2 --phase train --compilers torch torchjit

The models are those of the shared model benchmark, a file with a function for each in `ALL`. Every row is a process of its own. MiB:
`steps` is the peak of allocated memory in each of the first calls, `kept` what stays reserved after the last one when caches are
emptied (weights, gradients of the last step dropped, and the graphs' pools), `reserved` the largest amount that the process took from the device.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

CALLS = 8


def models_of(path: str) -> Any:
    """The module of the shared model benchmark."""
    spec = importlib.util.spec_from_file_location("model_bench", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["model_bench"] = module  # torch.compile looks its functions up there
    spec.loader.exec_module(module)
    return module


def measure(bench: Any, name: str, phase: str, compiler: str) -> dict[str, Any]:
    """Memory of some calls of one model."""
    torch.manual_seed(0)
    model, args, kwargs, loss_of = bench.ALL[name]()
    model.train(phase == "train")
    compile_ = bench.compiler(compiler if compiler == "eager" else f"{compiler}:reduce-overhead")
    f = compile_(model) if phase == "infer" else compile_(lambda *a, **kw: loss_of(model(*a, **kw)))
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    steps = []
    for _ in range(CALLS):
        torch.cuda.reset_peak_memory_stats()
        if phase == "infer":
            with torch.no_grad():
                f(*args, **kwargs)
        else:
            f(*args, **kwargs).backward()
            model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        steps.append(round(torch.cuda.max_memory_allocated() / 2**20))
    stats = torch.cuda.memory_stats()
    gc.collect()
    torch.cuda.empty_cache()
    kept = torch.cuda.memory_reserved() / 2**20
    return {
        "model": name,
        "phase": phase,
        "compiler": compiler,
        "steps": steps,
        "kept": round(kept),
        "reserved": round(stats["reserved_bytes.all.peak"] / 2**20),
    }


def main() -> None:
    """Print a line of JSON for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the shared model_bench.py")
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--phase", nargs="+", default=["infer", "train"], choices=["infer", "train"])
    parser.add_argument("--compilers", nargs="+", default=["torch", "torchjit"], choices=["eager", "torch", "torchjit"])
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--one", action="store_true", help="the first of each, in this process")
    options = parser.parse_args()
    if options.one:
        torch.backends.cuda.matmul.allow_tf32 = True
        row = measure(models_of(options.bench), options.models[0], options.phase[0], options.compilers[0])
        print(json.dumps(row), flush=True)
        return

    def row_of(job: tuple[str, str, str]) -> str:
        name, phase, compiler = job
        command = [sys.executable, str(Path(__file__).resolve()), "--bench", options.bench, "--one"]
        command += ["--models", name, "--phase", phase, "--compilers", compiler]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        return lines[-1] if lines and done.returncode == 0 else f"{name} {phase} {compiler}: {done.stderr[-500:]}"

    jobs = [(n, p, c) for n in options.models for p in options.phase for c in options.compilers]
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(row_of, job) for job in jobs]):
            print(done.result(), flush=True)


if __name__ == "__main__":
    main()
