"""Rows of 16-bit elements that stay in registers as they lie in memory: which kernels, what they compute, and what is compiled of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from inductor_interpreter import INTERPRETING
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.measurements import Measurements
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import KernelStep
from torchjit_inductor.triton.compile import compile_text, jit_function
from torchjit_inductor.triton.descent import PlanTuner, shape_from_disk, shape_of
from torchjit_inductor.triton.occupancy import registers_of
from torchjit_inductor.triton.packed_rows import packed_plan
from torchjit_inductor.triton.plan import TilePlan, make_plan
from torchjit_inductor.triton.source import function_name, kernel_source

BF, F16, F32 = torch.bfloat16, torch.float16, torch.float32
compiled = pytest.mark.skipif(INTERPRETING, reason="compiles")


def _kernel_of(function: Callable[..., Any], *specs: tuple[tuple[int, ...], torch.dtype]) -> tuple[LoopKernel, Any]:
    with FakeTensorMode():
        gm = make_fx(function)(*(torch.empty(s, dtype=d, device="cuda") for s, d in specs))
    program = rename_kernels(remove_dead_stores(fuse(lower_graph(gm, "graph"), {})))
    (kernel,) = (s.kernel for s in program.steps if isinstance(s, KernelStep))
    return merged(kernel), dict(program.buffers)


def _packed(kernel: LoopKernel, buffers: dict[str, Buffer]) -> TilePlan | None:
    return packed_plan(kernel, buffers, make_plan(kernel, buffers, {}))


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x, -1)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return F.silu(F.group_norm(x, 2))


def test_rows_that_are_walked_and_read_twice_can_be_packed() -> None:
    plan = _packed(*_kernel_of(_softmax, ((1024, 65536), BF)))
    assert plan is not None and (plan.axes[0].block, plan.axes[0].looped, plan.num_warps) == (65536, False, 32)
    plan = _packed(*_kernel_of(_norm, ((32, 8, 64, 120), F16)))
    assert plan is None  # they fit without that
    plan = _packed(*_kernel_of(_norm, ((32, 8, 110, 100), F16)))
    assert plan is not None and plan.num_warps == 32


@pytest.mark.parametrize(
    ("function", "specs"),
    [
        (_softmax, (((64, 65536), F32),)),
        (_softmax, (((64, 65537), BF),)),
        (lambda x, y: F.softmax(x + y, -1), (((64, 60000), BF), ((64, 60000), BF))),
        (lambda x: x.sum(-1), (((64, 60000), BF),)),
        (lambda x: x - x.argmax(-1, keepdim=True), (((64, 60000), BF),)),
        (lambda x: x.cumsum(-1), (((4096, 60000), BF),)),
        (lambda x: F.softmax(F.pad(x, (0, 9)), -1), (((64, 60000), BF),)),
        (lambda x: x * 2, (((64, 60000), BF),)),
    ],
    ids=["32 bits", "long", "two", "once", "positions", "scan", "mask", "pointwise"],
)
def test_others_cannot(function: Callable[..., Any], specs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> None:
    assert _packed(*_kernel_of(function, *specs)) is None


@compiled
def test_a_packed_row_is_read_once() -> None:
    kernel, buffers = _kernel_of(_softmax, ((1024, 65536), BF))
    plan = _packed(kernel, buffers)
    assert plan is not None
    source = kernel_source(kernel, buffers, plan)
    assert source.count("tl.load(") == 1 and source.count("tj.again(") == 3
    pointers = {"in0": "*bf16", "out0": "*bf16"}
    code = compile_text(
        source, function_name(kernel), pointers, frozenset(pointers), arch=90, num_warps=32, num_stages=1
    )
    assert code.ptx.count("ld.global") == code.ptx.count("ld.global.v4.b32") == 8
    assert registers_of(code.cubin) == 64


@pytest.mark.parametrize("dtype", [BF, F16] if INTERPRETING else [])
@pytest.mark.parametrize("function", [_softmax, _norm, lambda x: F.log_softmax(x, -1) * 2])
def test_packed_rows_compute_what_the_ir_means(
    function: Callable[..., Any], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchjit_inductor.triton.plan.PERSISTENT_LIMIT", 64)
    shape = (5, 301) if function is not _norm else (3, 4, 10, 15)
    kernel, buffers = _kernel_of(function, (shape, dtype))
    plan = _packed(kernel, buffers)
    assert plan is not None and plan.axes[0].block == 512
    generator = torch.Generator().manual_seed(0)
    memory = {n: torch.randn(buffers[n].span.evaluate({}), generator=generator).to(dtype) for n in kernel.buffers}
    wanted = {n: t.clone() for n, t in memory.items()}
    evaluate_kernel(kernel, wanted)
    source = kernel_source(kernel, buffers, plan, portable=True)
    jit_function(source, function_name(kernel))[(plan.programs.evaluate({}),)](*(memory[n] for n in kernel.buffers))
    for name in kernel.writes:
        torch.testing.assert_close(memory[name], wanted[name], rtol=1e-2, atol=1e-3)


@compiled
def test_descent_takes_another_form_where_it_is_faster(tmp_path: Path) -> None:
    kernel, buffers = _kernel_of(_softmax, ((1024, 65536), BF))
    plan = make_plan(kernel, buffers, {})
    packed = _packed(kernel, buffers)
    assert packed is not None

    def timed(plans: Sequence[TilePlan]) -> list[Any]:
        return [(1.0 if p.packed and p.num_warps == 32 else 2.0, [torch.ones(4)]) for p in plans]

    store = Measurements(str(tmp_path), "plans", lambda: "machine", shape_from_disk)
    found = PlanTuner(lambda device: store, lambda: 10.0).best(kernel, plan, "look", timed, (packed,))
    assert found == packed
    again = PlanTuner(lambda device: store, lambda: 10.0).best(kernel, plan, "look", lambda plans: [], (packed,))
    assert again == packed and shape_of(again) != shape_of(plan)
    assert attrs.evolve(again, packed=False) != plan
