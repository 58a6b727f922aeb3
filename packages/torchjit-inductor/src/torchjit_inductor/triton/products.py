"""Which products of a program stay kernels: what changes with each is measured, fusion by fusion.

A product as a kernel takes in what follows it; as a call of aten it leaves that to other kernels, which may do it for
nothing on the way (a normalisation that reads the sum anyway). So the question is not which product is faster, but which
program: products are put into classes that look alike, the program is fused with each class as kernels and with none,
and the kernels and calls in which the two differ are timed.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Set
from typing import Protocol, TypeAlias

import attrs

from torchjit_core.events import emit
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.steps import KernelStep, Program, Step
from torchjit_inductor.triton.contraction import has_dot

__all__ = ["StepTimer", "settle_products"]

GAIN = 0.95
"""A program with kernels must take at most this part of the time of the one without, in the steps that differ."""


class StepTimer(Protocol):
    """Who measures."""

    def look(self, step: Step, buffers: Mapping[str, Buffer]) -> object:
        """Equal for steps that take equally long."""
        ...

    def seconds(self, step: Step, buffers: Mapping[str, Buffer]) -> float | None:
        """Device seconds of a step; None where it cannot be measured."""
        ...

    def wins_alone(self, kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> bool:
        """Is a kernel that only multiplies faster than the library?"""
        ...


_Samples: TypeAlias = "dict[object, tuple[Step, Mapping[str, Buffer]]]"
"""Steps that can be timed, one of those that look alike."""


def settle_products(program: Program, fused: Callable[[Program], Program], timer: StepTimer) -> Program:
    """The program before fusion, with products that are better left to aten as calls of it.

    Args:
        program: with the kernels of `Program.products`.
        fused: what fusion and cleaning up make of a program.
        timer: of the device.
    """
    whole = fused(program)
    plain = {
        name: step.kernel
        for step in program.steps
        if isinstance(step, KernelStep)
        for name in step.writes
        if name in program.products
    }
    kept: set[str] = set()
    classes: dict[object, list[str]] = {}
    for step in whole.steps:
        if isinstance(step, KernelStep) and has_dot(step.kernel):
            # The last origin of a product's kernel is the product: what joins it comes behind.
            name = next(n for n, k in plain.items() if k.origins[-1] in step.kernel.origins)
            if step.kernel.origins != plain[name].origins:
                classes.setdefault(timer.look(step, whole.buffers), []).append(name)
            elif timer.wins_alone(step.kernel, whole.buffers):
                kept.add(name)
    if classes:
        none, of_none = _steps(fused(_with_calls(program, plain.keys())), timer)
    for names in classes.values():
        some, of_some = _steps(fused(_with_calls(program, plain.keys() - set(names))), timer)
        new = _total(of_some, some - none, timer)
        old = _total(of_none, none - some, timer)
        stays = new is not None and old is not None and new < GAIN * old
        emit("product_settled", products=sorted(names), kernel_seconds=new, library_seconds=old, kept=stays)
        if stays:
            kept.update(names)
    return _with_calls(program, plain.keys() - kept)


def _with_calls(program: Program, names: Set[str]) -> Program:
    """The program with these products as calls of aten."""
    steps: list[Step] = []
    for step in program.steps:
        name = next((n for n in step.writes if n in names), None) if isinstance(step, KernelStep) else None
        steps.append(step if name is None else program.products[name])
    left = {n: s for n, s in program.products.items() if n not in names}
    return attrs.evolve(program, steps=tuple(steps), products=left)


def _steps(program: Program, timer: StepTimer) -> tuple[collections.Counter[object], _Samples]:
    """How often each look occurs, and a sample of it."""
    looks = [timer.look(step, program.buffers) for step in program.steps]
    samples: _Samples = {
        look: (step, program.buffers) for look, step in zip(reversed(looks), reversed(program.steps), strict=True)
    }
    return collections.Counter(looks), samples


def _total(samples: _Samples, counts: Mapping[object, int], timer: StepTimer) -> float | None:
    total = 0.0
    for look, count in counts.items():
        took = timer.seconds(*samples[look])
        if took is None:
            return None
        total += took * count
    return total
