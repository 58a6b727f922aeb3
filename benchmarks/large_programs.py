"""Short programs on tensors that fill the card: torchjit beside eager PyTorch and torch.compile.

    python3 tools/from_checkout.py python3 benchmarks/large_programs.py --groups table                       # the cases of never_slower
    python3 tools/from_checkout.py python3 benchmarks/large_programs.py --groups operators chains networks   # 100, 100 and 50, drawn by --seed
    python benchmarks/large_programs.py --device cpu --small --groups table --workers 1                      # does it run at all

Programs are compiled by several processes at once; then each process in turn, alone on the card, times its own: medians of device time with a
flushed cache, the three taken in turns. Results are held against eager PyTorch in float64 (in float32 where that does not fit): torchjit may
be twice as far from it as eager is. `--out FILE` gets a JSON line for each program, with the kernels of what is under `--floor` of eager's or
torch.compile's speed (microseconds) and the text of torchjit's kernels. Modules are in training mode under `no_grad`, float32 products
without TF32, convolutions as cuDNN does them by default.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import importlib
import json
import logging
import math
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

import large_program_list
from large_program_list import Program, Sizes

Run = Callable[[], Any]
SYSTEMS = ("eager", "torch", "torchjit")


def _programs(groups: list[str], seed: int, only: list[str]) -> list[Program]:
    counts = {"operators": 100, "chains": 100, "networks": 50}
    found = [
        p
        for group in groups
        for p in (
            large_program_list.table() if group == "table" else large_program_list.drawn(group, seed, counts[group])
        )
    ]
    return [p for p in found if not only or any(text in f"{p.kind} {p.name}" for text in only)]


def _own_function(number: int, module: torch.nn.Module) -> Callable[..., Any]:
    """A function with code of its own: compilers keep what they know of sizes by code object."""
    scope: dict[str, Any] = {"module": module}
    exec(compile(f"def program_{number}(*inputs):\n    return module(*inputs)\n", f"<program {number}>", "exec"), scope)
    return scope[f"program_{number}"]  # type: ignore[no-any-return]


def _compiled(system: str, number: int, module: torch.nn.Module, mode: str) -> Callable[..., Any]:
    call = _own_function(number, module)
    if system == "eager":
        return call
    if system == "torch":
        config = importlib.import_module("torch._dynamo.config")
        config.recompile_limit = config.accumulated_recompile_limit = 10_000
        return torch.compile(call, mode=mode)  # type: ignore[no-any-return]
    import torchjit

    return torchjit.compile(call, mode=mode)  # type: ignore[no-any-return]


def _copied(module: torch.nn.Module) -> torch.nn.Module:
    """A copy whose recurrent layers have their weights side by side, as cuDNN wants them and as layers that were not copied do."""
    copied = copy.deepcopy(module)
    for layer in copied.modules():
        if isinstance(layer, torch.nn.RNNBase):
            layer.flatten_parameters()
    return copied


class _Prepared:
    """A program with its compiled forms; inputs are drawn when it is timed, so that waiting programs hold parameters alone."""

    def __init__(self, number: int, program: Program, options: argparse.Namespace) -> None:
        self.number, self.program, self.options = number, program, options
        self.sizes = Sizes(options.device, options.small)
        self.first: dict[str, float] = {}
        self.errors: dict[str, str] = {}
        self.texts: list[str] = []
        torch.manual_seed(number)
        module, inputs = program.make(self.sizes)
        # Batch norms change their module: each system has its own.
        self.modules = {s: _copied(module) for s in options.systems}
        self.calls = {s: _compiled(s, number, m, options.mode) for s, m in self.modules.items()}
        for system in options.systems:
            self._first_call(system, inputs)

    def _first_call(self, system: str, inputs: list[torch.Tensor]) -> None:
        start = time.perf_counter()
        try:
            with torch.no_grad(), _kernel_texts(self.texts) if system == "torchjit" else contextlib.nullcontext():
                self.calls[system](*inputs)
            _wait(self.options.device)
        except Exception as error:
            if isinstance(error, torch.cuda.OutOfMemoryError):
                return  # other programs were on the card: it is called again when it is timed
            self.errors[system] = f"{type(error).__name__}: {error}"[:500]
        self.first[system] = time.perf_counter() - start

    def timed(self, flush: torch.Tensor) -> dict[str, Any]:
        torch.manual_seed(self.number)
        _, inputs = self.program.make(self.sizes)
        row: dict[str, Any] = {
            "group": self.program.group,
            "kind": self.program.kind,
            "name": self.program.name,
            "first": self.first,
        }
        runs = {s: _run(c, inputs) for s, c in self.calls.items() if s not in self.errors}
        row |= {"ms": _times(runs, flush, self.options.device), "errors": self.errors}
        row["distance"] = self._distances(inputs)
        if self._is_slow(row["ms"]) and self.options.device == "cuda":
            row["kernels"] = {s: _kernels(run) for s, run in runs.items()}
            row["texts"] = self.texts
        return row

    def _is_slow(self, ms: dict[str, float]) -> bool:
        own = ms.get("torchjit", math.inf)
        return any(own * self.options.floor > ms.get(s, math.inf) for s in SYSTEMS[:2])

    @torch.no_grad()
    def _distances(self, inputs: list[torch.Tensor]) -> dict[str, float]:
        """|result - right result| / |right result|, the right one in float64 where that fits (elements below 1e-3 on average count as 1e-3: means of what is centred are rounding alone)."""
        try:
            right = copy.deepcopy(self.modules["eager"]).double()(*(x.double() for x in inputs))
            scale = right.double().norm().clamp(min=1e-3 * math.sqrt(right.numel()))
        except (torch.cuda.OutOfMemoryError, RuntimeError):
            return {}
        found = {}
        for system, call in self.calls.items():
            if system not in self.errors:
                result = call(*inputs)
                found[system] = float((result.double() - right).norm() / scale)
                del result
        return found


def _run(call: Callable[..., Any], inputs: list[torch.Tensor]) -> Run:
    return lambda: call(*inputs)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def _kernel_texts(into: list[str]) -> Iterator[None]:
    """Keep the source of torchjit's kernels that are compiled meanwhile."""
    from torchjit_core import events

    def heard(_kind: str, fields: dict[str, Any]) -> None:
        into.append(f"{fields['name']}\n{fields['source']}")

    with events.listen(heard, ["kernel"]):
        yield


