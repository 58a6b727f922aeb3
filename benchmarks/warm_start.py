"""Warm starts: what the first call costs a process that finds the caches of the one before it, torch.compile beside torchjit.

Each case runs in fresh cache folders, in processes of their own: eager; then, of each compiler, `cold` and `warm`, the second process on
one folder. Each process imports torch and the model's library, builds the model, takes the time of `import torchjit` (for torch.compile
of its two packages), and of the first and the second step: a call, in training also a loss and the backward. Nothing runs before them.

Figures are processor seconds of the process on a CPU (its compilers' beside them), and wall seconds on a GPU. *Excess* is a first step over
the second; *own* is that over eager's own excess, so that libraries that start are nobody's.

    OMP_NUM_THREADS=1 uv run --group models python benchmarks/warm_start.py [--cases bert resnet50] [--phases infer] [--rounds 3]
    uv run --group models python benchmarks/warm_start.py --device cuda --json warm_start.json [--jobs 4 [--gpus 2]]
    OMP_NUM_THREADS=1 uv run --group models python benchmarks/warm_start.py --small --store on      # TORCHJIT_STORE for torchjit's processes
    uv run python benchmarks/warm_start.py --device cuda --read warm_start.json [another.json ...]  # the tables of what was measured

Cases begin in the order in which they are given. The file of `--json` is written after each process, so that a run that is cut short
loses only what was running.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CASES = ("pointwise", "bert", "bert_thin", "resnet50", "gpt2", "t5", "swin", "blocks6", "blocks48")
PHASES = ("infer", "train")
COMPILERS = ("torch", "torchjit")
Row = dict[str, Any]
"""What a process says: seconds by name, and its events."""


# ---------------------------------------------------------------------- the models
def pointwise(x: Any, y: Any) -> Any:
    """A small function."""
    return (x.sin() * y + x.sigmoid()).relu()


def blocks(count: int, width: int) -> Any:
    """Blocks as Llama's: RMS norms, attention without biases, a gated pair of linear layers."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
            self.down = nn.Linear(3 * width, width, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            y = self.after(x)
            result: torch.Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
            return result

    return nn.Sequential(*(Block() for _ in range(count)), nn.RMSNorm(width))


def build(case: str, small: bool) -> tuple[Any, dict[str, Any]]:
    """The function or module of a case and its arguments by name, on the CPU."""
    import torch

    torch.manual_seed(0)
    if case == "pointwise":
        return pointwise, {"x": torch.randn(256, 1024), "y": torch.randn(256, 1024)}
    if case.startswith("blocks"):
        width = 64 if small else 256
        return blocks(int(case.removeprefix("blocks")), width), {"input": torch.randn(2, 128, width)}
    if case in ("resnet50", "swin"):
        import torchvision

        size = 64 if small else 224
        model = torchvision.models.resnet50() if case == "resnet50" else torchvision.models.swin_t()
        return model, {"x": torch.randn(2 if small else 1, 3, size, size)}
    import transformers

    tokens = torch.randint(0, 1000, (1, 16 if small else 128))
    if case == "bert":
        size = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4} if small else {}
        return transformers.BertModel(transformers.BertConfig(**size)), {"input_ids": tokens}
    if case == "bert_thin":  # all of BERT-base's layers, so narrow that what it computes takes no time
        size = {"hidden_size": 48, "intermediate_size": 96}
        return transformers.BertModel(transformers.BertConfig(**size)), {"input_ids": tokens[:, :16]}
    if case == "gpt2":
        size = {"n_layer": 2, "n_embd": 128, "n_head": 4} if small else {}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False, **size)), {"input_ids": tokens}
    size = {"num_layers": 2, "d_model": 128, "d_ff": 256, "num_heads": 4, "d_kv": 32} if small else {}
    t5 = transformers.T5Model(transformers.T5Config(use_cache=False, decoder_start_token_id=0, **size))
    return t5, {"input_ids": tokens, "decoder_input_ids": tokens}


