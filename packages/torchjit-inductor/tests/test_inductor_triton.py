"""Kernels that the Triton backend generates, without a GPU: compiled to machine code, and run in Triton's interpreter.

The interpreter is chosen by an environment variable when triton is imported, so the numeric tests run in a process of
their own, which `test_numerics_in_the_interpreter` starts with this same file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from inductor_interpreter import INTERPRETED, INTERPRETING, run_interpreted
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_core.expr import Symbol, as_expr, constant
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store
from torchjit_inductor.ir.values import load, reduce
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.schedule.updates import combine_small, store_in_place
from torchjit_inductor.steps import KernelStep, Program
from torchjit_inductor.triton.compile import MachineCode, compile_text, jit_function
from torchjit_inductor.triton.occupancy import settled
from torchjit_inductor.triton.plan import Axis, TilePlan, make_plan
from torchjit_inductor.triton.shared_pieces import share_pieces
from torchjit_inductor.triton.source import function_name, kernel_source
from torchjit_inductor.triton.split_reduction import split

compiled = pytest.mark.skipif(INTERPRETING, reason="compiles")

BF, F16, F32, F64, I8, I32, I64 = (
    torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8, torch.int32, torch.int64,
)  # fmt: skip
Spec = tuple[tuple[int, ...], torch.dtype]


@attrs.frozen
class Case:
    """A function of tensors and its inputs.

    Attributes:
        function: made of torch operations.
        inputs: shapes and dtypes.
        portable: Triton's interpreter can run its kernels (no libdevice function without a Triton one).
    """

    function: Callable[..., Any]
    inputs: tuple[Spec, ...]
    portable: bool = True


def _case(function: Callable[..., Any], *inputs: Any, portable: bool = True) -> Case:
    specs = tuple((s[0], s[1]) if isinstance(s[-1], torch.dtype) else (s, F32) for s in inputs)
    return Case(function, specs, portable)


CASES: dict[str, Case] = {
    "scale": _case(lambda x: x * 2.0, (5, 7)),
    "add_relu_mul": _case(lambda x, y, z: F.relu(x + y) * z, (4, 33), (4, 33), (4, 33)),
    "broadcast": _case(lambda x, b, c: x * b + c, (3, 4, 50), (4, 1), (3, 1, 50)),
    "channels": _case(lambda x, b: F.relu(x + b[None, :, None]), (2, 3, 1024), (3,)),
    "heads": _case(lambda x, b, c: x * b + c, (35, 3, 64), (3, 1), (35, 1, 64)),
    "channels_last": _case(lambda x, b, c: F.relu(x * b + c.exp()), (2, 150, 64), (64,), (2, 1, 64)),
    "transpose_add": _case(lambda x, y: x.t() + y, (40, 24), (24, 40)),
    "permute": _case(lambda x: x.permute(0, 2, 1, 3).contiguous(), (2, 9, 8, 5)),
    "rotated_halves": _case(
        lambda q, c, s: q * c + torch.cat((-q[..., 8:], q[..., :8]), -1) * s, ((2, 6, 16), F16), ((6, 16), F16), ((6, 16), F16)
    ),
    "below_the_diagonal": _case(lambda x: x.tril(1) + x.triu(2).abs(), (3, 9, 12)),
    "limited_positions": _case(
        lambda x: x[:, (torch.arange(11, device=x.device) * 0.6 - 1.5).long().clamp(0, 4) + 1], (3, 6)
    ),
    "joined_many": _case(
        lambda *xs: torch.cat([*xs[:8], xs[8].exp()], 1).relu() + 1, *[(3, 1 + k % 3, 7) for k in range(9)]
    ),
    "flip_pad": _case(lambda x: F.pad(x.flip(0), (1, 2), value=3.0), (6, 10)),
    "where_compare": _case(lambda x, y: torch.where((x > y) & (x < 1), x, y.neg()), (100,), (100,)),
    "integers": _case(lambda x, y: (x // 3, x % 3, (x * y).abs() - 1), ((50,), I32), ((50,), I32)),
    "divided_integers": _case(
        lambda x: (x % 7, torch.div(x, 5, rounding_mode="floor"), torch.div(x, 5, rounding_mode="trunc")), ((50,), I64),
    ),
    "small_kernels": _case(lambda x, y, m: (x + 1, y.sum(0) * 2, m * 3), (30,), (40, 30), (30,)),
    "shifts": _case(lambda x: ((x << 3) | (x >> 2)) ^ 5, ((50,), I64)),
    "clamp_int8": _case(lambda x: (x * 20).clamp(-100, 100).to(I8), (70,)),
    "bools": _case(lambda x, y: (x.bool() & (y > 0)) | ~(x > y), (70,), (70,)),
    "loss_gradient": _case(
        lambda y, labels: torch.ops.aten._log_softmax_backward_data(
            torch.where((torch.arange(301, device=y.device) == labels[:, None]) & (labels[:, None] != 3), -0.5, 0.0), y, 1, F32
        ), (6, 301), ((6,), I64),
    ),
    "odd_rows": _case(lambda x, c, d: x * c.exp() + d, (5, 301), (5, 1), (5, 1)),
    "odd_rows_of_two_loops": _case(
        lambda x, c, d, i: x * c + torch.where(d > 0, d, c) + x[1, 2] + c.view(-1)[i % 2], (2, 3, 301), (2, 1, 1), (3, 1), ((3, 1), I64),
    ),
    "arange": _case(lambda x: x + torch.arange(30, device=x.device), (4, 30)),
    "softmax": _case(lambda x: F.softmax(x, -1), (6, 50)),
    "softmax_masked_row": _case(lambda x, m: F.softmax(x.masked_fill(m > 0, -1e30), -1), (3, 40), (3, 40)),
    "log_softmax": _case(lambda x: F.log_softmax(x, -1), (300, 12)),
    "softmax_long": _case(lambda x: F.softmax(x, -1), (2, 20001)),
    "log_softmax_long": _case(lambda x: F.log_softmax(x, -1), (1, 40000)),
    "softmax_long_masked": _case(
        lambda x: F.softmax(x.masked_fill(torch.arange(20001, device=x.device) < 19000, float("-inf")), -1), (2, 20001)
    ),
    "softmax_of_nothing": _case(lambda x: F.softmax(x.clamp(max=0) / 0.0, -1), (1, 17000)),
    "logsumexp_long": _case(lambda x: (x - x.amax(-1, keepdim=True)).exp().sum(-1), (2, 20001)),
    "layer_norm": _case(lambda x, w, b: F.layer_norm(x, (64,), w, b), (5, 64), (64,), (64,)),
    "layer_norm_long": _case(lambda x, w: F.layer_norm(x, (20000,), w), (2, 20000), (20000,)),
    "norm_by_windows": _case(
        lambda x, w: F.layer_norm(x, (8,), w).view(2, 3, 2, 3, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 8) + 1,
        (2, 6, 6, 8), (8,),
    ),
    "rolled_norm": _case(lambda x: F.layer_norm(x + x.roll((2, -1), (1, 2)), (8,)), (2, 6, 6, 8)),
    "rms_norm": _case(lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, (7, 48), (48,)),
    "sum_inner": _case(lambda x: x.sum(-1), (9, 100)),
    "sum_outer": _case(lambda x: x.sum(0), (100, 40)),
    "sum_middle": _case(lambda x: x.sum(1), (3, 30, 20)),
    "sum_all": _case(lambda x: x.sum(), (50, 50)),
    "sum_of_nothing": _case(lambda x: (x.sum(1), x.prod(1) + 1, x.sum()), (3, 0)),
    "sums_of_one_element": _case(lambda x: (x.sum(), x.cumsum(0) + x.amax(0), F.layer_norm(x, (1,))), (1,)),
    "one_place_for_all": _case(lambda x, y: torch.cat([x[2:3] - x[1:2], y]), (5,), (4,)),
    "unsigned_numbers": _case(lambda x: ((x * -6).sum(), ~x - 3), ((40,), torch.uint8)),
    "picked_by_formula": _case(
        lambda x: x[torch.arange(5, device=x.device) * 6] + 1, (25,),
    ),
    "sum_all_large": _case(lambda x: x.sum(), (300, 101)),
    "mean_columns_large": _case(lambda x: x.mean(0), (4000, 20)),
    "bias_grad": _case(lambda g, x: (g * (x > 0), (g * (x > 0)).sum(0)), (4000, 20), (4000, 20)),
    "bias_grad_uneven": _case(lambda g, x: (g * (x > 0), (g * (x > 0)).sum(0)), (4001, 20), (4001, 20)),
    "bias_grad_of_a_cat": _case(
        lambda a, b: (torch.cat([a, b], 1), torch.cat([a, b], 1).sum(0)), (3000, 8), (3000, 8),
    ),
    "batch_norm_few_channels": _case(
        lambda x: F.relu(F.batch_norm(x, None, None, training=True)), (32, 4, 10, 50), portable=False,
    ),
    "batch_norm_running": _case(
        lambda x, m: (x - x.mean((0, 2), keepdim=True), 0.9 * m + 0.1 * x.mean((0, 2))), (64, 4, 300), (4,),
    ),
    "channels_last_mean": _case(lambda x: x - x.mean((0, 1, 2)), (20, 30, 20, 6)),
    "layer_norm_weight_grad": _case(
        lambda g, x, m, r: ((g * (x - m) * r).sum(0), g.sum(0)), (4000, 24), (4000, 24), (4000, 1), (4000, 1),
    ),
    "sum_of_a_centred_tensor": _case(lambda x: ((x - x.mean(0)) * x).sum(0), (4000, 20)),
    "softmax_few_rows": _case(lambda x: F.softmax(x, -1), (2, 40000)),
    "safe_softmax": _case(lambda x: torch.ops.aten._safe_softmax(x.masked_fill(x > 0.2, -torch.inf), -1), (40, 3)),
    "reshaped_sum": _case(lambda g: g.reshape(64, 7, 7, 24).reshape(3136, 24).sum(0), (64, 7, 7, 24)),
    "var_mean": _case(lambda x: torch.var_mean(x, -1), (6, 70)),
    "var_mean_long": _case(lambda x: torch.var_mean(x, -1), (2, 20011)),
    "var_all": _case(lambda x: torch.var_mean(x), (128, 128)),
    "amax_amin": _case(lambda x: (x.amax(1), x.amin(1)), (5, 33)),
    "logsumexp": _case(lambda x: (x.logsumexp(1), (x / 0).logsumexp(1), x.clamp(min=9).log().logsumexp(1)), (6, 37)),
    "logsumexp_in_parts": _case(lambda x: x.logsumexp(1), (1, 70001)),
    "sums_in_parts": _case(lambda x: (x / 256).cumsum(1), (2, 8192)),
    "loss": _case(lambda x, y: torch.ops.aten.mse_loss(x, y), (130, 260), (130, 260)),
    "exclusive_sums": _case(lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)], 1), (5, 40)),
    "sums_from_the_end": _case(lambda x: x.flip(1).cumsum(1).flip(1), (5, 70)),
    "signals": _case(
        lambda x: (torch.ops.aten.max_pool2d_with_indices(x, [1, 8], [1, 1], [0, 4], [1, 3])[0], F.avg_pool1d(x[:, :, 0], 8, 1, 4)), (2, 3, 1, 80),
    ),
    "dilated_windows": _case(lambda x: torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1], [2, 3])[0], (2, 3, 13, 19)),
    "dilated_places": _case(lambda x: torch.ops.aten.max_pool2d_with_indices(x, [2, 3], [1, 2], [0, 1], [1, 2]), (2, 3, 9, 12)),
    "windows_of_three_dimensions": _case(
        lambda x: (torch.ops.aten.max_pool3d_with_indices(x, 3, 2, 1)[1], torch.ops.aten.avg_pool3d(x, 3, 2, 1)), (2, 3, 6, 7, 8),
    ),
    "argmax": _case(lambda x: x.argmax(-1), (6, 37)),
    "argmin_long": _case(lambda x: x.argmin(-1), (2, 17000)),
    "argmax_of_nan": _case(lambda x: (x.masked_fill(x > 1, torch.nan).argmax(-1), (x.clamp(max=0) / 0.0).argmin(-1)), (6, 37)),
    "argmax_of_nan_long": _case(lambda x: x.masked_fill(x > 3, torch.nan).argmax(-1), (4, 20001)),
    "argmax_of_the_least_long": _case(
        lambda x: (x.masked_fill(x < 9, -torch.inf).argmax(-1), x.masked_fill(x > 9, torch.inf).argmin(-1)), (2, 17001),
    ),
    "argmax_of_equals_long": _case(lambda x: (x.floor().argmax(-1), x.floor().argmin(-1)), (2, 20001)),
    "argmax_integers": _case(lambda x, y: (x.argmax(-1), y.argmin(-1)), ((5, 33), I32), ((2, 17000), I8)),
    "argmax_columns": _case(lambda x: x.argmax(0), (300, 20)),
    "softmax_of_infinity_long": _case(lambda x: F.softmax(x.masked_fill(x > 3.5, torch.inf), -1), (4, 20001)),
    "softmax_columns_long": _case(lambda x: F.softmax(x, 0), (20000, 3)),
    "half_softmax_long": _case(lambda x: F.softmax(x, -1), ((2, 20001), F16)),
    "any_all": _case(lambda x: ((x > 2).any(-1), (x > -2).all(-1)), (6, 37)),
    "prod": _case(lambda x: x.prod(-1), (4, 9)),
    "int_sum": _case(lambda x: x.sum(-1), ((6, 70), I32)),
    "batch_norm": _case(lambda x: F.batch_norm(x, None, None, training=True), (3, 4, 5, 6)),
    "group_norm": _case(lambda x: F.group_norm(x, 2), (2, 4, 30)),
    "embedding": _case(lambda i, w: F.embedding(i.clamp(0, 10), w), ((20,), I64), (11, 16)),
    "embedding_grad": _case(
        lambda g, i: torch.ops.aten.embedding_dense_backward(g, i.clamp(0, 6), 7, -1, False), (20, 8), ((20,), I64),
    ),
    "index_put_add": _case(
        lambda x, i, v: x.index_put((i.clamp(0, 5),), v, accumulate=True), (6, 5), ((9,), I64), (9, 5),
    ),
    "gather_of_a_formula": _case(
        lambda x, m, i: (x * 2 - m).exp().gather(1, i.clamp(0, 39)), (6, 40), (6, 1), ((6, 1), I64),
    ),
    "gather_of_positions": _case(
        lambda x, i: (x + torch.arange(40, device=x.device)).gather(1, i.clamp(0, 39)), (6, 40), ((6, 1), I64),
    ),
    "gather_of_a_gather": _case(
        lambda x, i, j: (x.gather(1, i.clamp(0, 7)) * 2).gather(1, j.clamp(0, 15)), (6, 400), ((6, 20), I64), ((6, 1), I64),
    ),
    "cross_entropy": _case(lambda x, y: F.cross_entropy(x, y.clamp(0, 29)), (8, 30), ((8,), I64), portable=False),
    "index_wrapped": _case(lambda x, i: x[i.clamp(-7, 6)], (7, 5), ((9,), I64)),
    "scatter_row": _case(lambda x, i: x.scatter(1, i.clamp(0, 8), 3.0), (4, 9), ((4, 1), I64)),
    "cumsum": _case(lambda x: x.cumsum(1), (5, 37)),
    "cumsum_long": _case(lambda x: (x * 0.01).cumsum(1), (2, 20001)),
    "cumsum_columns": _case(lambda x: x.cumsum(0), (300, 20)),
    "cumprod": _case(lambda x: (x * 0.1 + 1).cumprod(1), (5, 37)),
    "sort": _case(lambda x: torch.sort(x * 2, dim=1, stable=True), (5, 20)),
    "sort_down_then_sum": _case(lambda x: torch.sort(x, dim=1, descending=True)[0].cumsum(1), (3, 16)),
    "sort_half_columns": _case(lambda x: torch.sort(x, dim=0, descending=True, stable=True), ((12, 3), BF)),
    "sort_integers": _case(lambda x, y: (*torch.sort(x, stable=True), *torch.sort(y)), ((6, 13), I32), ((6, 13), I8)),
    "gather": _case(lambda x, i: x.gather(1, i.clamp(0, 8)), (4, 9), ((4, 5), I64)),
    "cat": _case(lambda x, y: torch.cat([x, y], 1) * 2, (4, 5), (4, 7)),
    "rope": _case(
        lambda q, c, d: torch.cat([q[..., :8] * c - q[..., 8:] * d, q[..., :8] * d + q[..., 8:] * c], -1),
        (2, 3, 6, 16), (6, 8), (6, 8),
    ),
    "rope_pieces": _case(
        lambda q, c, d: torch.cat([q[..., :64] * c - q[..., 64:] * d, q[..., :64] * d + q[..., 64:] * c], -1),
        (2, 3, 6, 128), (6, 64), (6, 64),
    ),
    "adamw": _case(
        lambda p, g, m: (p * 0.9 - 1e-3 * (0.9 * m + 0.1 * g) / (g.abs().sqrt() + 1e-8), 0.9 * m + 0.1 * g),
        (80,), (80,), (80,),
    ),
    "doubles": _case(lambda x, y: x * y + 1.1, ((40,), F64), ((40,), F64)),
    "swiglu": _case(lambda x: F.silu(x[..., :8]) * x[..., 8:], (6, 16)),
    "cumulative_mask": _case(lambda x: x.tril() + x.triu(1) * 2, (12, 12)),
    "gelu_tanh": _case(lambda x: F.gelu(x, approximate="tanh"), (100,), portable=False),
    "gelu": _case(lambda x: F.gelu(x * torch.sigmoid(x)), (100,)),
    "functions": _case(
        lambda x: [f(x) for f in (torch.sin, torch.exp, torch.expm1, torch.log1p, torch.atan, torch.floor, torch.round)],
        (100,), portable=False,
    ),
    "pow_fmod": _case(lambda x, y: (x.abs() ** y, torch.fmod(x, y), x % y, x // y), (64,), (64,), portable=False),
    "half_softmax": _case(lambda x: F.softmax(x, -1), ((6, 64), BF), portable=False),
    "half_layer_norm": _case(
        lambda x, r, w: F.layer_norm(x + r, (64,), w), ((6, 64), F16), ((6, 64), F16), ((64,), F16), portable=False,
    ),
    "quantize": _case(
        lambda x: (x / (x.abs().amax(-1, keepdim=True) / 127)).round().clamp(-128, 127).to(I8), (5, 64),
    ),
    "quantize_long": _case(lambda x: (x / x.abs().amax(-1, keepdim=True) * 99).round().to(I8), (2, 20001)),
    "rounded_to_integers": _case(
        lambda x: ((x * 3.5).round().to(I32), (x * 40).round().clamp(-9.5, 7).to(I8), x.round().clamp(max=3), x.round() == 0), (90,),
    ),
}  # fmt: skip


def program_of(case: Case, device: str = "cuda") -> Program:
    """The fused program of a case, on a device that need not exist."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in case.inputs]
        gm = make_fx(case.function)(*inputs)
    program = lower_graph(gm, "graph")
    return rename_kernels(remove_dead_stores(fuse(program, {})))


