"""What kernels that have whole rows or columns do besides, on GPUs: totals over all rows, few elements far apart written out, sums of columns.

Point by point against eager, and in Triton's interpreter against what the loops mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch
from inductor_interpreter import INTERPRETING
from test_inductor_gpu_lowerings import traced
from test_inductor_norms_on_gpus import kernels_of
from test_inductor_traffic import results
from test_inductor_triton import random_memory
from torch import Tensor

from torchjit_core.expr import as_expr, constant
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import LoopKernel, Store
from torchjit_inductor.ir.values import load, reduce
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule import row_totals
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import FusionLimits, fuse
from torchjit_inductor.schedule.row_totals import total_by_rows
from torchjit_inductor.steps import KernelStep, Program
from torchjit_inductor.triton import rows_and_columns
from torchjit_inductor.triton import unrolled as few
from torchjit_inductor.triton.compile import jit_function
from torchjit_inductor.triton.plan import make_plan
from torchjit_inductor.triton.rows_and_columns import with_columns
from torchjit_inductor.triton.source import function_name, kernel_source
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


def _norm_backward(g: Tensor, x: Tensor, w: Tensor, mean: Tensor, scale: Tensor) -> Any:
    """The gradients of a layer norm's input, weight and bias."""
    normal, weighted = (x - mean) * scale, g * w
    parts = weighted.mean(1, keepdim=True), (weighted * normal).mean(1, keepdim=True)
    return scale * (weighted - parts[0] - normal * parts[1]), (g * normal).sum(0), g.sum(0)


def _norm_inputs(rows: int, size: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(rows)
    return [
        torch.randn(*shape, generator=draw) for shape in ((rows, size), (rows, size), (size,), (rows, 1), (rows, 1))
    ]


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three programs of rows of 40 elements."""
    monkeypatch.setattr(rows_and_columns, "MULTIPROCESSORS", 1)
    monkeypatch.setattr(rows_and_columns, "_AT_ONCE", 120)
    monkeypatch.setattr(rows_and_columns, "_NARROWEST", 2)


@pytest.mark.usefixtures("small_rows")
def test_sums_of_columns_are_in_the_kernel_that_has_the_rows() -> None:
    inputs = _norm_inputs(48, 40)
    program = program_of(_norm_backward, inputs)
    walk, join = kernels_of(program)
    assert [s.mode for s in walk.stores] == ["set", "sum", "sum"]
    assert [v.size.value for v in walk.outer] == [3, 16] and set(join.reads) < set(walk.writes)
    agree(_norm_backward, inputs, program)


@pytest.mark.usefixtures("small_rows")
@pytest.mark.parametrize(("rows", "why"), [(47, "no equal shares"), (9, "little to save")])
def test_sums_of_columns_stay_apart(rows: int, why: str) -> None:
    inputs = _norm_inputs(rows, 40)
    program = program_of(_norm_backward, inputs)
    assert all(s.mode == "set" for kernel in kernels_of(program) for s in kernel.stores), why
    agree(_norm_backward, inputs, program)


@pytest.mark.usefixtures("small_rows")
def test_what_one_writes_and_the_other_reads_keeps_them_apart() -> None:
    inputs = _norm_inputs(48, 40)
    program = program_of(lambda *given: _norm_backward(*given)[:1], inputs)
    (rows,) = kernels_of(program)
    given = rows.reads[0]
    columns = attrs.evolve(
        rows,
        name="columns",
        outer=rows.inner,
        inner=rows.outer,
        stores=(
            Store(
                "sums",
                as_expr(rows.inner[0].symbol),
                reduce("sum", load(rows.stores[0].buffer, rows.stores[0].index, torch.float32)),
                outer=True,
            ),
        ),
    )
    sums = attrs.evolve(program.buffers[given], name="sums", sizes=(rows.inner[0].size,), strides=(constant(1),))
    both = attrs.evolve(
        program, buffers={**program.buffers, "sums": sums}, steps=(KernelStep(rows), KernelStep(columns))
    )
    assert with_columns(both) == (both, set())


@pytest.mark.usefixtures("small_rows")
@pytest.mark.parametrize("size", [40, 64] if INTERPRETING else [])
def test_rows_that_are_walked_compute_what_the_loops_mean(size: int) -> None:
    program = program_of(_norm_backward, _norm_inputs(48, size) if size == 40 else _norm_inputs(32, size))
    assert any(s.mode == "sum" for kernel in kernels_of(program) for s in kernel.stores)
    memory: dict[str, Tensor] = {}
    for kernel in kernels_of(program):
        fresh = [n for n in kernel.buffers if n not in memory]
        memory |= random_memory(fresh, program.buffers, torch.Generator().manual_seed(0))
        want = {n: t.clone() for n, t in memory.items()}
        evaluate_kernel(kernel, want)
        plan = make_plan(kernel, program.buffers, {})
        source = kernel_source(kernel, program.buffers, plan, portable=True)
        jit_function(source, function_name(kernel))[(plan.programs.evaluate({}),)](*(memory[n] for n in kernel.buffers))
        for name in kernel.writes:
            torch.testing.assert_close(memory[name], want[name], rtol=2e-5, atol=2e-5)


def test_rows_that_are_walked_compile() -> None:
    gm = traced(_norm_backward, _norm_inputs(8448, 4096))
    program = split_program(remove_dead_stores(fuse(lower_graph(gm, "graph"), {})), {})
    walk = kernels_of(program)[0]
    plan = make_plan(walk, program.buffers, {})
    assert (plan.walked, plan.programs.value, plan.num_warps) == (walk.outer[-1], 264, 8)
    source = kernel_source(walk, program.buffers, plan)
    loop = source.index("for row0 in range")
    assert source.index("total") < loop and source.count("evict_last") == 1 and source.index("evict_last") < loop
