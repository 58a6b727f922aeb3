"""What share of public models is captured whole, and how much faster their training steps are, in one process of bounded time.

    uv run --group models python benchmarks/public_models.py                     # 8 models of each collection, 10 minutes
    uv run --group models python benchmarks/public_models.py --count 40 --capture-only
    uv run --group models python benchmarks/public_models.py --device cuda --upstream --minutes 25

Models are taken evenly from the lists of tools/corpora: torchvision (classification), timm (the smallest of each family),
transformers (`AutoModel` of each architecture, a tiny configuration); random weights, small inputs, train mode. "Whole" is one
graph and no break. A training step is forward, a scalar of all outputs, and backward. On a CPU its time is processor time of one
thread, the minimum of interleaved steps, so that other load on the machine changes little; on a GPU wall time, medians.
Values are not compared here: tools/corpora does that.
Limits are processor time, so that other load leaves no model out; wall time is limited to ten times as much, against what hangs.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import json
import os
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import torchjit

sys.path.insert(0, str(Path(__file__).parent.parent / "tools" / "corpora"))

from corpora_tool.case import Case, Skip
from corpora_tool.measure import loss_of
from corpora_tool.values import fresh

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

COLLECTIONS = ("torchvision", "timm", "transformers")
ROUNDS, FEWEST, ROUNDS_SECONDS = 15, 5, 20.0
"""Interleaved steps, and how few there are of a model whose steps are long."""


class TooSlow(BaseException):
    """A model took longer than its limit. No Exception: those that a collection's `build` catches are attempts that failed."""