def kernels_of(program: Program) -> list[LoopKernel]:
    """Its kernels, in order."""
    return [step.kernel for step in program.steps if isinstance(step, KernelStep)]


def random_memory(
    names: Sequence[str], buffers: Mapping[str, Buffer], generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """Flat tensors for buffers, on the CPU: normal numbers, small integers, bits."""
    memory: dict[str, torch.Tensor] = {}
    for name in names:
        span, dtype = buffers[name].span.evaluate({}), buffers[name].dtype
        if dtype == torch.bool:
            memory[name] = torch.rand(span, generator=generator) > 0.5
        elif dtype.is_floating_point:
            memory[name] = torch.randn(span, generator=generator, dtype=torch.float64).to(dtype)
        else:
            memory[name] = torch.randint(-20 if dtype.is_signed else 0, 20, (span,), generator=generator).to(dtype)
    return memory


@compiled
@pytest.mark.parametrize("name", CASES)
def test_every_case_becomes_kernels(name: str) -> None:
    program = program_of(CASES[name])
    kernels = kernels_of(program)
    assert kernels
    for kernel in kernels:
        kernel.verify(program.buffers)
        source = kernel_source(
            merged(kernel), program.buffers, make_plan(merged(kernel), program.buffers, {}), wide=False
        )
        # Triton 3.6 fails to compile these.
        assert not re.search(r"broadcast_to\(-?\d", source)
        assert "arange(0, 1)" not in source
        # Lanes beyond the end compute positions, too, and may stop no program. The two rows of a tile are rows.
        if "in_second_row" not in source:
            assert all("mask=" in line for line in source.splitlines() if "device_assert" in line and "_mask" in source)


def test_many_tensors_are_joined_by_who_reads_them_where_they_are() -> None:
    program = program_of(CASES["joined_many"])
    assert [len(kernel.reads) for kernel in kernels_of(program)] == [1, 9]


def test_what_has_few_bits_is_not_rounded_and_places_are_compared_in_32_bits() -> None:
    def text(name: str) -> str:
        program = program_of(CASES[name])
        (kernel,) = map(merged, kernels_of(program))
        return kernel_source(kernel, program.buffers, make_plan(kernel, program.buffers, {}))

    assert ".to(tl.float16)" not in text("rotated_halves")
    assert "int64" not in text("below_the_diagonal")
    assert "int64" not in text("limited_positions")


def test_plans_of_columns_beside_a_matrix_and_of_searches() -> None:
    def plan(function: Any, *specs: Any) -> Any:
        program = program_of(_case(function, *specs))
        (kernel,) = kernels_of(program)
        return make_plan(merged(kernel), program.buffers, {})

    assert len(plan(lambda x, c, d: x * c + d, (512, 4000), (512, 1), (512, 1)).axes) == 1
    odd = program_of(_case(lambda x, c, d: x * c + d, (512, 4001), (512, 1), (512, 1)))
    (kernel,) = map(merged, kernels_of(odd))
    text = kernel_source(kernel, odd.buffers, make_plan(kernel, odd.buffers, {}))
    assert "tl.where(in_second_row" in text and "% 4001" not in text and text.count("(first_row)") == 2
    assert len(plan(lambda x, y: x.t() + y, (4000, 512), (512, 4000)).axes) == 2
    rows, searched = (plan(f, (4096, 4096)) for f in (lambda x: x.sum(-1), lambda x: x.argmax(-1)))
    assert (rows.num_warps, searched.num_warps) == (8, 4)


def test_plans_of_windows_of_sums_over_a_middle_dimension_and_of_rows_that_just_fit() -> None:
    def plan(function: Any, *specs: Any) -> Any:
        program = program_of(_case(function, *specs))
        (kernel,) = kernels_of(program)
        return make_plan(merged(kernel), program.buffers, {})

    signal = plan(lambda x: F.avg_pool1d(x, 8, 1, 4), (64, 128, 65536))
    assert (signal.by_element, len(signal.program_loops), signal.axes[0].block) == (True, 1, 512)
    image = plan(
        lambda x: torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1], [2, 2])[0], (4, 64, 512, 512)
    )
    assert (image.by_element, image.axes[0].block) == (True, 512)
    volume = plan(lambda x: torch.ops.aten.avg_pool3d(x, 3, 2, 1), (16, 32, 128, 128, 128))
    assert (volume.by_element, volume.axes[0].block) == (True, 256)
    for function in (lambda x: F.avg_pool1d(x, 4, 4), lambda x: x[:, :, 1:] - x[:, :, :-1]):
        assert not plan(function, (64, 128, 65536)).by_element
    for rows, tile in ((8192, [64, 128]), (512, [32, 128])):
        assert [a.block for a in plan(lambda x: x.t().contiguous(), (rows, 1024)).axes] == tile
    picked = plan(lambda x, i: x[:, i] * 2, (4096, 512), ((512,), I64))
    assert [(a.name, a.block) for a in picked.axes] == [("x", 512)]
    for width, batch, block in ((4096, 128, 64), (4096, 8, 32), (4095, 128, 32)):
        assert [a.block for a in plan(lambda x: x.sum(1), (batch, 512, width)).axes] == [block, 128]
    # Rows that begin anywhere, near and far.
    for shape, dtype, tile, warps, first in (
        ((64, 4096, 4095), F32, [32, 128], 8, False),
        ((128, 4096, 4095), F32, [128, 128], 4, True),
        ((128, 4096, 4095), BF, [128, 128], 8, True),
        ((64, 4096, 4095), BF, [64, 64], 8, False),
        ((128, 4096, 4100), F32, [32, 128], 8, False),  # at 16 bytes
        ((4, 131072, 4095), F32, [32, 128], 4, True),  # too few programs for wider tiles
    ):
        odd = plan(lambda x: x.sum(1), (shape, dtype))
        assert ([a.block for a in odd.axes], odd.num_warps, odd.from_first) == (tile, warps, first), (shape, dtype)
    assert not plan(lambda x: x.sum(1), (128, 4096, 4096)).from_first
    apart = plan(lambda x: x[:, ::2].sum((1, 2)), (64, 70, 128, 4095))
    assert (len(apart.axes[1].loops), apart.num_warps, apart.from_first) == (2, 8, False)
    assert [a.block for a in plan(lambda x: x.argmax(1), (128, 512, 4096)).axes] == [32, 128]
    short = plan(lambda x: x.amax(0), (4, 1024, 32768))
    assert ([a.block for a in short.axes], short.num_warps) == ([512, 4], 4)
    # Columns that threads keep whole, and those that are too long or too few for that.
    for rows, dtype, whole in (
        (16, BF, (128, 16, 1)),
        (64, BF, (128, 64, 2)),
        (128, BF, (64, 128, 2)),
        (64, F32, (64, 64, 2)),
    ):
        short = plan(lambda x: x.logsumexp(0), ((rows, 2**22), dtype))
        assert (*[a.block for a in short.axes], short.num_warps) == whole
    both = plan(lambda x, y: (x * y.softmax(0)).sum(0), ((32, 2**22), BF), ((32, 2**22), BF))
    assert (*[a.block for a in both.axes], both.num_warps) == (128, 32, 2)
    assert plan(lambda x: x.logsumexp(0), ((128, 2**22), F32)).num_warps == 8
    assert plan(lambda x: x.logsumexp(0), ((32, 2**15), BF)).num_warps == 4
    # What a program holds of columns is not read twice.
    program = program_of(_case(lambda x: x.softmax(1), (64, 64, 512, 512)))
    assert len(split(merged(kernels_of(program)[0]), program.buffers, {})[0]) == 1
    (row,) = plan(lambda x: x.softmax(1), (32768, 32768)).axes
    assert (row.block, row.looped) == (32768, False)
    for function, width in ((lambda x: x.softmax(1), 20000), (lambda x: x.sum(1), 32768)):
        assert plan(function, (32768, width)).axes[0].looped
    assert plan(lambda x: x.softmax(1), (4096, 196608)).num_warps == 32