@torch.no_grad()
def _times(runs: dict[str, Run], flush: torch.Tensor, device: str) -> dict[str, float]:
    """Milliseconds of a call (median), the systems in turns."""
    taken: dict[str, list[float]] = {s: [] for s in runs}
    for run in runs.values():
        run()
        run()
    _wait(device)
    began = time.perf_counter()
    for turn in range(100):
        for system, run in runs.items():
            flush.zero_()
            taken[system].append(_milliseconds(run, device))
        if turn >= 4 and time.perf_counter() - began > 0.3:
            break
    return {s: statistics.median(t) for s, t in taken.items()}


def _milliseconds(run: Run, device: str) -> float:
    if device != "cuda":
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1_000_000)  # the host is ahead: device time alone
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


@torch.no_grad()
def _kernels(run: Run) -> list[tuple[float, str]]:
    """Microseconds and names of a call's kernels, in their order."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    events = sorted(
        (e for e in profile.events() or [] if e.device_type == torch.autograd.DeviceType.CUDA),
        key=lambda e: e.time_range.start,
    )
    return [(round(float(e.time_range.elapsed_us()), 1), e.name[:90]) for e in events]


class _Memory:
    """What of the card's memory the processes may use together while they compile."""

    def __init__(self, context: Any, gigabytes: float) -> None:
        self._most, self._left, self._changed = gigabytes, context.Value("d", gigabytes), context.Condition()

    @contextlib.contextmanager
    def lent(self, gigabytes: float) -> Iterator[None]:
        gigabytes = min(gigabytes, self._most)
        with self._changed:
            self._changed.wait_for(lambda: self._left.value >= gigabytes)
            self._left.value -= gigabytes
        try:
            yield
        finally:
            with self._changed:
                self._left.value += gigabytes
                self._changed.notify_all()


