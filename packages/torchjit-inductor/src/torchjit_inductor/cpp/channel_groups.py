"""Reductions over a few neighbouring channels of all pixels: first each channel by itself, then the channels of a group.

With the channels innermost, a group norm whose groups have four channels reads four elements of each pixel at a time: less than a
vector, and what it has is added up across lanes for each pixel. A kernel of this kind becomes up to three: `channels` reduces the pixels of
each channel, with all channels side by side in vectors, `groups` joins the channels of each group, and `apply` does what needs
the results at every element, again along all channels. What is the same for all pixels (a root, a quotient) is done by `groups`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import final

import attrs

from torchjit_inductor.indexing import stride
from torchjit_inductor.ir import values as ir
from torchjit_inductor.ir.kernel import (
    Buffer,
    LoopKernel,
    LoopVar,
    Store,
    flat_index,
    inner_symbols,
    iterations,
)
from torchjit_inductor.ir.values import PASSES, Value
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.stages import in_memory_order, mean_of, scratch_buffer, stage_kernel
from torchjit_inductor.steps import KernelStep, Program, Step

__all__ = ["split_groups"]

FEW_CHANNELS = 64
"""From so many channels in a group on, vectors along them are full and what is done for each pixel is little beside them."""
MANY_PIXELS = 64
"""Of fewer, three kernels cost more than they gain."""
_JOINED = frozenset(("sum", "max", "min", "welford_mean", "welford_m2"))


def split_groups(program: Program) -> Program:
    """The program with `_by_channels` done to its kernels for CPUs."""
    buffers, steps = dict(program.buffers), list[Step]()
    for step in program.steps:
        if isinstance(step, KernelStep) and step.kernel.device.type == "cpu":
            kernels, scratch = _by_channels(step.kernel)
            buffers.update((b.name, b) for b in scratch)
            steps += [step] if kernels == (step.kernel,) else map(KernelStep, kernels)
        else:
            steps.append(step)
    return attrs.evolve(program, buffers=buffers, steps=tuple(steps))


def _by_channels(kernel: LoopKernel) -> tuple[tuple[LoopKernel, ...], tuple[Buffer, ...]]:
    """The kernels that take the place of one, in order, and the buffers between them; the kernel itself where it is of another kind."""
    if len(kernel.inner) < 2 or not _joinable(kernel):
        return (kernel,), ()
    joined = merged(kernel)
    channels = _channels_of_a_group(joined)
    return ((kernel,), ()) if channels is None or not _separable(joined) else _Groups(joined, channels).stages()


def _joinable(kernel: LoopKernel) -> bool:
    """Are all sizes known, and all its reductions of one pass and of a kind that can be joined?"""
    passes = [v for v in kernel.values if v.op in PASSES or v.op in ir.IN_ORDER]
    if not passes or kernel.symbols or any(s.scatters for s in kernel.stores):
        return False
    return all(v.op == "reduce" and v.level == 1 and v.data in _JOINED for v in passes)


def _channels_of_a_group(kernel: LoopKernel) -> LoopVar | None:
    """The inner loop along which memory runs for less than a few vectors, and then goes on along an outer loop."""
    return next((v for v in kernel.inner if _few_of_many(kernel, v) and _goes_on_outside(kernel, v)), None)


def _few_of_many(kernel: LoopKernel, channels: LoopVar) -> bool:
    """Has an inner loop too few iterations to fill vectors, and the others together many?"""
    pixels = iterations(v for v in kernel.inner if v is not channels).value
    return 1 < (channels.size.value or 0) < FEW_CHANNELS and (pixels or 0) >= MANY_PIXELS


def _goes_on_outside(kernel: LoopKernel, channels: LoopVar) -> bool:
    """Does memory of all images run along an inner loop, and behind its end along an outer loop?"""
    pixels = {v.symbol for v in kernel.inner if v is not channels}
    images = [v.data.index for v in kernel.values if v.op == "load" and v.data.index.symbols & pixels]

    def steps(var: LoopVar) -> set[int | None]:
        """Elements from one iteration to the next; None where this is no number."""
        found = (stride(index, var.symbol) for index in images)
        return {None if step is None else step.value for step in found}

    return steps(channels) == {1} and any(steps(var) == {channels.size.value} for var in kernel.outer)


def _separable(kernel: LoopKernel) -> bool:
    """Does none of the three read what an earlier one has written?"""
    written: set[str] = set()
    for stage in _stages(kernel.stores):
        if not written.isdisjoint(v.data.buffer for v in ir.walk(*(s.value for s in stage)) if v.op == "load"):
            return False
        written.update(s.buffer for s in stage)
    return True


def _stages(stores: Iterable[Store]) -> tuple[list[Store], list[Store], list[Store]]:
    """The stores that need no reduction, those of a group's results, and those of every element."""
    early, results, late = list[Store](), list[Store](), list[Store]()
    for store in stores:
        (results if store.outer else late if store.value.level else early).append(store)
    return early, results, late