@pytest.mark.parametrize(
    ("shape", "dtype", "kept"),
    [
        ((32, 512, 64, 64), BF, 0),
        ((32, 1024, 64, 64), BF, 0),
        ((32, 256, 64, 128), BF, 131072),
        ((64, 256, 64, 128), BF, 131072),
        ((32, 256, 64, 128), F32, 65536),
        ((32, 512, 64, 128), BF, None),
    ],
    ids=str,
)
def test_rows_that_are_read_twice_come_one_to_a_multiprocessor(
    shape: tuple[int, ...], dtype: torch.dtype, kept: int | None
) -> None:
    """Where the cache then holds all of them, or a part of each; where it does not (None) programs are smaller."""
    program = program_of(_case(lambda x: F.batch_norm(x, None, None, training=True).relu(), (shape, dtype)))
    (kernel,) = kernels_of(program)
    plan = make_plan(merged(kernel), program.buffers, {})
    tile = (plan.axes[0].block, plan.num_warps, plan.kept)
    assert tile == ((16384, 32, kept) if kept is not None else (8192, 16, 0))


def test_plans_of_short_rows_beside_columns_and_of_columns_of_several_tensors() -> None:
    def plans(function: Any, *specs: Any) -> list[Any]:
        program = program_of(_case(function, *specs))
        stages, scratch = split(merged(kernels_of(program)[0]), program.buffers, {})
        buffers = {**program.buffers, **{s.name: s for s in scratch}}
        return [make_plan(stage, buffers, {}) for stage in stages]

    (several,) = plans(lambda x, c: x * c, ((50176, 256), BF), (256,))
    assert [(a.name, a.block) for a in several.axes] == [("y", 4), ("x", 256)]
    (narrow,) = plans(lambda x, c: x * c, ((50176, 64), BF), (64,))
    assert [a.block for a in narrow.axes] == [16, 64]
    (whole,) = plans(lambda x, c: x * c, ((5000, 4096), BF), (4096,))
    assert [a.name for a in whole.axes] == ["x"]
    (heads,) = plans(lambda x, c: x * c, ((512, 12, 64), BF), (12, 1))
    assert [(len(a.loops), a.block) for a in heads.axes] == [(2, 16), (1, 64)]
    # All programs of the first stage run at once, each with more warps, where two tensors are read.
    first = plans(lambda x, y: (x * y).sum(0), ((200704, 256), BF), ((200704, 256), BF))[0]
    assert (first.num_warps, first.registers, first.programs.value) == (16, 64, 256)
    first = plans(lambda x: x.sum(0), ((200704, 256), BF))[0]
    assert (first.num_warps, first.registers, first.programs.value) == (8, 0, 512)
    # Parts of one length would be too few.
    first = plans(lambda x, y: (x * y).sum(0), ((4096, 768), BF), ((4096, 768), BF))[0]
    assert (first.num_warps, first.programs.value) == (8, 384)


