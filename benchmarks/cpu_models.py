"""Models on the CPU, thirty of libraries and thirteen of our own: eager, torch.compile and torchjit in one process per model, interleaved.

    uv run --group models python benchmarks/cpu_models.py                        # all, inference and training, one thread
    uv run --group models python benchmarks/cpu_models.py --models resnet18 bert --phases train --threads 2
    uv run --group models python benchmarks/cpu_models.py --jobs 12 --out rows.jsonl   # several models at a time
    uv run --group models python benchmarks/cpu_models.py --report rows.jsonl
    uv run --group models python benchmarks/cpu_models.py --never-slower               # with the setting on: what was kept, what trials cost

Random weights, small batches of real image sizes and sequence lengths (`cpu_model_list.py`). With one thread the times are processor time of that
thread, the minimum of interleaved steps, so that other load on the machine changes little; with more threads, wall time. `first` is the
wall time of the first step, each compiler with an empty cache folder, torch.compile first. `apart` is the largest
distance of the output (training: also of the gradients) from eager's, relative to the largest value of each tensor.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

COMPILERS = ("eager", "torch", "torchjit")


def tensors_of(value: Any) -> list[Any]:
    """The floating-point tensors of a model's output."""
    # Imported in the child only: the parent starts with its own environment.
    import torch
    from torch.utils._pytree import tree_leaves

    if hasattr(value, "to_tuple"):
        value = value.to_tuple()
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor) and t.is_floating_point()]


def distance(ours: Iterable[Any], theirs: Iterable[Any]) -> float:
    """The largest difference, relative to the largest value of the tensor it is in; infinite where one is not a number."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if b.numel():
            apart = float((a - b).abs().max()) / max(float(b.abs().max()), 1e-6)
            worst = max(worst, math.inf if math.isnan(apart) else apart)
    return worst


def measure(o: argparse.Namespace) -> dict[str, Any]:
    """One model and phase with all compilers, in this process."""
    import torch

    import torchjit
    from cpu_model_list import MODELS

    if o.never_slower:
        torchjit.config.never_slower = "on"
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    module, kwargs = MODELS[o.model]()
    training = o.phase == "train"
    module.train(training)
    # Each compiler draws numbers of its own: without dropout and stochastic depth results can be compared.
    for part in module.modules():
        for name in ("p", "drop_prob", "dropout", "attention_dropout"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    runs: dict[str, Callable[..., Any]] = {"eager": module}
    if "torch" in o.compilers:
        runs["torch"] = torch.compile(module)
    if "torchjit" in o.compilers:
        runs["torchjit"] = torchjit.compile(module)
    clock = time.thread_time if o.threads == 1 else time.perf_counter
    state = {k: v.clone() for k, v in module.state_dict().items()}

    def step(name: str) -> list[Any]:
        if not training:
            with torch.no_grad():
                return tensors_of(runs[name](**kwargs))
        module.zero_grad(set_to_none=True)
        out = tensors_of(runs[name](**kwargs))
        sum(t.float().pow(2).mean() for t in out if t.requires_grad).backward()
        return [t.detach() for t in out]

    row: dict[str, Any] = {"model": o.model, "phase": o.phase, "threads": o.threads}
    expected: list[Any] = []
    for name in list(runs):
        module.load_state_dict(state)
        start = time.perf_counter()
        try:
            out = step(name)
        except Exception as error:  # a compiler that fails is a row of the table
            row[f"{name}_error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
            del runs[name]
            continue
        row[f"{name}_first_s"] = time.perf_counter() - start
        result = [*out, *(p.grad.clone() for p in module.parameters() if training and p.grad is not None)]
        if name == "eager":
            expected = [t.clone() for t in result]
        else:
            row[f"{name}_apart"] = distance(result, expected)
    best = dict.fromkeys(runs, math.inf)
    end, rounds = time.perf_counter() + o.seconds, 0
    while rounds < (14 if o.never_slower else 4) or time.perf_counter() < end:
        for name in runs:
            start = clock()
            step(name)
            if rounds:
                best[name] = min(best[name], clock() - start)
        rounds += 1
    if o.never_slower and "torchjit" in runs:
        row |= told_of_trial(runs["torchjit"])
    return row | {f"{name}_ms": best[name] * 1e3 for name in runs} | {"rounds": rounds}


def told_of_trial(compiled: Any) -> dict[str, Any]:
    """What the trials chose, and what they cost: eager calls where compiled ones are faster, as a share of a hundred of these."""
    from torchjit_session.callables import compilation_of  # this module starts without torchjit

    found = compilation_of(compiled)
    choices = (
        [] if found is None else [c for s in found.specializations if s.trials is not None for c in s.trials.choices]
    )
    known = [choice for choice in choices if choice.compiled]
    lost = sum(len(c.eagerly) * max(c.eager - c.compiled, 0.0) for c in known)
    least = min((min(c.eager, c.compiled) for c in known), default=0.0)
    return {
        "kept": "; ".join(str(choice or "undecided") for choice in choices),
        "trials_share": lost / (100 * least) if least else 0.0,
    }


def run_fresh(o: argparse.Namespace, model: str, phase: str) -> dict[str, Any]:
    """`measure` in a process and a cache folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch",
            "TORCHJIT_CACHE_DIR": f"{folder}/torchjit",
            "TMPDIR": folder,
            "OMP_NUM_THREADS": str(o.threads),
        }
        if o.jobs > 1:
            environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        command = [sys.executable, __file__, "--one", "--models", model, "--phases", phase]
        command += ["--never-slower"] * o.never_slower
        command += ["--threads", str(o.threads), "--seconds", str(o.seconds), "--compilers", *o.compilers]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=o.timeout
            )
        except subprocess.TimeoutExpired:
            return {"model": model, "phase": phase, "threads": o.threads, "error": f"over {o.timeout:.0f} s"}
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return {"model": model, "phase": phase, "threads": o.threads, "error": last[:300]}
        result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return result


