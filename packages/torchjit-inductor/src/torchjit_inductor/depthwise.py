"""Gradients of depthwise convolutions' weights, which oneDNN computes slowly for windows of more than three columns.

Its kernels for weights know windows of up to three columns; others take ten to a hundred times as long as the convolution itself
(docs/benchmarks/cpu.md). `convolution_backward` is divided there: a kernel of ours gives the gradients of weight and bias, aten the image's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import torch

from torchjit_inductor.cpp.depthwise import Taps
from torchjit_inductor.steps import ExternStep, Program, Step, TensorRef

__all__ = ["GradientChoice", "divide_depthwise"]

GradientChoice: TypeAlias = Callable[[Taps], Callable[..., Any] | None]
"""Who computes gradients of weights: a function of the result's gradient, the image, and whether the bias's gradient is wanted."""
WIDEST = 3
"""Columns of the windows that oneDNN has kernels for."""


def divide_depthwise(program: Program, choice: GradientChoice) -> Program:
    """The program with such gradients by `choice`, where it has a kernel."""
    return program.mapped(lambda s: _divided(s, program, choice) if isinstance(s, ExternStep) else [s])


def _divided(step: ExternStep, program: Program, choice: GradientChoice) -> list[Step]:
    if step.op is not torch.ops.aten.convolution_backward.default or len(step.args) != 11 or step.kwargs:
        return [step]
    gradient, image, *_, (of_image, of_weight, of_bias) = step.args
    taps = _taps(step, program)
    if taps is None or not of_weight or (taps.size[1] <= WIDEST and taps.dilation[1] == 1):
        return [step]
    function = choice(taps)
    if function is None:
        return [step]
    outputs = (step.outputs[1], step.outputs[2] if of_bias else None)
    reads = tuple(dict.fromkeys((gradient.buffer, image.buffer)))
    ours = attrs.evolve(step, op=function, args=(gradient, image, of_bias), outputs=outputs, reads=reads, aliases=())
    if not of_image:
        return [ours]
    rest = attrs.evolve(
        step,
        args=(*step.args[:10], (of_image, False, False)),
        outputs=(step.outputs[0], None, None),
    )
    return [ours, rest]


def _taps(step: ExternStep, program: Program) -> Taps | None:
    """Which windows, of a depthwise convolution on the CPU."""
    gradient, image, weight, _, stride, padding, dilation, transposed, _, groups, _ = step.args
    refs = (gradient, image, weight)
    if transposed or not all(isinstance(r, TensorRef) for r in refs):
        return None
    buffers = [program.buffers[r.buffer] for r in refs]
    if any(b.device.type != "cpu" or b.dtype != buffers[0].dtype for b in buffers):
        return None
    sizes = [n.value for n in weight.sizes]
    numbers = (*stride, *padding, *dilation)
    if not all(isinstance(n, int) for n in (*sizes, *numbers, groups)) or len(sizes) not in (3, 4):
        return None
    if sizes[:2] != [groups, 1] or image.sizes[1].value != groups:
        return None
    row = len(sizes) == 3  # the one dimension

    def pair(numbers: Any, above: int) -> tuple[int, int]:
        first, second = (above, *numbers) if row else numbers
        return first, second

    return Taps(pair(sizes[2:], 1), pair(stride, 1), pair(padding, 0), pair(dilation, 1), buffers[0].dtype)