@compiled
def test_a_limit_of_registers_is_kept() -> None:
    kernel, buffers = _padded(504)
    source = kernel_source(kernel, buffers, TilePlan((kernel.outer[0],), (Axis("x", kernel.outer[1:], 512),), 4))
    pointers = {"in0": "*bf16", "out0": "*bf16"}
    code = compile_text(
        source, "double", pointers, frozenset(pointers), arch=90, num_warps=4, num_stages=1, registers=40
    )
    assert ".maxnreg 40" in code.ptx


WIDE = ("broadcast", "permute", "softmax", "layer_norm_long", "sum_outer", "argmin_long", "embedding", "rope", "sort")
AGAIN = (
    "sums_in_parts",
    "softmax_long",
    "half_softmax_long",
    "log_softmax_long",
    "bias_grad",
    "layer_norm_weight_grad",
)
"""Those whose kernels are made as those of others are; in the interpreter each takes seconds: with `-m slow`."""
NUMERIC = [
    *((n, False) for n, c in CASES.items() if c.portable and n not in AGAIN),
    *(pytest.param(n, False, marks=pytest.mark.slow) for n in AGAIN),
    *((n, True) for n in WIDE),
    *((n, "from first") for n in (*WIDE, "rope_pieces")),
]


# In an ordinary run there is nothing to collect: the process that the last test starts does.
@pytest.mark.parametrize(("name", "wide"), NUMERIC if INTERPRETING else [], ids=str)
def test_kernels_compute_what_the_ir_means(name: str, wide: bool | str) -> None:
    program = program_of(CASES[name])
    generator = torch.Generator().manual_seed(0)
    memory: dict[str, torch.Tensor] = {}
    program = combine_small(share_pieces(store_in_place(program)), {})
    for kernel in kernels_of(program):
        fresh = [n for n in kernel.buffers if n not in memory]
        memory |= random_memory(fresh, program.buffers, generator)
        expected = {n: t.clone() for n, t in memory.items()}
        evaluate_kernel(kernel, expected)
        _run(kernel, program.buffers, memory, bool(wide), from_first=wide == "from first")
        for buffer in kernel.writes:
            torch.testing.assert_close(memory[buffer], expected[buffer], rtol=2e-5, atol=2e-5, equal_nan=True)


