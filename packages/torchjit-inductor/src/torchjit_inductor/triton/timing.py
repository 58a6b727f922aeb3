"""How long things take on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from torchjit_inductor.ir.kernel import Buffer
from torchjit_inductor.steps import ExternStep, TensorRef

__all__ = ["device_seconds", "random_like", "runner_of", "spread_ends"]

ROUNDS = 12
FLUSHED = 128 << 20
"""Bytes written before a run that is to find the cache without its operands: more than the cache holds."""
BUSY = 60_000
"""Cycles for which the device is kept busy while the host gets a run ready, or its time would be part of the run's."""


def device_seconds(runs: Sequence[Callable[[], object]], *, cold: bool, device: torch.device) -> list[float]:
    """Median device seconds of each, in turns.

    Args:
        runs: each enqueues work on the current stream.
        cold: without operands in the cache, as weights are; else with what the run before has left there.
        device: of all.
    """
    flush = torch.empty(FLUSHED if cold else 1, dtype=torch.int8, device=device)
    marks: list[list[tuple[Any, Any]]] = [[] for _ in runs]
    for number in range(ROUNDS + 1):
        for run, kept in zip(runs, marks, strict=True):
            flush.zero_()
            torch.cuda._sleep(BUSY)  # type: ignore[no-untyped-call]
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            run()
            end.record()
            if number:
                kept.append((begin, end))
    torch.cuda.synchronize(device)
    return [sorted(b.elapsed_time(e) for b, e in kept)[len(kept) // 2] / 1e3 for kept in marks]


def spread_ends(count: int, length: int) -> torch.Tensor:
    """Where so many groups end that divide a length into parts of uneven sizes, each a multiple of 16 if the length is."""
    weights = 1 + torch.arange(count) % 3
    ends = (weights.cumsum(0) * length / weights.sum() / 16).round() * 16
    ends[-1] = length
    return ends.clamp(max=length).to(torch.int32)


def random_like(
    names: Iterable[str], buffers: Mapping[str, Buffer], ends: Mapping[str, int] | None = None
) -> dict[str, torch.Tensor]:
    """A flat tensor for each buffer of fixed size: normal numbers, any int8, zeros of the types that positions have.

    Args:
        ends: buffers that say where groups end, with the length that they divide.
    """
    made: dict[str, torch.Tensor] = {}
    for name in names:
        buffer = buffers[name]
        # A generator of its own: the user's random numbers do not depend on what is measured.
        generator = torch.Generator(buffer.device).manual_seed(0)
        size = (max(buffer.span.evaluate({}), 1),)
        if ends is not None and name in ends:
            made[name] = spread_ends(size[0], ends[name]).to(buffer.device)
        elif buffer.dtype.is_floating_point:
            values = torch.randn(size, generator=generator, device=buffer.device, dtype=torch.float32)
            made[name] = values.to(buffer.dtype)
        elif buffer.dtype == torch.int8:
            made[name] = torch.randint(-127, 128, size, generator=generator, dtype=torch.int8, device=buffer.device)
        else:
            made[name] = torch.zeros(size, dtype=buffer.dtype, device=buffer.device)
    return made


def runner_of(step: ExternStep, buffers: Mapping[str, Buffer]) -> Callable[[], object] | None:
    """The call of an operator on random operands; None where an argument is not known before the run."""
    ends = {}
    if step.op is getattr(getattr(torch.ops.aten, "_grouped_mm", None), "default", None) and len(step.args) > 2:
        left, right, offsets, *_ = step.args
        if isinstance(offsets, TensorRef):
            ranks = len(left.sizes), len(right.sizes)
            length = left.sizes[0] if ranks == (2, 3) else right.sizes[1] if ranks == (3, 2) else left.sizes[1]
            ends = {offsets.buffer: length.evaluate({})}
    memory = random_like(step.reads, buffers, ends)

    def argument(leaf: Any) -> Any:
        if isinstance(leaf, TensorRef):
            sizes = [e.evaluate({}) for e in leaf.sizes]
            return memory[leaf.buffer].as_strided(
                sizes, [e.evaluate({}) for e in leaf.strides], leaf.offset.evaluate({})
            )
        if isinstance(leaf, (list, tuple)):
            return type(leaf)(map(argument, leaf))
        if leaf is None or isinstance(leaf, (int, float, bool, torch.dtype)):
            return leaf
        raise _Unknown

    try:
        args = [argument(a) for a in step.args]
        kwargs = {name: argument(a) for name, a in step.kwargs.items()}
    except _Unknown:
        return None
    return lambda: step.op(*args, **kwargs)


class _Unknown(Exception):
    """An argument that only the run has."""