def tensors(out: Any) -> Iterator[Any]:
    """The floating tensors of a result."""
    import torch

    if isinstance(out, torch.Tensor):
        if out.is_floating_point():
            yield out
    elif isinstance(out, dict | list | tuple):
        for value in out.values() if isinstance(out, dict) else out:
            yield from tensors(value)


# ---------------------------------------------------------------------- one process
class Steps:
    """The steps of one process, timed."""

    def __init__(self, f: Callable[..., Any], inputs: dict[str, Any], phase: str, device: str) -> None:
        self.f, self.inputs, self.train, self.cuda = f, inputs, phase == "train", device == "cuda"
        self.seconds: dict[str, float] = {}
        self.facts: list[float] = []

    def now(self) -> float:
        """Processor seconds on a CPU, wall seconds on a GPU that has done its work."""
        if not self.cuda:
            return time.process_time()
        import torch

        torch.cuda.synchronize()
        return time.perf_counter()

    def run(self, name: str) -> None:
        """One step, as `name` and, where it trains, `name_backward`."""
        import torch

        torch.manual_seed(1)
        wall, start = time.perf_counter(), self.now()
        with torch.set_grad_enabled(self.train):
            out = self.f(**self.inputs)
        middle = self.now()
        self.seconds[name] = middle - start
        if self.train:
            sum(t.float().square().mean() for t in tensors(out)).backward()
            self.seconds[f"{name}_backward"] = self.now() - middle
        self.seconds[f"{name}_wall"] = time.perf_counter() - wall
        self.facts = [t.double().sum().item() for t in tensors(out)]


def count_events(counts: dict[str, int]) -> None:
    """From now on, what torchjit captures, loads and cannot store."""
    from torchjit_core import events

    def hear(kind: str, fields: dict[str, Any]) -> None:
        counts[kind] = counts.get(kind, 0) + (kind != "activity_start" or fields["name"] == "capture")

    events.start_listening(hear, ("activity_start", "entry_loaded", "entry_missed", "entry_not_stored"))


def measure(o: argparse.Namespace) -> Row:
    """One case in this process."""
    import torch

    f, inputs = build(o.cases[0], o.small)
    if o.device == "cuda":
        inputs = {name: t.cuda() for name, t in inputs.items()}
    if isinstance(f, torch.nn.Module):
        f = f.to(o.device).train(o.phases[0] == "train")
    elif o.phases[0] == "train":
        inputs = {name: t.requires_grad_() for name, t in inputs.items()}
    counts: dict[str, int] = {}
    steps = Steps(f, inputs, o.phases[0], o.device)
    start = steps.now()
    if o.compiler == "torch":
        import torch._dynamo
        import torch._inductor.compile_fx
    elif o.compiler == "torchjit":
        import torchjit
    steps.seconds["import"] = steps.now() - start
    if o.compiler == "torch":
        steps.f = torch.compile(f)
    elif o.compiler == "torchjit":
        count_events(counts)
        start = steps.now()
        steps.f = torchjit.compile(f)
        steps.seconds["import"] += steps.now() - start  # it imports what `import torchjit` puts off
    steps.run("first")
    facts = steps.facts
    steps.run("second")
    if o.compiler == "torch":
        from torch._inductor.async_compile import shutdown_compile_workers

        shutdown_compile_workers()  # so that their seconds are counted
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    same = all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-2) for a, b in zip(facts, steps.facts))
    return {
        **steps.seconds,
        "children": spent.ru_utime + spent.ru_stime,
        "facts": facts,
        "same": same,
        "events": counts,
    }


