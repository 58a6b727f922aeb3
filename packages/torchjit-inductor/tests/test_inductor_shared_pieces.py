"""Pieces of a concatenation that read the same elements, as one loop over the length of a piece: which kernels, and what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor import InductorSettings
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import LoopKernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import KernelStep, Program
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.plan import make_plan
from torchjit_inductor.triton.shared_pieces import share_pieces, shared_pieces
from torchjit_inductor.triton.source import kernel_source

BF = torch.bfloat16


def _rotated(q: Tensor, c: Tensor, d: Tensor) -> Tensor:
    half = q.shape[-1] // 2
    first, second = q[..., :half], q[..., half:]
    return torch.cat([first * c - second * d, first * d + second * c], -1)


def _program(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = BF) -> Program:
    with FakeTensorMode():
        gm = make_fx(function)(*(torch.empty(s, dtype=dtype, device="cuda") for s in shapes))
    return rename_kernels(remove_dead_stores(fuse(lower_graph(gm, "graph"), {})))


def _kernel(program: Program) -> LoopKernel:
    (kernel,) = (s.kernel for s in program.steps if isinstance(s, KernelStep))
    return kernel


ROTATED = ((2, 3, 6, 128), (6, 64), (6, 64))


def test_halves_of_a_rotation_are_loaded_once() -> None:
    program = _program(_rotated, *ROTATED)
    kernel = merged(_kernel(program))
    made = shared_pieces(kernel, program.buffers)
    assert made is not None
    assert (made.outer[-1].size.value, len(made.stores)) == (64, 2)
    made.verify(program.buffers)
    source = kernel_source(made, program.buffers, make_plan(made, program.buffers, {}))
    assert source.count("tl.load(") == 4 and source.count("tl.store(") == 2 and "other=" not in source
    # Before, each half of the result had loads of its own.
    assert sum(v.op == "load" for v in kernel.values) == 8
    generator = torch.Generator().manual_seed(0)
    memory = {n: torch.randn(program.buffers[n].span.evaluate({}), generator=generator).to(BF) for n in made.buffers}
    wanted = {n: t.clone() for n, t in memory.items()}
    evaluate_kernel(kernel, wanted)
    evaluate_kernel(made, memory)
    for name in kernel.writes:
        assert torch.equal(memory[name], wanted[name])


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (_rotated, ((2, 3, 6, 64), (6, 32), (6, 32))),  # halves are less than a line
        (_rotated, ((2, 3, 6, 192), (6, 96), (6, 96))),  # or end within one
        (lambda x, y: torch.cat([x, y], -1) * 2, ((8, 128), (8, 128))),  # nothing in common
        (lambda x: torch.cat([x, x[..., :64]], -1) * 2, ((8, 128),)),  # of different length
        (lambda x: torch.cat([x + n for n in range(5)], -1), ((8, 128),)),  # many
        (lambda x: x * 2, ((8, 128),)),
        (lambda x: F.softmax(x, -1), ((8, 128),)),
    ],
    ids=["short", "not whole lines", "apart", "uneven", "many", "plain", "reduction"],
)
def test_other_kernels_stay_as_they_are(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    program = _program(function, *shapes)
    assert shared_pieces(_kernel(program), program.buffers) is None


def test_programs_for_gpus_have_them() -> None:
    backend = TritonBackend(InductorSettings(), arch=90)
    program = _program(_rotated, *ROTATED)
    for each in backend.passes({}):
        program = each(program)
    assert len(_kernel(program).stores) == 2


@pytest.mark.parametrize(
    ("heads", "size", "dtype"), [(1024, 128, BF), (512, 128, torch.float32), (512, 256, BF)], ids=str
)
def test_a_tile_has_eight_rows_of_pieces(heads: int, size: int, dtype: torch.dtype) -> None:
    half = size // 2
    program = _program(_rotated, (heads, 512, size), (512, half), (512, half), dtype=dtype)
    plan = make_plan(_kernel(share_pieces(program)), program.buffers, {})
    assert ([a.block for a in plan.axes], plan.num_warps) == ([8, half], 4)
    plain = _program(lambda x: x * 2, (heads, 512, half), dtype=dtype)
    assert len(make_plan(merged(_kernel(plain)), plain.buffers, {}).axes) == 1
