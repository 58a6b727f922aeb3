"""Where the processor time of a capture goes, phase by phase, on a GPT of 12 layers; CI prints it.

    uv run python benchmarks/capture_phases.py [--layers 12]

Each phase is measured around the function that does it, in captures of its own, so that no phase pays for the measuring of
another; minima of several warm captures. "Meta miss" is the first capture of the process, when no outcome is cached.
The VM alone, per instruction, call and guard: `packages/torchjit-vm/benchmarks/capture_phases.py`.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from typing import Any

import torch

import torchjit
import torchjit_fx.domain
import torchjit_fx.metas
import torchjit_fx.region
import torchjit_fx.region_end
import torchjit_fx.tracing
import torchjit_guards
import torchjit_session.site
import torchjit_vm
from torchjit.demo.models import GPT

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

REPEATS = 4


class NotRun(Exception):
    """In the place of a graph's results."""


def take_graph(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
    def run(*inputs: Any) -> Any:
        raise NotRun

    return run


torchjit.register_backend(take_graph, "takes_graph", tags=("debug",))


def capture(model: torch.nn.Module, tokens: torch.Tensor) -> float:
    """Processor seconds of one capture."""
    torchjit.reset()
    compiled = torchjit.compile(model, backend="takes_graph")
    start = time.process_time()
    try:
        compiled(tokens)
    except NotRun:
        return time.process_time() - start
    raise RuntimeError("the graph was not reached")


class Stopwatch:
    """Measures the calls of one function of one owner, while it is entered."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self.seconds, self.calls = 0.0, 0

    def __enter__(self) -> Stopwatch:
        original = self.original = getattr(self.owner, self.name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start
                self.calls += 1

        setattr(self.owner, self.name, timed)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self.owner, self.name, self.original)


PHASES: list[tuple[str, str, Any, str]] = [
    ("an input, its guard", "inputs", torchjit_fx.domain.TensorDomain, "_input_tensor"),
    ("an operation, meta hit", "calls", torchjit_fx.tracing.Recorder, "call"),
    ("a node", "nodes", torchjit_fx.region.GraphWriter, "write"),
    ("conversion to fx, nodes included", "graphs", torchjit_fx.region_end, "_graph"),
    ("guards as data", "lists", torchjit_vm.capture.__globals__["CaptureDomain"], "guards"),
    ("guard program", "programs", torchjit_guards, "GuardProgram"),
    ("hand-over to the backend", "graphs", torchjit_session.site, "hand_over"),
    ("the VM, with all of the above but the guard program", "captures", torchjit_vm, "capture"),
]


def row(name: str, seconds: float, count: int, of: str) -> None:
    print(f"| {name} | {seconds * 1e3:.2f} | {count} {of} | {seconds / max(count, 1) * 1e6:.1f} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()
    model, tokens = GPT(layers=options.layers).eval(), torch.randint(0, 1000, (2, 128))
    print("| phase | ms | of | us each |\n|---|---|---|---|")
    with torch.no_grad():
        with Stopwatch(torchjit_fx.metas.MetaService, "run") as misses:
            first = capture(model, tokens)
        row("first capture of the process", first, 1, "captures")
        row("an operation, meta miss", misses.seconds, misses.calls, "calls")
        for name, of, owner, function in PHASES:
            best: tuple[float, int] | None = None
            for _ in range(REPEATS):
                with Stopwatch(owner, function) as watch:
                    capture(model, tokens)
                best = min(best or (watch.seconds, watch.calls), (watch.seconds, watch.calls))
            if best is not None:
                row(name, *best, of)
        gc.collect()
        row("warm capture", min(capture(model, tokens) for _ in range(REPEATS)), 1, "captures")


if __name__ == "__main__":
    main()