def run_fresh(o: argparse.Namespace, case: str, phase: str, compiler: str, folder: str, gpu: int = 0) -> Row:
    """`measure` in a new process with the caches of this folder, on this GPU if there are several; `error` where it failed."""
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch",
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "TORCHJIT_CACHE_DIR": f"{folder}/torchjit",
        "TMPDIR": folder,
    }
    if o.gpus > 1:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    if o.store is not None and compiler == "torchjit":
        environment["TORCHJIT_STORE"] = o.store
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):  # compiling the sources of imports is no part of any figure
        environment["PYTHONPYCACHEPREFIX"] = o.bytecode
    command = [
        sys.executable,
        __file__,
        "--one",
        "--cases",
        case,
        "--phases",
        phase,
        "--compiler",
        compiler,
        "--device",
        o.device,
    ]
    try:
        done = subprocess.run(
            command + ["--small"] * o.small, env=environment, capture_output=True, text=True, timeout=o.seconds
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {o.seconds:.0f} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:300]}
    row: Row = json.loads(done.stdout.strip().splitlines()[-1])
    return row


# ---------------------------------------------------------------------- the figures
def median_row(rows: list[Row]) -> Row:
    """The medians of several processes' figures; the first error, if there is one."""
    for row in rows:
        if "error" in row:
            return row
    first = rows[0]
    return {k: statistics.median(r[k] for r in rows) if isinstance(v, float) else v for k, v in first.items()}


def step_of(row: Row, name: str) -> float:
    """Seconds of the first or second step, with its backward."""
    seconds: float = row[name] + row.get(f"{name}_backward", 0.0)
    return seconds


def excess(row: Row) -> float:
    """What the first step costs over the second."""
    return step_of(row, "first") - step_of(row, "second")


class Figures:
    """The figures of one case and phase.

    Args:
        rows: by process: `eager`, `torch cold`, `torch warm`, `torchjit cold`, `torchjit warm`; those that failed are left out.
    """

    def __init__(self, rows: dict[str, Row], cuda: bool) -> None:
        self.rows, self.cuda = rows, cuda

    def excess(self, process: str) -> float:
        """The first step over the second; NaN if it did not run."""
        return excess(self.rows[process]) if process in self.rows else math.nan

    def own(self, process: str) -> float:
        """The same over eager's own."""
        return self.excess(process) - max(0.0, self.excess("eager"))

    def cold(self, compiler: str) -> float:
        """The first step with empty caches, with the compilers that it started where processor seconds are counted."""
        row = self.rows.get(f"{compiler} cold")
        return math.nan if row is None else step_of(row, "first") + (0.0 if self.cuda else row["children"])

    def with_import(self, process: str) -> float:
        """Import and first step."""
        row = self.rows.get(process)
        return math.nan if row is None else row["import"] + step_of(row, "first")

    def captured(self, process: str) -> str:
        """What was captured, loaded and not stored, as text."""
        counts = self.rows.get(process, {}).get("events", {})
        loaded, refused = counts.get("entry_loaded", 0), counts.get("entry_not_stored", 0)
        said = f"{counts.get('activity_start', 0)} captured, {loaded} loaded"
        return said + f", {refused} not stored" * bool(refused)

    def agrees(self) -> bool:
        """Are the first results of the warm process those of eager (inference) or of the cold process?"""
        other = "eager" if "eager" in self.rows and not self.trains() else "torchjit cold"
        if other not in self.rows or "torchjit warm" not in self.rows:
            return True
        ours, theirs = self.rows["torchjit warm"], self.rows[other]
        pairs = zip(ours["facts"], theirs["facts"], strict=True)
        return bool(ours["same"] or self.trains()) and all(
            math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-1) for a, b in pairs
        )

    def trains(self) -> bool:
        """Is this a training step?"""
        return any("first_backward" in row for row in self.rows.values())


def geomean(values: Iterable[float]) -> float:
    """Of those that are numbers; NaN of none."""
    logs = [math.log(v) for v in values if v > 0]
    return math.exp(statistics.fmean(logs)) if logs else math.nan


HEAD = (
    "| case | phase | import | warm first | second | warm excess | warm own | torch's own | ratio | cold first (+ children) | torch's cold "
    "| ratio | warm process | right |"
)


