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
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.fuse import fuse
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


def test_rows_that_are_stored_across_are_so_in_whole_sectors() -> None:
    # 16 rows of bfloat16 and 8 of float32 are 32 bytes.
    for given, expected, warps in (
        (((32, 512, 1024), BF), [(16, False), (1024, False)], 16),
        (((32, 512, 1024), F32), [(8, False), (1024, False)], 8),
        (((32, 512, 4096), BF), [(16, False), (256, True)], 4),
        (((32, 512, 32768), F32), [(16, False), (256, True)], 4),
    ):
        kernel, buffers = kernel_of(norm, given)
        plan = make_plan(kernel, buffers, {})
        assert (blocks(plan), plan.num_warps, plan.program_loops) == (expected, warps, kernel.outer[:1])
        kernel, buffers = kernel_of(lambda x: F.layer_norm(x, x.shape[-1:]), given)
        assert make_plan(kernel, buffers, {}).axes[0].block != expected[0][0], "stored in rows"


def test_rows_of_varying_size_that_are_stored_across_are_read_twice() -> None:
    gm = make_fx(norm, tracing_mode="symbolic")(torch.empty(3, 50, 70))
    program = rename_kernels(remove_dead_stores(fuse(lower_graph(gm, "graph"), {})))
    (kernel,) = map(merged, kernels_of(program))
    (size,) = kernel.inner[0].size.symbols
    for length, block in ((1000, 256), (100, 128)):
        assert blocks(make_plan(kernel, program.buffers, {size: length})) == [(16, False), (block, True)]


def test_few_rows_and_what_is_only_read_across_are_as_before() -> None:
    few, buffers = kernel_of(norm, ((2, 64, 1024), BF))
    assert blocks(make_plan(few, buffers, {})) == [(1024, False)]
    read, buffers = kernel_of(added_norm, ((32, 512, 1024), BF), ((32, 1024, 512), BF))
    assert blocks(make_plan(read, buffers, {})) == [(2, False), (1024, False)]
    short, buffers = kernel_of(norm, ((32, 512, 64), BF))
    assert blocks(make_plan(short, buffers, {})) == [(32, False), (64, False)]


def test_threads_have_fewer_elements_where_each_is_work() -> None:
    def row_major(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> tuple[Any, int]:
        kernel, buffers = kernel_of(
            lambda x: function(x).permute(0, 3, 1, 2).contiguous(), ((64, 126, 126, 128), dtype)
        )
        plan = make_plan(kernel, buffers, {})
        return blocks(plan), plan.num_warps

    def worked(x: Tensor) -> Tensor:
        return torch.tanh(F.softplus(x)) * x

    assert row_major(worked, F32) == ([(64, False), (64, False)], 16)
    assert row_major(torch.relu, F32) == ([(64, False), (128, False)], 8)
    assert row_major(worked, BF) == row_major(torch.relu, BF) == ([(64, False), (64, False)], 8)


def test_long_functions_of_columns_alone_are_no_work() -> None:
    def scaled(x: Tensor, c: Tensor) -> Tensor:
        return (x * torch.tanh(c.exp())).permute(0, 3, 1, 2).contiguous()

    kernel, buffers = kernel_of(scaled, (64, 126, 126, 128), (128,))
    assert blocks(make_plan(kernel, buffers, {})) == [(64, False), (128, False)]


def test_sums_of_columns_have_smaller_tiles_where_each_element_is_work() -> None:
    def worked(x: Tensor) -> Tensor:
        return (torch.tanh(F.softplus(x)) * x).sum(2).permute(0, 2, 1).contiguous()

    found = {}
    for function in (row_sums, worked):
        kernel, buffers = kernel_of(function, (32, 224, 224, 128))
        plan = make_plan(in_order_of_result(kernel), buffers, {})
        found[function] = blocks(plan), plan.num_warps
    assert found == {row_sums: ([(64, False), (128, True)], 8), worked: ([(32, False), (32, True)], 4)}


COMPUTED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "norm": (norm, ((2, 37, 300),)),
    "norm, bfloat16": (norm, (((2, 37, 300), BF),)),
    "long norm": (norm, ((2, 19, 2300),)),
    "softmax": (lambda x: x.softmax(-1).transpose(1, 2).contiguous(), ((2, 19, 2300),)),
    "of transposed": (added_norm, ((2, 37, 60), (2, 60, 37))),
    "row sums": (row_sums, ((2, 5, 40, 24),)),
    "worked row sums": (lambda x: x.exp().erf().sum(2).permute(0, 2, 1).contiguous(), ((2, 5, 300, 40),)),
    "worked": (lambda x: x.exp().erf().permute(0, 2, 1).contiguous(), ((2, 77, 90),)),
}


TILES = {
    "norm": [(8, False), (512, False)],
    "norm, bfloat16": [(16, False), (512, False)],
    "long norm": [(16, False), (256, True)],
    "softmax": [(16, False), (256, True)],
    "of transposed": [(32, False), (64, False)],
    "row sums": [(32, False), (64, False)],
    "worked row sums": [(32, False), (32, True)],
    "worked": [(64, False), (64, False)],
}


@pytest.mark.parametrize("name", COMPUTED if INTERPRETING else [])
def test_plans_of_what_lies_across_compute_what_the_ir_means(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("transposed", "plan"):
        monkeypatch.setattr(f"torchjit_inductor.triton.{module}.MULTIPROCESSORS", 1)  # which little fills
    kernel, buffers = kernel_of(COMPUTED[name][0], *COMPUTED[name][1])
    if len(kernel.outer) == 3:
        kernel = in_order_of_result(kernel)
    memory = random_memory(kernel.buffers, buffers, torch.Generator().manual_seed(0))
    expected = {n: t.clone() for n, t in memory.items()}
    evaluate_kernel(kernel, expected)
    plan = make_plan(kernel, buffers, {})
    assert blocks(plan) == TILES[name]
    source = kernel_source(kernel, buffers, plan, portable=True)
    jit_function(source, function_name(kernel))[(plan.programs.evaluate({}),)](*(memory[n] for n in kernel.buffers))
    for written in kernel.writes:
        torch.testing.assert_close(
            memory[written], expected[written], rtol=2e-2 if "bfloat16" in name else 2e-5, atol=2e-5
        )