@final
class _Groups:
    """The stages of a kernel.

    Args:
        kernel: with merged loops.
        channels: its inner loop over those of a group.
    """

    def __init__(self, kernel: LoopKernel, channels: LoopVar) -> None:
        self.kernel, self.channels = kernel, channels
        self.pixels = tuple(v for v in kernel.inner if v is not channels)
        self.inner = {v.symbol for v in kernel.inner}
        reductions = [v for v in kernel.values if v.op == "reduce"]
        means = [mean_of(v) for v in reductions if v.data == "welford_m2"]
        self.reductions = tuple(dict.fromkeys((*reductions, *means)))
        self.place = flat_index((*kernel.outer, channels))
        """Of what there is once for each channel."""

    def stages(self) -> tuple[tuple[LoopKernel, ...], tuple[Buffer, ...]]:
        """The kernels, and the buffers between them."""
        early, results, late = _stages(self.kernel.stores)
        each = (*self.kernel.outer, self.channels)
        parts = {v: scratch_buffer(self.kernel, f"channel{n}", v, each) for n, v in enumerate(self.reductions)}
        shared = self._shared_by_pixels([s.value for s in late])
        spread = {v: scratch_buffer(self.kernel, f"group{n}", v, each) for n, v in enumerate(shared)}
        joined = {v: self._join(v, {r: self._load(b, r) for r, b in parts.items()}) for v in self.reductions}
        known = {v: self._load(b, v) for v, b in spread.items()}
        outer = self.kernel.outer
        first = [Store(b.name, self.place, v, outer=True) for v, b in parts.items()]
        second = [attrs.evolve(s, value=_with(s.value, joined)) for s in results]
        second += [Store(b.name, self.place, _with(v, joined)) for v, b in spread.items()]
        third = [attrs.evolve(s, value=_with(s.value, known)) for s in late]
        kernels = [
            stage_kernel(self.kernel, "channels", each, self.pixels, [*early, *first]),
            stage_kernel(self.kernel, "groups", outer, (self.channels,), second),
        ]
        if third:
            loops = in_memory_order((*outer, *self.kernel.inner), third[0].index)
            kernels.append(stage_kernel(self.kernel, "apply", loops, (), third))
        return tuple(kernels), (*parts.values(), *spread.values())

    def _shared_by_pixels(self, values: Sequence[Value]) -> list[Value]:
        """The largest values below these that hold a reduction and do not change along the inner loops."""
        found, seen, stack = dict[Value, None](), set[Value](), list(reversed(values))
        while stack:
            value = stack.pop()
            if value in seen or not value.level:
                continue
            seen.add(value)
            if inner_symbols(value) & self.inner:
                stack.extend(reversed(value.args))
            else:
                found[value] = None
        return list(found)

    def _join(self, value: Value, parts: Mapping[Value, Value]) -> Value:
        """A reduction from its results for each channel of a group, which are over equally many pixels."""
        if value.data != "welford_m2":
            return ir.reduce(value.data, parts[value])
        pixels = ir.constant(float(iterations(self.pixels).value or 0), value.dtype)
        between = ir.reduce("welford_m2", parts[mean_of(value)]) * pixels
        return ir.reduce("sum", parts[value]) + between

    def _load(self, buffer: Buffer, value: Value) -> Value:
        return ir.load(buffer.name, self.place, value.dtype)


def _with(root: Value, replaced: Mapping[Value, Value]) -> Value:
    """A value with others in place of some below it, of which one may hold another."""
    made: dict[Value, Value] = {}
    for node in ir.walk(root):
        args = tuple(made[a] for a in node.args)
        same = node if args == node.args else Value(node.op, args, node.dtype, node.data)
        made[node] = replaced.get(node, same)
    return made[root]
