"""Where the time of a compiled model goes on a CPU: the lines of its host program, each a kernel or an aten call.

    uv run --group models python packages/torchjit-inductor/benchmarks/cpu_profile.py edgenext_xx_small --phase train --top 20

The models are those of `benchmarks/cpu_model_list.py`. Lines are timed by a trace function, which costs about a microsecond
each: read large times only. Times are the least of several steps, in milliseconds: processor time with one thread
(what passes is four times as much for lines of some milliseconds where other processes wait), else the time that passes.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[3]
Line = tuple[str, int]
"""A host program's file name, and a line in it."""


class LineTimer:
    """A trace function that adds up the time of each line of every host program."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.steps: dict[Line, float] = collections.defaultdict(float)
        self._clock = clock
        self._open: dict[int, tuple[Line, float]] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith("<torchjit "):
            return None
        now = self._clock()
        before = self._open.pop(id(frame), None)
        if before is not None:
            self.steps[before[0]] += now - before[1]
        if event == "line":
            self._open[id(frame)] = ((frame.f_code.co_filename, frame.f_lineno), self._clock())
        return self


def main() -> None:
    """Compile one model, time the lines of its host programs, print the slowest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model")
    parser.add_argument("--phase", default="infer", choices=["infer", "train"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--kernels", action="store_true", help="print the text of the slowest kernels too")
    o = parser.parse_args()
    sys.path.insert(0, str(ROOT / "benchmarks"))

    import torch

    import torchjit
    from cpu_model_list import MODELS
    from torchjit_core import events

    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    module, kwargs = MODELS[o.model]()
    module.train(o.phase == "train")
    kernels: dict[str, tuple[str, list[str]]] = {}
    programs: dict[str, list[str]] = {}

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if kind == "kernel":
            kernels[fields["name"]] = (fields["source"], fields["origins"])
        elif kind == "host_program":
            programs[f"<torchjit {fields['name']}>"] = fields["source"].splitlines()

    step = torchjit.compile(module)

    def once() -> None:
        if o.phase == "infer":
            with torch.no_grad():
                step(**kwargs)
            return
        out = step(**kwargs)
        out = out.to_tuple()[0] if hasattr(out, "to_tuple") else out
        module.zero_grad(set_to_none=True)
        out.float().square().mean().backward()

    with events.listen(hear):
        once()
        once()
    best: dict[Line, float] = {}
    for _ in range(o.rounds):
        timer = LineTimer(time.thread_time if o.threads == 1 else time.perf_counter)
        sys.settrace(timer)
        once()
        sys.settrace(None)
        for line, seconds in timer.steps.items():
            best[line] = min(best.get(line, seconds), seconds)
    _print(best, programs, kernels, o)


def _print(
    best: dict[Line, float],
    programs: dict[str, list[str]],
    kernels: dict[str, tuple[str, list[str]]],
    o: argparse.Namespace,
) -> None:
    best = {line: s for line, s in best.items() if line[0] in programs}  # other packages name their files alike
    rows = sorted(((s, *line) for line, s in best.items()), reverse=True)
    print(f"{sum(best.values()) * 1e3:.3f} ms in {len(rows)} lines of {len(programs)} host programs")
    groups: dict[str, float] = collections.defaultdict(float)
    for seconds, program, number in rows:
        text = programs[program][number - 1].strip()
        call = re.search(r"=?\s*([\w.]+)\(", text)
        groups["kernels" if any(k in text for k in kernels) else call[1] if call else text] += seconds
    for name, seconds in sorted(groups.items(), key=lambda g: -g[1])[:8]:
        print(f"{seconds * 1e3:9.3f} ms  {name}")
    print()
    for seconds, program, number in rows[: o.top]:
        text = programs[program][number - 1].strip()
        print(f"{seconds * 1e3:9.3f} ms  {text[:150]}")
        for name in [k for k in kernels if re.search(rf"\b{k}\b", text)]:
            source, origins = kernels[name]
            print("             " + "; ".join(origins)[:300])
            if o.kernels:
                print(source)


if __name__ == "__main__":
    main()