@pytest.mark.parametrize("descending", [False, True] if INTERPRETING else [])
@pytest.mark.parametrize("dtype", [F32, BF, F16], ids=str)
def test_sorts_compute_signs_of_zeros_and_places_of_nan(dtype: torch.dtype, descending: bool) -> None:
    special = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.0, -1.0, -2.5], dtype=dtype)
    x = special[torch.randint(0, 8, (3, 29), generator=torch.Generator().manual_seed(0))]
    values, positions = torch.sort(x, dim=1, descending=descending, stable=True)
    program = program_of(_case(lambda x: torch.sort(x, dim=1, descending=descending), ((3, 29), dtype)))
    (kernel,) = kernels_of(program)
    memory = dict(zip(kernel.buffers, (x.flatten(), torch.empty(87, dtype=dtype), torch.empty(87, dtype=I64))))
    _run(kernel, program.buffers, memory, False)
    _, made, places = (memory[n].reshape(3, 29) for n in kernel.buffers)
    assert torch.equal(places, positions)
    torch.testing.assert_close(made, values, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(made.signbit() & ~made.isnan(), values.signbit() & ~values.isnan())


FAST = """
@triton.jit
def fast(x0, erf0, tanh0):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    x = tl.load(x0 + at)
    tl.store(erf0 + at, tj.fast_erf(x))
    tl.store(tanh0 + at, tj.fast_tanh(x))
"""


@pytest.mark.parametrize("largest", [12.0, 0.01] if INTERPRETING else [])
def test_fast_functions_compute_to_a_few_units_in_the_last_place(largest: float) -> None:
    x = torch.linspace(-largest, largest, 65536)
    x[:4] = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0])
    made = [torch.empty_like(x) for _ in range(2)]
    jit_function(FAST, "fast")[(64,)](x, *made)
    for got, exact in zip(made, (torch.erf(x.double()), torch.tanh(x.double())), strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=6e-7, atol=0, equal_nan=True)


