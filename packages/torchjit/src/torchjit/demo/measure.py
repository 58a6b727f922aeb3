"""One row of the demo: a model and a phase, eager against compiled, checked and timed."""

from __future__ import annotations

import copy
import functools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal, final

import attrs
import torch
from torch import nn

from torchjit.compiler import compilation_of, compile
from torchjit.demo.slowness import library_share, why_not_faster
from torchjit.inspection import describe
from torchjit_core import events

__all__ = ["PHASES", "Row", "measure"]

Phase = Literal["infer", "train"]
PHASES: tuple[Phase, ...] = ("infer", "train")
AS_GOOD = 3.0  # errors of two float32 programs with sums in another order differ by about this much
FLOOR = 1e-5  # a relative error that float32 does not promise to stay under
GRADIENT_FLOOR = 2e-3  # one activation that falls on the other side of a relu moves a small gradient this far


@final
@attrs.frozen
class Agreement:
    """How far the compiled and the eager value lie from the same computation in float64 (norms, relative).

    The float64 run is the reference because deep float32 gradients have few right digits of their own: through
    batch norms in training eager itself is off by a percent, and by ten with tf32 convolutions.
    """

    compiled: float
    eager: float
    allowed: float

    @property
    def good(self) -> bool:
        """The compiled value is about as near the truth as eager's values are."""
        return self.compiled <= self.allowed


def _agreements(
    got: Mapping[str, torch.Tensor], want: Mapping[str, torch.Tensor], truth: Mapping[str, torch.Tensor]
) -> dict[str, Agreement]:
    eager = {k: _error(want[k], truth[k]) for k in want}
    # Which gradient a flipped activation hits is chance, so they are judged by eager's worst one.
    worst_gradient = max((e for k, e in eager.items() if k.startswith("grad")), default=0.0)
    made = {}
    for key, error in eager.items():
        gradient = key.startswith("grad")
        allowed = AS_GOOD * worst_gradient + GRADIENT_FLOOR if gradient else AS_GOOD * error + FLOOR
        made[key] = Agreement(_error(got[key], truth[key]), error, allowed)
    return made


@final
@attrs.frozen
class Row:
    """The figures of one model and phase. Times in milliseconds, medians.

    Attributes:
        kernels: how many were compiled; None where all was found on disk.
        worst: name of the value that agrees least, and its errors.
        right: every output, gradient and buffer is about as near the float64 result as eager's.
        why: for a ratio below 1, what makes it so.
    """

    model: str
    phase: Phase
    eager_ms: float
    compiled_ms: float
    first_call_s: float
    graphs: int
    breaks: int
    kernels: int | None
    worst: tuple[str, Agreement]
    right: bool
    why: str = ""

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
    twin, exact = copy.deepcopy(eager), copy.deepcopy(eager).double()
    compiled = compile(twin, **compile_arguments)
    heard = Counter[str]()

    agreements: dict[str, Agreement] = {}
    with events.listen(lambda kind, fields: heard.update([kind]), ["kernel", "entry_loaded"]):
        start = time.perf_counter()
        got = _step(compiled, twin, inputs, loss, phase)
        _wait(inputs)
        first = time.perf_counter() - start
        # The second step starts from buffers that the first one updated: it checks that they were.
        for step in ("", " (second step)"):
            if step:
                got = _step(compiled, twin, inputs, loss, phase)
            want = _step(eager, eager, inputs, loss, phase)
            truth = _step(exact, exact, inputs.double() if inputs.is_floating_point() else inputs, loss, phase)
            agreements |= {k + step: a for k, a in _agreements(got, want, truth).items()}
    del exact
    worst = max(agreements.items(), key=lambda item: item[1].compiled / item[1].allowed)
    eager_step = functools.partial(_step, eager, eager, inputs, loss, phase, keep=False)
    compiled_step = functools.partial(_step, compiled, twin, inputs, loss, phase, keep=False)
    eager_times, compiled_times = _times(eager_step, compiled_step, inputs, seconds)
    eager_ms, compiled_ms = (statistics.median(times) * 1e3 for times in (eager_times, compiled_times))
    why = ""
    if compiled_ms > eager_ms:
        why = why_not_faster(eager_times, compiled_times, library_share(eager_step, inputs.device.type))
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
        kernels=None if heard["entry_loaded"] and not heard["kernel"] else heard["kernel"],
        worst=worst,
        right=all(a.good for a in agreements.values()),
        why=why,
    )


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
    loss(out).backward()  # type: ignore[no-untyped-call]
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
) -> tuple[list[float], list[float]]:
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
    return times


def _wait(inputs: torch.Tensor) -> None:
    if inputs.is_cuda:
        torch.cuda.synchronize()