def _let_go(device: str) -> None:
    """Give back what a program's calls had; compilers keep some of it in circles."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def _gigabytes(program: Program, small: bool) -> float:
    """What a program needs for its inputs, results and what lies between, three compilers at once: a guess."""
    _, inputs = program.make(Sizes("meta", small))
    return 10e-9 * sum(x.nbytes for x in inputs)


def _work(options: argparse.Namespace, queue: Any, compiled: Any, alone: Any, memory: _Memory, results: Any) -> None:
    """Compile programs until none is left; then, when everybody is done, time them."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    torch.backends.cuda.matmul.allow_tf32 = False
    programs, prepared = _programs(options.groups, options.seed, options.only), []
    while (number := queue.get()) is not None:
        try:
            prepared.append(_Prepared(number, programs[number], options))
        except Exception:
            results.put(
                {
                    "name": programs[number].name,
                    "group": programs[number].group,
                    "failed": traceback.format_exc()[-900:],
                }
            )
        _let_go(options.device)
    compiled.wait()
    with alone:
        flush = torch.empty(64 << 20 if options.device == "cuda" else 8, dtype=torch.int32, device=options.device)
        for one in prepared:
            try:
                results.put(one.timed(flush))
            except Exception:
                results.put(
                    {"name": one.program.name, "group": one.program.group, "failed": traceback.format_exc()[-900:]}
                )
            _let_go(options.device)
    results.put(None)


def _rows(options: argparse.Namespace, count: int) -> Iterator[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    queue, results, alone = context.Queue(), context.Queue(), context.Lock()
    compiled, memory = context.Barrier(options.workers), _Memory(context, 60)
    workers = [
        context.Process(target=_work, args=(options, queue, compiled, alone, memory, results), daemon=True)
        for _ in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    for number in [*range(count), *[None] * options.workers]:
        queue.put(number)
    left = options.workers
    while left:
        row = results.get()
        if row is None:
            left -= 1
        else:
            yield row


def _geomean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def _line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"FAILED {row['group']} {row['name']}: {row['failed'][-300:]}"
    ms, distance = row["ms"], row["distance"]
    own = ms.get("torchjit", math.nan)
    ratios = " ".join(f"{ms.get(s, math.nan) / own:6.2f}" for s in SYSTEMS[:2])
    wrong = " WRONG" if _is_wrong(row) else ""
    times = " ".join(f"{ms.get(s, math.nan):8.3f}" for s in SYSTEMS)
    errors = "".join(f" {s}: {e[:120]}" for s, e in row["errors"].items())
    return f"{times} | {ratios} | {distance.get('torchjit', math.nan):.1e} ({distance.get('eager', math.nan):.1e}){wrong} | {row['group']} {row['kind']}: {row['name'][:110]}{errors}"


def _is_wrong(row: dict[str, Any]) -> bool:
    """Twice eager's distance; or TF32's where a convolution of another layout gets it and eager's does not."""
    distance = row.get("distance", {})
    most = 1e-3 if any(word in row["name"] for word in ("conv", "depthwise", "transposed")) else 1e-5
    return {"torchjit", "eager"} <= distance.keys() and not distance["torchjit"] <= 2 * distance["eager"] + most


def _summary(rows: list[dict[str, Any]], by: str) -> None:
    for name in sorted({r[by] for r in rows if "ms" in r}):
        own = [r["ms"] for r in rows if r.get(by) == name and "torchjit" in r.get("ms", {})]
        text = [f"{name}: {len(own)} programs"]
        for system in SYSTEMS[:2]:
            ratios = [m[system] / m["torchjit"] for m in own if system in m]
            if ratios:
                text.append(
                    f"of {system}'s speed geomean {_geomean(ratios):.3f}, least {min(ratios):.2f}, under 0.95: {sum(r < 0.95 for r in ratios)}"
                )
        print("; ".join(text), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", default=["table"], choices=["table", "operators", "chains", "networks"])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--only", nargs="+", default=[], help="programs whose class and name contain one of these texts"
    )
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--mode", default="default")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="sizes for a test of this script")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--floor", type=float, default=0.97)
    parser.add_argument("--out", help="a file for JSON lines")
    options = parser.parse_args()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    programs = _programs(options.groups, options.seed, options.only)
    options.workers = max(1, min(options.workers, len(programs)))
    rows = []
    print(" ".join(f"{s:>8}" for s in SYSTEMS) + " | eager/own, torch/own | distance (eager's) |", flush=True)
    with open(options.out, "a") if options.out else contextlib.nullcontext() as file:
        for row in _rows(options, len(programs)):
            rows.append(row)
            print(_line(row), flush=True)
            if file:
                file.write(json.dumps(row) + "\n")
                file.flush()
    _summary(rows, "group")
    _summary(rows, "kind")
    return int(any("failed" in r or _is_wrong(r) or r.get("errors", {}).get("torchjit") for r in rows))


if __name__ == "__main__":
    sys.exit(main())