def _padded(width: int) -> tuple[LoopKernel, dict[str, Buffer]]:
    """Twice the rows of 501 elements, in memory `width` apart."""
    row, column = LoopVar(Symbol("x0", 0, 4), constant(5)), LoopVar(Symbol("x1", 0, 500), constant(501))
    place, sizes = as_expr(row.symbol) * width + as_expr(column.symbol), (constant(5), constant(501))
    device, strides = torch.device("cuda"), (constant(width), constant(1))
    store = Store("made", place, load("given", place, torch.bfloat16) * 2.0)
    buffers = {n: Buffer(n, torch.bfloat16, device, sizes, strides) for n in ("given", "made")}
    return LoopKernel("double", device, (row, column), (), (store,), ()), buffers


@compiled
def test_rows_of_odd_length_are_read_and_written_in_wide_parts() -> None:
    kernel, buffers = _padded(504)
    plan = TilePlan((kernel.outer[0],), (Axis("x", kernel.outer[1:], 512),), 4)
    source = kernel_source(kernel, buffers, plan)
    assert "x1 < 496" in source and "(x1 >= 496) & x_mask" in source
    code = compile_text(
        source,
        "double",
        {"in0": "*bf16", "out0": "*bf16"},
        frozenset(("in0", "out0")),
        arch=90,
        num_warps=4,
        num_stages=1,
    )
    assert "st.global.v2" in code.ptx or "st.global.v4" in code.ptx
    assert ">= 496" not in kernel_source(*_padded(503), plan)