def geomean(values: list[float]) -> float:
    """1.0 for an empty list."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0


def report(rows: list[dict[str, Any]]) -> str:
    """A table per phase and number of threads, with geometric means."""
    lines = []
    for phase, threads in sorted({(r["phase"], r["threads"]) for r in rows}):
        chosen = [r for r in rows if (r["phase"], r["threads"]) == (phase, threads)]
        lines += [
            f"\n{phase}, {threads} thread{'s' * (threads > 1)}:\n",
            "| model | eager ms | torch.compile ms (first s) | torchjit ms (first s) | against eager | torch.compile / torchjit | apart |",
            "|---|---|---|---|---|---|---|",
        ]
        ratios, gains = [], []
        for r in sorted(chosen, key=lambda r: str(r["model"])):
            wrong = {k: v for k, v in r.items() if k.endswith("error")}
            if "torchjit_ms" not in r or "eager_ms" not in r:
                lines.append(f"| {r['model']} | {wrong} |")
                continue
            gains.append(r["eager_ms"] / r["torchjit_ms"])
            theirs, ratio = str(wrong.get("torch_error", "not run")), ""
            if "torch_ms" in r:
                ratios.append(r["torch_ms"] / r["torchjit_ms"])
                theirs, ratio = f"{r['torch_ms']:.2f} ({r['torch_first_s']:.1f})", f"{ratios[-1]:.2f}"
            lines.append(
                f"| {r['model']} | {r['eager_ms']:.2f} | {theirs} | {r['torchjit_ms']:.2f} ({r['torchjit_first_s']:.1f}) | "
                f"{gains[-1]:.2f} | {ratio} | {r['torchjit_apart']:.1e} |"
            )
        lines.append(f"| **geomean** | | | | {geomean(gains):.2f} | {geomean(ratios):.2f} ({len(ratios)} models) | |")
    return "\n".join(lines)


def main() -> None:
    """Run the chosen models, or report what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--phases", nargs="+", default=["infer", "train"], choices=["infer", "train"])
    parser.add_argument("--compilers", nargs="+", default=list(COMPILERS), choices=COMPILERS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long to measure a model")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds a model may take in all")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--out", type=Path, help="append JSON lines here")
    parser.add_argument("--report", type=Path, help="print the tables of these JSON lines")
    parser.add_argument("--never-slower", action="store_true", help="with torchjit.config.never_slower = 'on'")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.report:
        print(report([json.loads(line) for line in o.report.read_text().splitlines()]))
        return
    if o.one:
        o.model, o.phase = o.models[0], o.phases[0]
        print(json.dumps(measure(o)))
        return
    from cpu_model_list import MODELS

    jobs = [(model, phase) for phase in o.phases for model in o.models or MODELS]
    rows = []

    def run(job: tuple[str, str]) -> None:
        row = run_fresh(o, *job)
        rows.append(row)
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
        if o.out:
            with o.out.open("a") as file:
                file.write(json.dumps(row) + "\n")

    with ThreadPoolExecutor(o.jobs) as pool:
        list(pool.map(run, jobs))
    print(report(rows))


if __name__ == "__main__":
    main()
