"""One row of the demo: a model and a phase, eager against compiled, checked and timed."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, final

import attrs
import torch
from torch import nn

from torchjit.compiler import compilation_of, compile
from torchjit.inspection import describe
from torchjit_core import events

__all__ = ["Row", "measure"]

Phase = Literal["infer", "train"]


@final
@attrs.frozen
class Row:
    """The figures of one model and phase. Times in milliseconds, medians; errors are norms of differences over norms.

    Attributes:
        worst: name of the value that differs most from eager, and its relative error.
        right: every value is within its tolerance.
    """

    model: str
    phase: Phase
    eager_ms: float
    compiled_ms: float
    first_call_s: float
    graphs: int
    breaks: int
    kernels: int
    worst: tuple[str, float]
    right: bool

    @property
    def ratio(self) -> float:
        """How many times faster than eager."""
        return self.eager_ms / self.compiled_ms


def measure(
    name: str,
    make: Callable[[], nn.Module],
    inputs: torch.Tensor,
    loss: Callable[[Any], torch.Tensor],
    phase: Phase,
    *,
    seconds: float = 4.0,
    **compile_arguments: Any,
) -> Row:
    """Compile a copy of the model, compare it with eager, and time both in turns.

    Args:
        name: for the table.
        make: makes the model, on the device of `inputs`.
        inputs: its only argument.
        loss: the model's output -> a scalar to differentiate.
        phase: `infer` runs under no_grad in eval mode; `train` runs forward, backward and buffer updates.
        seconds: budget of the timing.
        compile_arguments: for `torchjit.compile`.
    """
    torch.manual_seed(0)
    eager = make().train(phase == "train")
    twin = copy.deepcopy(eager)
    compiled = compile(twin, **compile_arguments)
    kernels: list[str] = []

    def count(kind: str, fields: dict[str, Any]) -> None:
        if kind == "kernel":
            kernels.append(fields["name"])

    with events.listen(count):
        start = time.perf_counter()
        got = _step(compiled, twin, inputs, loss, phase)
        _wait(inputs)
        first = time.perf_counter() - start
        # The second step starts from buffers that the first one updated: it checks that they were.
        want = _step(eager, eager, inputs, loss, phase)
        got2, want2 = _step(compiled, twin, inputs, loss, phase), _step(eager, eager, inputs, loss, phase)
    errors = {k: _error(got[k], v) for k, v in want.items()}
    errors |= {f"{k} (second step)": _error(got2[k], v) for k, v in want2.items()}
    worst = max(errors.items(), key=lambda item: item[1])
    eager_ms, compiled_ms = _times(
        lambda: _step(eager, eager, inputs, loss, phase, keep=False),
        lambda: _step(compiled, twin, inputs, loss, phase, keep=False),
        inputs,
        seconds,
    )
    compilation = compilation_of(compiled)
    told = None if compilation is None else describe(compilation)
    return Row(
        model=name,
        phase=phase,
        eager_ms=eager_ms,
        compiled_ms=compiled_ms,
        first_call_s=first,
        graphs=told.graph_count if told else 0,
        breaks=told.graph_break_count if told else 0,
        kernels=len(kernels),
        worst=worst,
        right=all(error <= _tolerance(key) for key, error in errors.items()),
    )


def _tolerance(key: str) -> float:
    # float32 sums in another order; gradients pass through many layers of them.
    return 2e-3 if key.startswith("grad") else 1e-4


def _step(
    f: Callable[..., Any],
    module: nn.Module,
    inputs: torch.Tensor,
    loss: Callable[[Any], torch.Tensor],
    phase: Phase,
    keep: bool = True,
) -> Mapping[str, torch.Tensor]:
    if phase == "infer":
        with torch.no_grad():
            out = f(inputs)
        return {"output": out}
    module.zero_grad(set_to_none=True)
    out = f(inputs)
    loss(out).backward()
    if not keep:
        return {}
    values = {"output": out.detach()}
    values |= {f"grad {k}": p.grad.clone() for k, p in module.named_parameters() if p.grad is not None}
    values |= {f"buffer {k}": b.clone() for k, b in module.named_buffers()}
    return values


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    difference = (got.double() - want.double()).norm()
    scale = want.double().norm()
    error = float(difference / scale) if scale > 0 else float(difference)
    return error if error == error else float("inf")


def _times(
    eager: Callable[[], Any], compiled: Callable[[], Any], inputs: torch.Tensor, seconds: float
) -> tuple[float, float]:
    for f in (eager, compiled, eager, compiled):
        f()
    _wait(inputs)
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while len(times[0]) < 5 or (time.perf_counter() < end and len(times[0]) < 200):
        for kept, f in zip(times, (eager, compiled), strict=True):
            start = time.perf_counter()
            f()
            _wait(inputs)
            kept.append(time.perf_counter() - start)
    return statistics.median(times[0]) * 1e3, statistics.median(times[1]) * 1e3


def _wait(inputs: torch.Tensor) -> None:
    if inputs.is_cuda:
        torch.cuda.synchronize()