@pytest.mark.skipif(not INTERPRETING, reason="needs TRITON_INTERPRET=1, which run_interpreted sets")
def test_rows_of_odd_length_compute_what_the_ir_means() -> None:
    kernel, buffers = _padded(504)
    given, made = torch.randn(2520).bfloat16(), torch.full((2520,), 7.0).bfloat16()
    plan = TilePlan((kernel.outer[0],), (Axis("x", kernel.outer[1:], 256),), 4)
    jit_function(kernel_source(kernel, buffers, plan, portable=True), "double")[(10,)](given, made)
    want = torch.cat([given.view(5, 504)[:, :501] * 2, torch.full((5, 3), 7.0)], 1)
    assert torch.equal(made.view(5, 504), want.bfloat16())


def _padded_sums(width: int, along: bool) -> tuple[LoopKernel, dict[str, Buffer], TilePlan]:
    """Sums of 5 rows, or of the 501 columns, of a matrix whose rows lie `width` apart in memory, and twice the matrix."""
    row, column = LoopVar(Symbol("x0", 0, 4), constant(5)), LoopVar(Symbol("x1", 0, 500), constant(501))
    place, sizes = as_expr(row.symbol) * width + as_expr(column.symbol), (constant(5), constant(501))
    value, outer, inner = load("given", place, torch.bfloat16), *((row, column) if along else (column, row))
    stores = (Store("sums", as_expr(outer.symbol), reduce("sum", value), outer=True), Store("made", place, value * 2.0))
    strides = (constant(width), constant(1))
    buffers = {n: Buffer(n, torch.bfloat16, torch.device("cuda"), sizes, strides) for n in ("given", "made")}
    buffers["sums"] = Buffer("sums", F32, torch.device("cuda"), (outer.size,), (constant(1),))
    loops, r = ((row,), Axis("r", (column,), 256, looped=True)) if along else ((), Axis("r", (row,), 4, looped=True))
    axes = (r,) if along else (Axis("x", (column,), 64), r)
    return LoopKernel("both", torch.device("cuda"), (outer,), (inner,), stores), buffers, TilePlan(loops, axes, 1)


@compiled
@pytest.mark.parametrize("along", [True, False], ids=["rows", "columns"])
def test_reductions_of_rows_of_odd_length_access_memory_in_wide_parts(along: bool) -> None:
    source = kernel_source(*_padded_sums(504, along))
    assert source.count("< 496") == source.count(">= 496") == 1
    pointers = {"in0": "*bf16", "out0": "*fp32", "out1": "*bf16"}
    code = compile_text(source, "both", pointers, frozenset(pointers), arch=90, num_warps=1, num_stages=1)
    assert "ld.global.v4" in code.ptx
    assert "st.global.v4" in code.ptx
    assert "496" not in kernel_source(*_padded_sums(503, along))


