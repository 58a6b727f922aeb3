"""On GPUs: totals of what is made row by row are summed by the kernel that has the row, and few elements far apart are written out. Point by point, against eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch
from test_inductor_gpu_lowerings import traced
from test_inductor_norms_on_gpus import kernels_of
from test_inductor_traffic import results
from torch import Tensor

from torchjit_inductor.ir.kernel import LoopKernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule import row_totals
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import FusionLimits, fuse
from torchjit_inductor.schedule.row_totals import total_by_rows
from torchjit_inductor.steps import Program
from torchjit_inductor.triton import unrolled as few
from torchjit_inductor.triton.split_reduction import split_program
from torchjit_inductor.triton.unrolled import unrolled

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_totals, "_ROWS", 16)
    monkeypatch.setattr(few, "_MANY", 64)


def program_of(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Program:
    gm, limits = traced(function, inputs), FusionLimits()
    fused = fuse(total_by_rows(lower_graph(gm, "graph"), {}, limits), {}, limits)
    program = split_program(rename_kernels(remove_dead_stores(fused)), {})
    for kernel in kernels_of(program):
        kernel.verify_nodes(program.buffers)
    return program


def agree(function: Callable[..., Any], inputs: Sequence[Tensor], program: Program) -> None:
    want = function(*inputs)
    got = results(program, [i.as_strided((i.numel(),), (1,)) for i in inputs], {})
    for g, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5)


def sums_rows(kernel: LoopKernel) -> bool:
    return bool(kernel.outer) and bool(kernel.inner)


def _soft_cross_entropy(x: Tensor, y: Tensor) -> Any:
    return (aten._log_softmax(x, 1, False) * aten._softmax(y, 1, False)).sum() / -x.shape[0]


def _kl(x: Tensor, y: Tensor) -> Any:
    target, given = aten._softmax(y, 1, False), aten._log_softmax(x, 1, False)
    return (target * (target.log() - given)).sum() / x.shape[0]


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    norms = [(t * t).sum(1, keepdim=True).sqrt().clamp(min=1e-8) for t in (x, y)]
    return (1 - ((x / norms[0]) * (y / norms[1])).sum(1)).mean()


def _columns(x: Tensor) -> Tensor:
    return (x - x.amax(0, keepdim=True)).exp().sum()


def _extremes(x: Tensor) -> tuple[Tensor, Tensor]:
    centred = x - x.mean(1, keepdim=True)
    return centred.amax(), (centred > 0).any()


ROWS = [torch.randn(40, 24, generator=torch.Generator().manual_seed(n)) for n in (0, 1)]
TOTALS: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "soft cross entropy": (_soft_cross_entropy, ROWS),
    "KL divergence": (_kl, ROWS),
    "cosine similarity": (_cosine, ROWS),
    "columns": (_columns, ROWS[:1]),
    "an extreme, and whether there is any": (_extremes, ROWS[:1]),
}


@pytest.mark.parametrize("name", TOTALS)
def test_rows_are_read_once(name: str) -> None:
    function, inputs = TOTALS[name]
    program = program_of(function, inputs)
    first, *rest = kernels_of(program)
    assert sums_rows(first) and set(first.reads) == {n for n in program.inputs if isinstance(n, str)}
    assert not any(set(first.reads) & set(kernel.reads) for kernel in rest)
    agree(function, inputs, program)


def test_few_rows_are_summed_as_one() -> None:
    """Their programs would be too few."""
    inputs = [torch.randn(8, 24)]

    def function(x: Tensor) -> Tensor:
        return (x - x.amax(1, keepdim=True)).exp().sum()

    program = program_of(function, inputs)
    assert not kernels_of(program)[-1].outer
    agree(function, inputs, program)


def test_a_total_of_something_else_stays() -> None:
    """What is read a row, but of none of what the rows were made of."""
    inputs = [torch.randn(40, 24), torch.randn(40, 24)]

    def function(x: Tensor, y: Tensor) -> Tensor:
        return (y - x.amax(1, keepdim=True)).sum()

    program = program_of(function, inputs)
    assert not kernels_of(program)[-1].outer
    agree(function, inputs, program)


def _with_mean(x: Tensor) -> Any:
    return aten.var_mean.correction(x, [0])


FEW: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(0),
    "product": lambda x: x.prod(0),
    "extremes": lambda x: (x.amax(0), x.amin(0, keepdim=True), (x > 0).any(0), (x > -1).all(0)),
    "variance": _with_mean,
    "softmax": lambda x: aten._softmax(x, 0, False),
    "log softmax": lambda x: aten._log_softmax(x, 0, False),
    "normalised": lambda x: (x - x.mean(0)) / (x.std(0) + 1),
}


@pytest.mark.parametrize("count", [2, 4, 7])
@pytest.mark.parametrize("name", FEW)
def test_few_elements_far_apart_are_written_out(name: str, count: int) -> None:
    inputs = [torch.randn(count, 6, 33, generator=torch.Generator().manual_seed(count))]
    inputs[0][0, 0, 0] = float("nan")
    if "variance" not in name and "normalised" not in name:  # eager's mean of infinity and numbers is none
        inputs[0][0, 0, 1] = float("inf")
    program = program_of(FEW[name], inputs)
    assert not any(kernel.inner for kernel in kernels_of(program))
    want = FEW[name](*inputs)
    got = results(program, [inputs[0].flatten()], {})
    for g, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    "function", [lambda x: x.argmax(0), lambda x: x.cumsum(0), lambda x: x.sum(2)], ids=["positions", "running", "rows"]
)
def test_what_has_an_order_or_lies_close_stays_a_reduction(function: Callable[[Tensor], Tensor]) -> None:
    inputs = [torch.randn(4, 6, 33)]
    program = program_of(function, inputs)
    assert any(kernel.inner for kernel in kernels_of(program))
    agree(function, inputs, program)


def test_what_is_written_in_place_is_not_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store would come before what another element of the column reads."""
    monkeypatch.setattr(few, "_FEW", 0)
    program = program_of(FEW["softmax"], [torch.randn(4, 6, 33)])
    monkeypatch.setattr(few, "_FEW", 8)
    (kernel,) = kernels_of(program)
    in_place = attrs.evolve(kernel, stores=tuple(attrs.evolve(s, buffer=kernel.reads[0]) for s in kernel.stores))
    assert unrolled(in_place, program.buffers, {}) is in_place
    assert unrolled(kernel, program.buffers, {}) is not kernel
