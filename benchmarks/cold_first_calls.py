"""Cold first calls on the CPU: what a user waits for before the first result, torch.compile beside torchjit.

Each figure is the wall time of a fresh process with empty cache folders, from `import torchjit` (or the first touch of `torch.compile`) to
the end of the first call (training: forward and backward). PyTorch and the model's library are imported before, the model
is built before, and eager runs once before, so that threads and oneDNN's own first calls are nobody's. `second` is
another new function later in the process of `pointwise`. The two compilers take turns, medians of the rounds.

    uv run --group models python benchmarks/cold_first_calls.py [--cases pointwise mlp ...] [--threads 1 2] [--rounds 3]
    uv run --group models python benchmarks/cold_first_calls.py --phases --cases gpt2     # torchjit only, by phase
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
from collections import defaultdict
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

CASES = ("pointwise", "second", "mlp", "mlp_train", "resnet18", "bert", "gpt2")


def pointwise(x: Any, y: Any) -> Any:
    """The first function."""
    return (x.sin() * y + x.sigmoid()).relu()


def another(x: Any, y: Any) -> Any:
    """The second: another graph, another kernel."""
    return ((x - y).abs().sqrt() + y.exp()).tanh() * x


def build(case: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function or module of a case and its arguments."""
    import torch

    torch.manual_seed(0)
    if case in ("pointwise", "second"):
        return pointwise, {"x": torch.randn(256, 1024), "y": torch.randn(256, 1024)}
    if case.startswith("mlp"):
        nn = torch.nn
        block = nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
        return block, {"input": torch.randn(64, 512)}
    if case == "resnet18":
        import torchvision

        return torchvision.models.resnet18().eval(), {"x": torch.randn(1, 3, 224, 224)}
    import transformers

    if case == "bert":
        bert = transformers.BertModel(transformers.BertConfig()).eval()
        return bert, {"input_ids": torch.randint(0, 30000, (1, 128))}
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)).eval()
    return gpt2, {"input_ids": torch.randint(0, 50000, (1, 128))}


def measure(o: argparse.Namespace) -> dict[str, float]:
    """The first call of one case in this process; with --phases also the seconds of torchjit's phases."""
    import torch

    torch.set_num_threads(o.threads[0])
    case = o.cases[0]
    f, kwargs = build(case)

    def step(f: Callable[..., Any]) -> None:
        if case != "mlp_train":
            with torch.no_grad():
                f(**kwargs)
            return
        f(**kwargs).square().mean().backward()

    def timed(f: Callable[..., Any]) -> float:
        start = time.perf_counter()
        if o.compiler == "torch":
            compiled = torch.compile(f)
        else:
            # Imported here: what it takes is part of the first call.
            import torchjit

            compiled = torchjit.compile(f)
        step(compiled)
        return time.perf_counter() - start

    step(f)
    if case == "second":
        step(another)
        timed(f)
        return {"seconds": timed(another)}
    if not o.phases:
        return {"seconds": timed(f)}
    phases: dict[str, float] = defaultdict(float)

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if kind == "phase":
            phases[fields["name"]] += fields["seconds"]

    start = time.perf_counter()
    import torchjit  # noqa: F401
    from torchjit_core import events

    phases["imports"] = time.perf_counter() - start
    with events.listen(hear):
        phases["call"] = timed(f)
    return phases


def run_fresh(o: argparse.Namespace, case: str, threads: int, compiler: str) -> dict[str, float]:
    """`measure` in a new process with empty cache folders."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch",
            "TORCHJIT_CACHE_DIR": f"{folder}/torchjit",
            "TMPDIR": folder,
            "OMP_NUM_THREADS": str(threads),
        }
        command = [sys.executable, __file__, "--one", "--cases", case, "--threads", str(threads)]
        command += ["--compiler", compiler] + (["--phases"] if o.phases else [])
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return result


def main() -> None:
    """Print a row per case and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--phases", action="store_true", help="the phases of torchjit's first call")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compiler", default="torchjit", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.one:
        print(json.dumps(measure(o)))
        return
    if not o.phases:
        print("| case | threads | torch.compile s | torchjit s | ratio |\n|---|---|---|---|---|")
    for case in o.cases:
        for threads in o.threads:
            if o.phases:
                rows = [run_fresh(o, case, threads, "torchjit") for _ in range(o.rounds)]
                print(f"{case}, threads {threads}")
                for name in rows[0]:
                    print(f"    {statistics.median(r.get(name, 0.0) for r in rows):8.3f} s  {name}")
                continue
            times: dict[str, list[float]] = {"torch": [], "torchjit": []}
            for _ in range(o.rounds):
                for compiler, seconds in times.items():
                    seconds.append(run_fresh(o, case, threads, compiler)["seconds"])
            a, b = (statistics.median(seconds) for seconds in times.values())
            print(f"| {case} | {threads} | {a:.2f} | {b:.3f} | {b / a:.3f} |", flush=True)


if __name__ == "__main__":
    main()