def print_row(case: str, phase: str, f: Figures) -> None:
    """A line of the table of figures."""
    warm, cold = (f.rows.get(f"torchjit {name}", {}) for name in ("warm", "cold"))
    if not warm or not cold:
        ran = any(name.startswith("torchjit") for name in f.rows)
        why = "torchjit failed" if ran else "torchjit's processes did not run"
        print(f"| {case} | {phase} | {why} |", flush=True)
        return
    theirs = f.rows.get("torch cold", {})
    cells = [case, phase, f"{warm['import']:.3f}", f"{step_of(warm, 'first'):.3f}", f"{step_of(warm, 'second'):.3f}"]
    cells += [f"{f.excess('torchjit warm'):.3f}", f"{f.own('torchjit warm'):.3f}", f"{f.own('torch warm'):.3f}"]
    cells += [
        f"{f.own('torchjit warm') / f.own('torch warm'):.3f}",
        f"{step_of(cold, 'first'):.2f} + {cold['children']:.2f}",
    ]
    cells += [f"{step_of(theirs, 'first'):.2f} + {theirs['children']:.2f}" if theirs else "nan"]
    cells += [f"{f.cold('torchjit') / f.cold('torch'):.3f}", f.captured("torchjit warm"), "yes" if f.agrees() else "NO"]
    print("| " + " | ".join(cells) + " |", flush=True)


Demand = tuple[str, float, float]
"""What, the figure, the most that it may be."""


def demands(figures: dict[tuple[str, str], Figures], device: str) -> list[Demand]:
    """The rows of issue 35's "Must show" that this run has figures for."""
    made: list[Demand] = []
    for (case, phase), f in figures.items():
        ours, theirs = f.excess("torchjit warm"), f.excess("torch warm")
        if device == "cuda":
            ours, theirs = f.own("torchjit warm"), f.own("torch warm")
        if case == "pointwise":
            made.append((f"{case} {phase}: import and warm first call, s", f.with_import("torchjit warm"), 0.20))
        elif device == "cuda" or case in ("bert", "resnet50"):
            made.append((f"{case} {phase}: warm first call, s", ours, 0.5 if device == "cuda" else 0.10))
            made.append((f"{case} {phase}: over torch.compile's", ours / theirs, 1 / 8))
    for phase in PHASES:
        few, many = figures.get(("blocks6", phase)), figures.get(("blocks48", phase))
        if few is not None and many is not None:
            made.append((f"48 blocks over 6, cold, {phase}", many.cold("torchjit") / few.cold("torchjit"), 2.0))
            made.append(
                (f"48 blocks over torch.compile's, cold, {phase}", many.cold("torchjit") / many.cold("torch"), 1 / 12)
            )
        ratios = [f.cold("torchjit") / f.cold("torch") for (_, p), f in figures.items() if p == phase]
        ratios = [r for r in ratios if not math.isnan(r)]
        if ratios:
            made.append(
                (
                    f"cold first calls over torch.compile's, {phase}, geomean",
                    geomean(ratios),
                    1 / 8 if phase == "infer" else 1 / 6,
                )
            )
            made.append((f"cold first calls over torch.compile's, {phase}, worst", max(ratios), 1 / 4))
    return [d for d in made if not math.isnan(d[1])]


def run_case(o: argparse.Namespace, case: str, phase: str, gpu: int, told: Told) -> dict[str, Row]:
    """Every process of a case, so many rounds of it, each in folders of its own."""
    rows: dict[str, list[Row]] = {}

    def run(name: str, compiler: str, folder: str) -> None:
        rows.setdefault(name, []).append(run_fresh(o, case, phase, compiler, folder, gpu))
        told.tell(f"{case} {phase}", {name: median_row(of_rounds) for name, of_rounds in rows.items()})

    for _ in range(o.rounds):
        with tempfile.TemporaryDirectory() as folder:
            run("eager", "eager", folder)
        for compiler in o.compilers:
            with tempfile.TemporaryDirectory() as folder:
                for name in ("cold", "warm"):
                    run(f"{compiler} {name}", compiler, folder)
    return told.said[f"{case} {phase}"]