@pytest.mark.parametrize("along", [True, False] if INTERPRETING else [])
def test_reductions_of_rows_of_odd_length_compute_what_the_ir_means(along: bool) -> None:
    kernel, buffers, plan = _padded_sums(504, along)
    given, made = torch.randn(2520).bfloat16(), torch.full((2520,), 7.0).bfloat16()
    sums = torch.full((5 if along else 501,), 7.0)
    source = kernel_source(kernel, buffers, plan, portable=True)
    jit_function(source, "both")[(plan.programs.evaluate({}),)](given, sums, made)
    rows = given.view(5, 504)[:, :501]
    torch.testing.assert_close(sums, rows.float().sum(1 if along else 0), rtol=1e-5, atol=1e-4)
    assert torch.equal(made.view(5, 504), torch.cat([rows * 2, torch.full((5, 3), 7.0)], 1).bfloat16())


def test_columns_are_as_many_as_the_matrix_wants_whatever_the_rows_have_beside_it() -> None:
    case = _case(lambda x, y: torch.where(y[:, None] > 0, x, -x).sum(0), ((40, 30000), BF), ((40,), I64))
    program = program_of(case)
    (kernel,) = map(merged, kernels_of(program))
    assert [a.block for a in make_plan(kernel, program.buffers, {}).axes] == [64, 64]


@pytest.mark.skipif(not INTERPRETING, reason="needs TRITON_INTERPRET=1, which run_interpreted sets")
def test_tiles_of_half_as_many_rows_compute_what_the_ir_means(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a GPU of one multiprocessor the programs do not fit with 107 registers, and do with 57.
    monkeypatch.setattr("torchjit_inductor.triton.occupancy.MULTIPROCESSORS", 1)
    monkeypatch.setattr("torchjit_inductor.triton.occupancy.registers_of", lambda cubin: cubin[0])
    monkeypatch.setattr("torchjit_inductor.triton.plan.MULTIPROCESSORS", 1)
    program = program_of(_case(lambda g, x: (g * (x > 0), (g * (x > 0)).sum(0)), (301, 90), (301, 90)))
    (kernel,) = map(merged, kernels_of(program))
    memory = random_memory(kernel.buffers, program.buffers, torch.Generator().manual_seed(0))
    expected = {n: t.clone() for n, t in memory.items()}
    evaluate_kernel(kernel, expected)
    before = make_plan(kernel, program.buffers, {})

    def compiled(plan: TilePlan) -> MachineCode:
        return MachineCode("sums", bytes([107 if plan is before else 57]), "", plan.num_warps * 32, 0, 4)

    plan = settled(before, compiled)
    assert plan.axes[1].block * 2 == before.axes[1].block
    source = kernel_source(kernel, program.buffers, plan, portable=True)
    jit_function(source, function_name(kernel))[(plan.programs.evaluate({}),)](*(memory[n] for n in kernel.buffers))
    for name in kernel.writes:
        torch.testing.assert_close(memory[name], expected[name], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kept", [40, 128, 301] if INTERPRETING else [])
@pytest.mark.parametrize(
    "function", [lambda x: F.layer_norm(x, (301,)), lambda x: x.softmax(1), lambda x: x.cumsum(1) - x.amax(1)[:, None]]
)
def test_rows_whose_ends_are_kept_compute_what_the_ir_means(function: Callable[..., Any], kept: int) -> None:
    program = program_of(_case(function, (5, 301)))
    (kernel,) = map(merged, kernels_of(program))
    memory = random_memory(kernel.buffers, program.buffers, torch.Generator().manual_seed(0))
    expected = {n: t.clone() for n, t in memory.items()}
    evaluate_kernel(kernel, expected)
    plan = TilePlan(kernel.outer, (Axis("r", kernel.inner, 64, looped=True),), 1, kept=kept)
    source = kernel_source(kernel, program.buffers, plan, portable=True)
    assert source.count("in range(192, 301, 64)") == (kept == 128)
    jit_function(source, function_name(kernel))[(5,)](*(memory[n] for n in kernel.buffers))
    for name in kernel.writes:
        torch.testing.assert_close(memory[name], expected[name], rtol=2e-5, atol=2e-5)


def _run(
    kernel: LoopKernel,
    buffers: dict[str, Buffer],
    memory: dict[str, torch.Tensor],
    wide: bool,
    *,
    from_first: bool = False,
) -> None:
    stages, scratch = split(merged(kernel), buffers, {})
    every = {**buffers, **{s.name: s for s in scratch}}
    held = dict(memory)
    for made in scratch:
        held[made.name] = torch.full((made.span.evaluate({}),), 77).to(made.dtype)
    for stage in stages:
        stage.verify(every)
        plan = attrs.evolve(make_plan(stage, every, {}), from_first=from_first)
        source = kernel_source(stage, every, plan, wide=wide, portable=True)
        function = jit_function(source, function_name(stage))
        function[(plan.programs.evaluate({}),)](*(held[name] for name in stage.buffers))


@compiled
def test_numerics_in_the_interpreter() -> None:
    """Of this suite."""
    run_interpreted("triton")


def test_every_suite_with_numerics_is_run_in_the_interpreter() -> None:
    files = Path(__file__).parent.glob("test_inductor_*.py")
    wanted = {path.stem.removeprefix("test_inductor_") for path in files if "import INTERPRET" in path.read_text()}
    assert wanted == {name for names in INTERPRETED.values() for name in names}
