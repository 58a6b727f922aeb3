"""Fusion with a kernel that runs too early: it is put off until its partner can run, and so is all that waits for it.

A backward graph computes values again just before their first use, which often is a product for the gradient of a weight:
nobody waits for that. The kernel that uses the same values next comes after a product that it does wait for. So the two cannot
be one kernel in the order of the graph, but they can if the gradient's product comes later:

    a = silu(g) * u;  dw = dy.T @ a;  da = dy @ w.T;  dg = silu_backward(da * u, g)
    da = dy @ w.T;  a, dg = one kernel;  dw = dy.T @ a

What is put off keeps what it reads alive for longer, so the memory in use stays within the program's peak.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

import attrs
import torch

from torchjit_core.expr import Symbol
from torchjit_inductor.estimates import bytes_of
from torchjit_inductor.ir.kernel import LoopKernel
from torchjit_inductor.steps import KernelStep, Program, Step, TensorRef, memory_of
from torchjit_torch.operators import draws, is_mutable

__all__ = ["fuse_delayed"]

Join = Callable[[LoopKernel, LoopKernel], LoopKernel | None]


def fuse_delayed(program: Program, hints: Mapping[Symbol, int], join: Join, lookback: int) -> Program:
    """Fuse kernels of a GPU of which the first has to wait for that.

    Args:
        program: fused in the order of the graph.
        hints: a typical value of each size symbol.
        join: one kernel of two, or None.
        lookback: how many steps may lie between the two.
    """
    if not any(isinstance(s, KernelStep) and s.kernel.device.type == "cuda" for s in program.steps):
        return program
    return attrs.evolve(program, steps=tuple(_Delays(program, hints, join, lookback).run()))


@final
class _Delays:
    def __init__(self, program: Program, hints: Mapping[Symbol, int], join: Join, lookback: int) -> None:
        self.steps: list[Step] = list(program.steps)
        self.join, self.lookback = join, lookback
        self.made: set[Step] = set()
        self.apart: set[tuple[Step, Step]] = set()
        self.accesses: dict[Step, tuple[set[str], set[str]]] = {}
        self.sizes = {name: bytes_of(buffer, hints) for name, buffer in program.buffers.items()}
        self.memory = memory_of(self.steps)
        self.kept = {o.buffer for o in program.outputs if isinstance(o, TensorRef)}
        self.written = {name for step in self.steps for name in step.writes}
        self.last: dict[str, int] = {}
        for position, step in enumerate(self.steps):
            for name in (*step.reads, *step.writes):
                self.last[name] = position
        self.used = self._in_use(self.steps, len(self.steps) - 1)
        self.peak = max(self.used, default=0)

    def run(self) -> list[Step]:
        position = 0
        while position < len(self.steps):
            # The joined kernel takes this step's place, or an earlier one, and may find another partner.
            made = self._joined(position)
            position = position + 1 if made is None else made
        return self.steps

    def _joined(self, position: int) -> int | None:
        """Fuse an earlier kernel into the one at a position; the position of the result."""
        step = self.steps[position]
        if not isinstance(step, KernelStep) or step.kernel.device.type != "cuda":
            return None
        for at in self._partners(position, step.kernel):
            first = self.steps[at]
            if (first, step) in self.apart:
                continue
            waiting = self._waiting(at, position)
            # Where nothing is in between that waits, only kernels that were made here are new to one another.
            if waiting is None or not (waiting or step in self.made or first in self.made):
                continue
            assert isinstance(first, KernelStep)
            kernel = self.join(first.kernel, step.kernel)
            if kernel is None:
                self.apart.add((first, step))
                continue
            before = [self.steps[k] for k in range(at + 1, position) if k not in waiting]
            joined = KernelStep(kernel)
            if self._replace(at, position, [*before, joined, *(self.steps[k] for k in waiting)]):
                self.made.add(joined)
                return at + len(before)
        return None

    def _partners(self, position: int, kernel: LoopKernel) -> list[int]:
        """Earlier kernels that share memory with the one at a position: those that share most first, of these the nearest."""
        mine = {n for n in kernel.buffers if self.sizes.get(n)}
        partners = []
        for at in range(max(position - self.lookback, 0), position):
            other = self.steps[at]
            if isinstance(other, KernelStep) and other.kernel.device == kernel.device:
                shared = sum(self.sizes[n] for n in mine.intersection(other.kernel.buffers))
                if shared:
                    partners.append((-shared, -at))
        return [-negative for _, negative in sorted(partners)]

    def _waiting(self, at: int, position: int) -> list[int] | None:
        """The steps between the two that have to come after the first one, in order; None if the second is to come after one of
        them, or if one of them must not wait."""
        moved = [self.steps[at]]
        waiting: list[int] = []
        for k in range(at + 1, position):
            step = self.steps[k]
            if any(self._ordered(m, step) for m in moved):
                if not _may_wait(step):
                    return None
                moved.append(step)
                waiting.append(k)
        last = self.steps[position]
        return None if any(self._ordered(m, last) for m in moved[1:]) else waiting

    def _ordered(self, first: Step, second: Step) -> bool:
        """Must the two stay in this order?"""
        (reads, writes), (later_reads, later_writes) = self._accesses(first), self._accesses(second)
        return not (
            writes.isdisjoint(later_writes) and writes.isdisjoint(later_reads) and reads.isdisjoint(later_writes)
        )

    def _accesses(self, step: Step) -> tuple[set[str], set[str]]:
        """What a step reads and writes, by the names of memory that is shared."""
        if step not in self.accesses:
            reads, writes = (
                {m for n in names for m in self.memory.get(n, (n,))} for names in (step.reads, step.writes)
            )
            self.accesses[step] = reads, writes
        return self.accesses[step]

    # ------------------------------------------------------------------ memory
    def _replace(self, start: int, stop: int, window: list[Step]) -> bool:
        """Put other steps in the place of those from `start` to `stop`, if that takes no more memory than there is in use
        anywhere."""
        was = self._in_use(self.steps[start : stop + 1], stop)
        now = self._in_use(window, stop)
        beside = self.used[start] - was[0]
        if max(now) > max(was) and beside + max(now) > self.peak:
            return False
        for position, step in enumerate(window, start):
            for name in (*step.reads, *step.writes):
                if self.last[name] <= stop:
                    self.last[name] = position
        shift = stop + 1 - start - len(window)
        self.steps[start : stop + 1] = window
        self.used[start : stop + 1] = [beside + n for n in now]
        for name, position in self.last.items():
            if position > stop:
                self.last[name] = position - shift
        return True

    def _in_use(self, steps: Sequence[Step], stop: int) -> list[int]:
        """Bytes that the buffers that these steps touch hold during each of them, those that die here and those that live on.

        Args:
            steps: of the program, the last of which is the one at `stop`.
        """
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        made: set[str] = set()
        for position, step in enumerate(steps):
            for name in (*step.reads, *step.writes):
                if name in step.writes and name not in first and name in self.written:
                    made.add(name)
                first.setdefault(name, position)
                last[name] = position
        changes = [0] * (len(steps) + 1)
        for name in first:
            size = self.sizes.get(name, 0)
            changes[first[name] if name in made else 0] += size
            if self.last[name] <= stop and name not in self.kept:
                changes[last[name] + 1] -= size
        used, live = [], 0
        for change in changes[:-1]:
            live += change
            used.append(live)
        return used


def _may_wait(step: Step) -> bool:
    """Is the step's time of no importance: no collective, no random numbers, nothing that the host program reads?"""
    if isinstance(step, KernelStep):
        return True
    if (
        step.mutates
        or step.number is not None
        or step.sizes
        or step.tested
        or not isinstance(step.op, torch._ops.OpOverload)
    ):
        return False
    return step.op.namespace == "aten" and not draws(step.op) and not is_mutable(step.op)
