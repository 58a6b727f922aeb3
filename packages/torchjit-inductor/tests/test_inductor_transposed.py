"""Kernels in which one tensor lies across the others on GPUs: their plans, and in Triton's interpreter what they compute against what the loops mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from inductor_interpreter import INTERPRETING
from test_inductor_triton import _case, kernels_of, program_of, random_memory
from torch import Tensor

from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.triton.compile import jit_function
from torchjit_inductor.triton.plan import TilePlan, make_plan
from torchjit_inductor.triton.source import function_name, kernel_source

BF, F32 = torch.bfloat16, torch.float32


def kernel_of(function: Callable[..., Any], *inputs: Any) -> tuple[LoopKernel, dict[str, Buffer]]:
    program = program_of(_case(function, *inputs))
    (kernel,) = map(merged, kernels_of(program))
    return kernel, dict(program.buffers)


def blocks(plan: TilePlan) -> list[tuple[int, bool]]:
    """Elements of each axis of a tile, and whether a program walks it."""
    return [(a.block, a.looped) for a in plan.axes]


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:]).transpose(1, 2).contiguous()


def added_norm(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x + F.gelu(y.transpose(1, 2))
    return z, F.layer_norm(z, z.shape[-1:])


def row_sums(x: Tensor) -> Tensor:
    return x.abs().sqrt().sum(2).permute(0, 2, 1).contiguous()


def in_order_of_result(kernel: LoopKernel) -> LoopKernel:
    """With the loop over channels outside that over rows, as where the sums of an image's rows are stored row-major."""
    first, rows, channels = kernel.outer
    return attrs.evolve(kernel, outer=(first, channels, rows))


def test_sums_of_rows_whose_memory_runs_along_channels_outside_have_columns_of_these() -> None:
    kernel, buffers = kernel_of(row_sums, (32, 224, 224, 128))
    inside, outside = (make_plan(k, buffers, {}) for k in (kernel, in_order_of_result(kernel)))
    assert [a.loops for a in inside.axes] == [a.loops for a in outside.axes]
    assert outside.axes[0].size.value == 128


COMPUTED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "norm": (norm, ((2, 37, 60),)),
    "norm, bfloat16": (norm, (((2, 37, 60), BF),)),
    "of transposed": (added_norm, ((2, 37, 60), (2, 60, 37))),
    "row sums": (row_sums, ((2, 5, 40, 24),)),
}


@pytest.mark.parametrize("name", COMPUTED if INTERPRETING else [])
def test_plans_of_what_lies_across_compute_what_the_ir_means(name: str) -> None:
    kernel, buffers = kernel_of(COMPUTED[name][0], *COMPUTED[name][1])
    if len(kernel.outer) == 3:
        kernel = in_order_of_result(kernel)
    memory = random_memory(kernel.buffers, buffers, torch.Generator().manual_seed(0))
    expected = {n: t.clone() for n, t in memory.items()}
    evaluate_kernel(kernel, expected)
    plan = make_plan(kernel, buffers, {})
    source = kernel_source(kernel, buffers, plan, portable=True)
    jit_function(source, function_name(kernel))[(plan.programs.evaluate({}),)](*(memory[n] for n in kernel.buffers))
    for written in kernel.writes:
        torch.testing.assert_close(
            memory[written], expected[written], rtol=2e-2 if "bfloat16" in name else 2e-5, atol=2e-5
        )