class Told:
    """What the processes of each case have said so far, in a file too if there is one."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.said, self._lock = file, dict[str, dict[str, Row]](), threading.Lock()

    def tell(self, case: str, rows: dict[str, Row]) -> None:
        """From now on, this is what there is of a case."""
        with self._lock:
            self.said[case] = rows
            if self.file is not None:
                written = self.file.with_name(self.file.name + ".new")
                written.write_text(json.dumps(self.said, indent=1))
                written.replace(self.file)


def read_rows(files: Sequence[Path]) -> dict[str, dict[str, Row]]:
    """What several runs have said of each case; the later file's, where two speak of one process."""
    said: dict[str, dict[str, Row]] = {}
    for file in files:
        for case, rows in json.loads(file.read_text()).items():
            said.setdefault(case, {}).update(rows)
    return said


def show_case(o: argparse.Namespace, name: str, rows: dict[str, Row]) -> Figures:
    """Print the row of a case, and its errors; its figures."""
    for process, row in rows.items():
        if "error" in row:
            print(f"{name}, {process}: {row['error']}", file=sys.stderr, flush=True)
    figures = Figures({n: r for n, r in rows.items() if "error" not in r}, o.device == "cuda")
    case, phase = name.split()
    print_row(case, phase, figures)
    return figures


def run_cases(o: argparse.Namespace) -> dict[tuple[str, str], Figures]:
    """Run and show each case."""
    figures: dict[tuple[str, str], Figures] = {}
    told = Told(o.json)
    todo = [(case, phase, i % o.gpus) for i, (case, phase) in enumerate(itertools.product(o.cases, o.phases))]

    def run(job: tuple[str, str, int]) -> None:
        case, phase, gpu = job
        figures[case, phase] = show_case(o, f"{case} {phase}", run_case(o, case, phase, gpu, told))

    def prepare(compiler: str) -> None:
        run_fresh(o, "pointwise", "infer", compiler, o.bytecode)  # bytecode, and the disk's own caches

    with tempfile.TemporaryDirectory() as o.bytecode:
        with ThreadPoolExecutor(len(o.compilers)) as pool:
            list(pool.map(prepare, o.compilers))
        print_head()
        with ThreadPoolExecutor(o.jobs) as pool:
            list(pool.map(run, todo))
    return figures


def print_head() -> None:
    """The head of the table of figures."""
    print(HEAD + "\n|" + "---|" * (HEAD.count("|") - 1))


def main() -> int:
    """Print the figures of each case, then what the issue demands of them; 1 where one is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--phases", nargs="+", default=list(PHASES), choices=PHASES)
    parser.add_argument("--compilers", nargs="+", default=list(COMPILERS), choices=COMPILERS)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--small", action="store_true", help="small sizes: whether it runs, not how fast")
    parser.add_argument("--rounds", type=int, default=1, help="medians of so many")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--gpus", type=int, default=1, help="over which they are spread")
    parser.add_argument("--seconds", type=float, default=900.0, help="the most that one process may take")
    parser.add_argument("--store", help="TORCHJIT_STORE for torchjit's processes")
    parser.add_argument("--json", type=Path, help="write what every process said here, after each of them")
    parser.add_argument("--read", type=Path, nargs="+", help="run nothing: show what such files say")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compiler", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.one:
        print(json.dumps(measure(o)))
        return 0
    if o.read:
        print_head()
        figures = {}
        for name, rows in read_rows(o.read).items():
            case, phase = name.split()
            figures[case, phase] = show_case(o, name, rows)
    else:
        figures = run_cases(o)
    print("\n| must show | is | at most | |\n|---|---|---|---|")
    made = demands(figures, o.device)
    for what, value, most in made:
        print(f"| {what} | {value:.3f} | {most:.3f} | {'' if value <= most else 'missed'} |")
    return int(any(value > most for _, value, most in made) or not all(f.agrees() for f in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