def spent() -> float:
    """Seconds of processor time of this process, and of its compilers that have ended."""
    return sum(os.times()[:4])


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` in the block after this processor time of the process, or ten times as much wall time."""

    def out_of_time(number: int, frame: Any) -> None:
        raise TooSlow(
            f"over {seconds:.0f} s" if number == signal.SIGPROF else f"over {10 * seconds:.0f} s of wall time"
        )

    signal.signal(signal.SIGPROF, out_of_time)
    signal.signal(signal.SIGALRM, out_of_time)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def chosen(collection: str, count: int, asked: Sequence[str]) -> tuple[Any, list[str]]:
    """The module of a collection, and of its models those asked for, or `count`, evenly from its list."""
    models = importlib.import_module(f"corpora_tool.{collection}_models")
    models.prepare()
    if asked:
        return models, [name.partition("/")[2] for name in asked if name.startswith(f"{collection}/")]
    names = [name for name in models.names() if ":" not in name and "/" not in name]
    step = max(len(names) / count, 1)
    return models, [names[int(k * step)] for k in range(min(count, len(names)))]


def stepper(case: Case, called: Callable[..., Any], module: torch.nn.Module) -> Callable[[], None]:
    """One training step: the same inputs each time."""

    def step() -> None:
        args, kwargs = fresh(case.args), fresh(case.kwargs)
        module.zero_grad(set_to_none=True)
        torch.manual_seed(0)
        loss = loss_of(case.after(called(*args, **kwargs)))
        if loss is not None:
            loss.backward()

    return step


def captured(case: Case) -> dict[str, Any]:
    """Graphs and breaks of one training step under the backend `eager`."""
    module = copy.deepcopy(case.module)
    fast = torchjit.compile(module, backend="eager")
    stepper(case, fast, module)()
    told = fast.compiled.stats
    return {"graphs": told.graph_count, "breaks": told.graph_break_count, "capture_s": told.compile_seconds}


def timed(case: Case, device: str, upstream: bool) -> dict[str, Any]:
    """Milliseconds of a training step, by compiler, and seconds of the first one."""
    compilers: dict[str, Callable[[Any], Any]] = {"eager": lambda m: m, "torchjit": torchjit.compile}
    if upstream:
        compilers["torch.compile"] = torch.compile
    steps: dict[str, Callable[[], None]] = {}
    result: dict[str, Any] = {}
    for name, compile in compilers.items():
        module = copy.deepcopy(case.module)
        steps[name] = stepper(case, compile(module), module)
        start = time.perf_counter()
        steps[name]()
        result[f"{name}_first_s"] = time.perf_counter() - start
        steps[name](), steps[name]()
    clock = time.thread_time if device == "cpu" else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in steps}
    begun = spent()
    for number in range(ROUNDS):
        if number >= FEWEST and spent() - begun > ROUNDS_SECONDS:
            break
        for name, step in steps.items():
            start = clock()
            step()
            if device == "cuda":
                torch.cuda.synchronize()
            times[name].append(clock() - start)
    best = min if device == "cpu" else statistics.median
    return result | {f"{name}_ms": best(seconds) * 1e3 for name, seconds in times.items()}


def measured(models: Any, name: str, o: argparse.Namespace) -> dict[str, Any]:
    """One model as a row; `status` is ok, skip (it does not run in eager mode here), slow or error."""
    row: dict[str, Any] = {}
    try:
        with limited(o.limit):
            (case, *_) = models.build(name, "train", o.device)
            try:
                stepper(case, copy.deepcopy(case.module), case.module)()
            except Exception as error:
                raise Skip(f"eager raises {type(error).__name__}") from error
            row |= captured(case)
        if not o.capture_only:
            with limited(o.limit):
                row |= timed(case, o.device, o.upstream)
        return row | {"status": "ok"}
    except (Skip, TooSlow) as error:
        return row | {"status": "slow" if isinstance(error, TooSlow) else "skip", "why": str(error)[:200]}
    except Exception as error:
        return row | {"status": "error", "why": f"{type(error).__name__}: {error}"[:300]}
    finally:
        torchjit.reset()


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers; NaN of none."""
    return statistics.geometric_mean(values) if values else float("nan")


def report(rows: list[dict[str, Any]]) -> str:
    """A Markdown table, a line per collection and one for all."""
    upstream = any("torch.compile_ms" in r for r in rows)
    lines = [
        "| collection | models | captured whole | breaks in the others | training step, times as fast as eager: geomean (lowest to highest) |"
        + (" torch.compile's |" if upstream else ""),
        "|---|---|---|---|---|" + ("---|" if upstream else ""),
    ]
    for name in (*COLLECTIONS, "all"):
        ran = [r for r in rows if name in (r["collection"], "all") and "graphs" in r]
        if not ran:
            continue
        whole = [r for r in ran if r["graphs"] == 1 and not r["breaks"]]
        ratios = [r["eager_ms"] / r["torchjit_ms"] for r in ran if "torchjit_ms" in r]
        theirs = [r["eager_ms"] / r["torch.compile_ms"] for r in ran if "torch.compile_ms" in r]
        speed = (
            f"{geometric_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {len(ratios)} models"
            if ratios
            else "-"
        )
        cells = [name, len(ran), f"{len(whole)} ({len(whole) / len(ran):.0%})", sum(r["breaks"] for r in ran), speed]
        lines.append(
            "| " + " | ".join(map(str, cells + ([f"{geometric_mean(theirs):.2f}"] if upstream else []))) + " |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", nargs="*", choices=COLLECTIONS, default=list(COLLECTIONS))
    parser.add_argument(
        "--models", nargs="*", default=[], help="these, such as timm/resnet10t, rather than --count of each"
    )
    parser.add_argument("--count", type=int, default=8, help="models of each collection")
    parser.add_argument("--minutes", type=float, default=10.0, help="of processor time; no model is begun after this")
    parser.add_argument(
        "--limit",
        type=float,
        default=120.0,
        help="seconds of processor time for one model's capture, and again for its training",
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--capture-only", action="store_true", help="no timings")
    parser.add_argument("--upstream", action="store_true", help="time torch.compile, too")
    parser.add_argument("--out", type=Path, help="rows, as JSON lines")
    o = parser.parse_args()
    warnings.simplefilter("ignore")
    if o.device == "cpu":
        torch.set_num_threads(1)
    end = spent() + o.minutes * 60
    lists = {}
    for collection in o.collections:
        try:
            lists[collection] = chosen(collection, o.count, o.models)
        except ImportError as error:
            print(f"{collection}: left out, {error} (uv run --group models ...)")
    rows: list[dict[str, Any]] = []
    # In turns, so that a run that ends early has some of each.
    for number in range(max((len(names) for _, names in lists.values()), default=0)):
        for collection, (models, names) in lists.items():
            if number >= len(names) or spent() > end:
                continue
            row = {"collection": collection, "model": names[number], **measured(models, names[number], o)}
            rows.append(row)
            print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
            if o.out:
                o.out.write_text("".join(json.dumps(r) + "\n" for r in rows))
    told = {status: sum(r["status"] == status for r in rows) for status in ("ok", "skip", "slow", "error")}
    print(f"\ntorch {torch.__version__}, {o.device}; {told}\n\n{report(rows)}")


if __name__ == "__main__":
    main()
