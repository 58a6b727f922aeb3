"""Kernels that begin while the one before them ends (programmatic dependent launch).

Between two kernels in a stream a GPU is idle for a microsecond, and longer while the last programs of the first one end. From sm_90
on a kernel may begin earlier: as soon as every program of the one before it has begun. It then waits, by an instruction, until that one
has ended and what it wrote can be read. What no kernel of the program writes it may read before that.

What keeps it right, whatever else runs in the stream:

* A kernel begins early only behind a kernel of the same program. So what came before the first of such a row has ended when any of them begins.
* Each of them waits before it writes, and before it reads what the program writes. As all do, one that has ended has waited for those before it.
* A kernel lets the next one begin early only if that is one of them: what follows a program, or comes between its kernels, may rely on anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_inductor.ir.kernel import LoopKernel, Overlap
from torchjit_inductor.steps import ExternStep, KernelStep, Program, Step
from torchjit_inductor.triton.contraction import has_dot

__all__ = ["CAPABILITY", "Accepts", "Others", "overlapped"]

CAPABILITY = 90
"""Compute capability from which on kernels can begin early."""

Accepts = Callable[[LoopKernel], bool]
"""Does the backend make this kernel?"""
Others = Callable[[Any, bool, bool], Any]
"""Of what a step calls: the same as kernels of which the first begins early, and the last lets the next one do so; None: it is no such call."""


def overlapped(program: Program, accepts: Accepts, others: Others) -> Program:
    """The program with kernels that overlap where one follows the other, in rows of kernels of which one has weights to read early."""
    fixed, kernels = _never_written(program), _Kernels(program.steps)
    steps: list[Step] = []
    for _, several in itertools.groupby(program.steps, lambda step: _place(program, step, accepts, others) or step):
        row = list(several)
        if not any(isinstance(step, KernelStep) and _reads_matrix(step, fixed) for step in row):
            steps += row
            continue
        for position, step in enumerate(row):
            early, releases = position > 0, position < len(row) - 1
            if not early and not releases:
                steps.append(step)
            elif isinstance(step, KernelStep):
                own = frozenset(step.kernels_name(n) for n in step.read_buffers if n in fixed)
                overlap = Overlap(early, releases, own)
                steps.append(attrs.evolve(step, kernel=kernels.with_overlap(step.kernel, overlap)))
            else:
                steps.append(attrs.evolve(step, op=others(step.op, early, releases)))
    return attrs.evolve(program, steps=tuple(steps))


def _reads_matrix(step: KernelStep, fixed: frozenset[str]) -> bool:
    """Is it a product of one row with weights, say, which it may read early? Elsewhere overlapping has not been measured."""
    own = {step.kernels_name(n) for n in step.read_buffers if n in fixed}
    outer, inner = ({v.symbol for v in loops} for loops in (step.kernel.outer, step.kernel.inner))
    loads = (v.data for v in step.kernel.values if v.op == "load" and not v.args)
    return any(d.buffer in own and d.index.symbols & outer and d.index.symbols & inner for d in loads)


def _place(program: Program, step: Step, accepts: Accepts, others: Others) -> torch.device | None:
    """The device of a step that launches kernels of ours, whatever its operands are, and nothing else."""
    if isinstance(step, ExternStep):
        ours = others(step.op, False, False) is not None and step.single and step.outputs[0] is not None
        return program.buffers[step.outputs[0]].device if ours and step.outputs[0] is not None else None
    return step.kernel.device if _can_overlap(step.kernel) and accepts(step.kernel) else None


def _can_overlap(kernel: LoopKernel) -> bool:
    """Is it always launched? Products of matrices, whose programs take all there is of a multiprocessor, are left alone."""
    counts = [v.size.value for v in (*kernel.outer, *kernel.inner)]
    return kernel.device.type == "cuda" and not kernel.symbols and all(counts) and not has_dot(kernel)


def _never_written(program: Program) -> frozenset[str]:
    """Inputs and constants that no step writes, or gives a view of."""
    found = {n for n in program.inputs if isinstance(n, str)} | set(program.constants)
    for step in program.steps:
        found.difference_update(step.writes, step.aliases if isinstance(step, ExternStep) else ())
    return frozenset(found)


@final
class _Kernels:
    """Kernels by how they overlap: one that several steps run in different ways is as many kernels."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._names = {s.kernel.name for s in steps if isinstance(s, KernelStep)}
        self._made: dict[tuple[LoopKernel, Overlap], LoopKernel] = {}
        self._seen: set[LoopKernel] = set()

    def with_overlap(self, kernel: LoopKernel, overlap: Overlap) -> LoopKernel:
        """The kernel with this overlap, under a name of its own."""
        key = kernel, overlap
        if key not in self._made:
            name = self._fresh(kernel.name) if kernel in self._seen else kernel.name
            self._made[key] = attrs.evolve(kernel, name=name, overlap=overlap)
            self._seen.add(kernel)
        return self._made[key]

    def _fresh(self, name: str) -> str:
        number = 1
        while f"{name}_{number}" in self._names:
            number += 1
        self._names.add(f"{name}_{number}")
        return f"{name}_{number}"
