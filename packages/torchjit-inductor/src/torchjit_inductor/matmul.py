"""Which library multiplies matrices on the CPU: aten (MKL or OpenBLAS) or oneDNN, chosen per shape by a short race.

oneDNN's linear is more than twice as fast as MKL on AMD processors, and the other way round elsewhere: nobody can know
without trying. A race is run once for each shape, for about as long as a few such products take (see `benchmark_choice.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import torch

from torchjit_core.expr import Expr, Symbol
from torchjit_inductor.benchmark_choice import AutotuneCache
from torchjit_inductor.estimates import estimate
from torchjit_inductor.steps import ExternStep, Program, TensorRef

__all__ = ["choose_matmuls"]

GAIN = 0.9
"""oneDNN must take at most this share of aten's time."""
MAX_FLOPS = 2e10
"""Larger products are not raced, to keep compilation short: they go where a capped one goes."""


def choose_matmuls(program: Program, hints: Mapping[Symbol, int], cache: AutotuneCache) -> Program:
    """Replace float32 `mm` and `addmm` calls by oneDNN's linear where that is faster.

    Args:
        hints: a typical value of each size symbol.
    """
    linear = _linear()
    if linear is None:
        return program
    return program.mapped(lambda s: [_chosen(s, program, hints, linear, cache) if isinstance(s, ExternStep) else s])


def _linear() -> Any:
    packet = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None  # type: ignore[no-untyped-call]
    return None if packet is None else packet.default


def _chosen(
    step: ExternStep, program: Program, hints: Mapping[Symbol, int], linear: Any, cache: AutotuneCache
) -> ExternStep:
    """The step, or the same product by oneDNN."""
    if step.op is torch.ops.aten.mm.default:
        bias, (left, right) = None, step.args
    elif step.op is torch.ops.aten.addmm.default and len(step.args) == 3 and not step.kwargs:
        bias, left, right = step.args
        if len(bias.sizes) != 1:
            return step
    else:
        return step
    buffer = program.buffers[left.buffer]
    if buffer.dtype != torch.float32 or buffer.device.type != "cpu":
        return step
    if program.buffers[right.buffer].dtype != torch.float32:
        return step
    if any(_may_be_zero(size) for size in (*left.sizes, *right.sizes)):
        return step  # oneDNN refuses it
    turned = attrs.evolve(right, sizes=right.sizes[::-1], strides=right.strides[::-1])
    if not _onednn_wins(_shape(left, hints), _shape(turned, hints), bias is not None, linear, cache):
        return step
    return attrs.evolve(step, op=linear, args=(left, turned, bias, "none", [], ""), kwargs={})


def _may_be_zero(size: Expr) -> bool:
    return size.value == 0 or any(symbol.bounds.lower is None or symbol.bounds.lower <= 0 for symbol in size.symbols)


def _shape(ref: TensorRef, hints: Mapping[Symbol, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(estimate(e, hints) for e in ref.sizes), tuple(estimate(e, hints) for e in ref.strides)


def _onednn_wins(left: Any, right: Any, has_bias: bool, linear: Any, cache: AutotuneCache) -> bool:
    (rows, depth), (columns, _) = left[0], right[0]
    if min(rows, depth, columns) == 0 or 2.0 * rows * depth * columns > MAX_FLOPS:
        return False

    def contest() -> tuple[Callable[[], object], Callable[[], object]]:
        a, w = _sample(*left), _sample(*right)
        bias = _sample((columns,), (1,)) if has_bias else None
        out = _sample((rows, columns), (columns, 1))
        addmm, mm = torch.ops.aten.addmm.out, torch.ops.aten.mm.out
        plain = (lambda: mm(a, w.t(), out=out)) if bias is None else (lambda: addmm(bias, a, w.t(), out=out))
        return lambda: linear(a, w, bias, "none", [], ""), plain

    first, second = cache.times(("linear", left, right, has_bias), contest)
    return first < GAIN * second


def _sample(sizes: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    made = torch.empty_strided(sizes, strides, dtype=torch.float32, device="cpu")  # the program may have other defaults
    return made.fill_(0.5)
