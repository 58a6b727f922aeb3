"""Updates of inputs in place and small kernels together: as programs, on CUDA devices that need not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.schedule.updates import combine_small, store_in_place
from torchjit_inductor.steps import KernelStep, Program

aten = torch.ops.aten


def program_of(function: Callable[..., Any], *sizes: tuple[int, ...]) -> Program:
    with FakeTensorMode():
        inputs = [torch.empty(s, device="cuda") for s in sizes]
        gm = make_fx(function)(*inputs)
    return rename_kernels(remove_dead_stores(fuse(lower_graph(gm, "graph"), {})))


def run(program: Program, inputs: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Memory after the program, by the evaluator of the loop IR; buffers start as garbage."""
    memory = {n: torch.full((b.span.evaluate({}),), 77.0) for n, b in program.buffers.items()}
    memory |= {str(n): x.clone().flatten() for n, x in zip(program.inputs, inputs, strict=True)}
    for step in program.steps:
        assert isinstance(step, KernelStep)
        evaluate_kernel(step.kernel, memory)
    return memory


def kernels(program: Program) -> int:
    return sum(isinstance(s, KernelStep) for s in program.steps)


def check(function: Callable[..., Any], *sizes: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and results end up the same; kernels before and after."""
    before = program_of(function, *sizes)
    after = combine_small(store_in_place(before), {})
    inputs = [torch.randn(s, generator=torch.Generator().manual_seed(n)) for n, s in enumerate(sizes)]
    want, got = run(before, inputs), run(after, inputs)
    outputs = [o.buffer for o in after.outputs]
    assert [o.buffer for o in before.outputs] == outputs
    for name in (*map(str, after.inputs), *outputs):
        torch.testing.assert_close(got[name], want[name])
    return kernels(before), kernels(after)


def test_running_statistics_are_written_where_they_are_computed() -> None:
    def function(x: torch.Tensor, mean: torch.Tensor, count: torch.Tensor) -> Any:
        new = 0.9 * mean + 0.1 * x.mean(0)
        aten.copy_(mean, new)
        aten.copy_(count, count + 1)
        return x * 2

    before, after = check(function, (64, 8), (8,), (1,))
    assert after <= before


def test_an_input_that_is_read_later_is_not_overwritten_early() -> None:
    def function(x: torch.Tensor, mean: torch.Tensor) -> Any:
        new = mean.sum() + mean * x
        later = (new.flip(0) + mean.flip(0)) * 3
        aten.copy_(mean, new)
        return later, new.sum()

    check(function, (8,), (8,))


def test_swapped_inputs() -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        first, second = a * 2, b * 3
        aten.copy_(a, second)
        aten.copy_(b, first)
        return (a.sum() * 0,)

    check(function, (8,), (8,))


def test_dependent_small_kernels_stay_apart() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        total = (x * y).sum()
        return x + 1, (y * total).flip(0).cos(), total

    check(function, (9,), (9,))


def test_independent_small_kernels_are_one() -> None:
    before, after = check(lambda a, b, c: (a + 1, b * 2, c.exp()), (9,), (9,), (9,))
    assert (before, after) == (3, 1)


def test_a_tiny_kernel_goes_to_one_of_its_size_that_ran_before() -> None:
    def function(p: torch.Tensor, q: torch.Tensor, x: torch.Tensor) -> Any:
        # Scales of rows that are needed one after the other, each by a large kernel.
        one = p.exp().sin() + 1
        first = (x * one[:, None]).cos().sum(0)
        two = q.exp().sin() + 1
        return one, two, (x * two[:, None] * first).sum(0)

    assert check(function, (32,), (32,), (32, 96)) == (4, 3)


def test_a_tiny_kernel_stays_behind_what_it_reads() -> None:
    def function(p: torch.Tensor, x: torch.Tensor) -> Any:
        first = p.exp()
        return first, (x * first.sum()).sum(0)[:32].exp()

    check(function, (32,), (96, 96))
