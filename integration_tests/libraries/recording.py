"""What a program of this folder does: steps, each with a value that eager PyTorch must give too, and the moment of its end."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from unittest import mock

import attrs
import torch

import torchjit

__all__ = ["PROGRAMS", "Outcome", "Program", "Run", "outcome_of", "program"]

STEPS = 50
Body: TypeAlias = "Callable[[Run], None]"


def _seconds() -> float:
    """Processor seconds of this process and of the compilers that it started: other programs of the machine do not count."""
    return time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


@attrs.define
class Run:
    """One run of a program: `compiled` says whether it switches the library's compilation on."""

    compiled: bool
    steps: int = STEPS
    values: list[torch.Tensor] = attrs.field(factory=list)
    moments: list[float] = attrs.field(factory=list)
    latencies: list[float] = attrs.field(factory=list)  # seconds that requests waited, by the clock
    warm: tuple[int, int] | None = None  # regions and breaks when the program said that it has warmed up

    def start(self) -> None:
        """All is built; the next thing is the first step."""
        self.moments = [_seconds()]

    def step(self, value: Any) -> None:
        """A step has ended with `value`: a tensor or a number."""
        self.values.append(torch.as_tensor(value).detach().clone())
        self.moments.append(_seconds())

    def warmed_up(self) -> None:
        """What comes now must not compile anything."""
        self.warm = _counted()


@attrs.frozen
class Program:
    """`body(run)` follows the library's own example; compiled, it makes at most `graphs` graphs (recompilations included) and `breaks` breaks."""

    name: str
    packages: tuple[str, ...]
    body: Body
    graphs: int
    breaks: int = 0
    tolerance: float = 1e-4


@attrs.frozen
class Outcome:
    values: list[torch.Tensor]
    first: float  # seconds of the first step
    step: float  # seconds of a step: the median of the second half; of requests that threads answer the mean
    graphs: int
    breaks: dict[str, int]
    recompiles: int
    late_graphs: int  # those made after `warmed_up`
    latencies: list[float]


PROGRAMS: dict[str, Program] = {}


def program(name: str, *packages: str, graphs: int, breaks: int = 0, tolerance: float = 1e-4) -> Callable[[Body], Body]:
    """Register a program under `name`; it is skipped where one of `packages` is absent."""

    def registered(body: Body) -> Body:
        PROGRAMS[name] = Program(name, packages, body, graphs, breaks, tolerance)
        return body

    return registered


def _counted() -> tuple[int, int]:
    counters = torchjit.counters
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def _counted_upstream() -> tuple[int, dict[str, int], int]:
    """Graphs, breaks and recompilations of torch.compile since its counters were cleared. Each compilation is named `frame/which`."""
    import torch._dynamo.utils as upstream  # only where it is measured

    made = {str(metrics.compile_id) for metrics in upstream.get_compilation_metrics() if metrics.compile_id}
    again = sum(not name.endswith("/0") for name in made)
    return upstream.counters["stats"]["unique_graphs"], dict(upstream.counters["graph_break"]), again


def _forget_upstream() -> None:
    import torch._dynamo.utils as upstream

    torch._dynamo.reset()
    upstream.counters.clear()
    upstream.clear_compilation_metrics()


@contextmanager
def _torch_compile(how: str) -> Iterator[None]:
    """`torch.compile` is torchjit's in the block, where `how` says so: the one line that a program needs."""
    if how == "torchjit":
        with torchjit.replace_torch_compile():
            yield
    else:
        yield


def _forget_accelerate() -> None:
    """Its settings are the process's: what it compiles with is taken from the first program that says so."""
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)


def outcome_of(program: Program, how: str, steps: int = STEPS) -> Outcome:
    """Run `program` in eager mode (`how` is "eager"), with torchjit, or with torch.compile ("upstream")."""
    torchjit.reset()
    if how == "upstream":
        _forget_upstream()
    torch.manual_seed(0)
    run = Run(how != "eager", steps)
    with mock.patch.dict(os.environ), _torch_compile(how):
        _forget_accelerate()
        program.body(run)
    took = [after - before for before, after in zip(run.moments, run.moments[1:])]
    late = sorted(took[len(took) // 2 :])
    step = late[len(late) // 2]
    if run.latencies:  # answers of several threads end in no order
        step = sum(took[-len(run.latencies) :]) / len(run.latencies)
    graphs, _ = _counted()
    late_graphs = graphs - run.warm[0] if run.warm else 0
    breaks, recompiles = dict(torchjit.counters["graph_break"]), sum(torchjit.counters["recompiles"].values())
    if how == "upstream":
        graphs, breaks, recompiles = _counted_upstream()
    torchjit.reset()
    waited = sorted(run.latencies)
    return Outcome(run.values, took[0], step, graphs, breaks, recompiles, late_graphs, waited)
