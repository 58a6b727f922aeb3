"""Kernels of a GPU read what is least: values that earlier kernels stored, or their formulas. Programs are evaluated point by point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_core.expr import Symbol, as_expr, constant
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store
from torchjit_inductor.ir.values import load
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import remove_dead_stores
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import KernelStep, Program, TensorRef
from torchjit_inductor.triton.redundant_loads import derive_loads
from torchjit_inductor.triton.split_reduction import split, split_program

BF = torch.bfloat16


def lowered(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Program:
    with FakeTensorMode():
        fakes = [torch.empty_strided(i.shape, i.stride(), dtype=i.dtype, device="cuda") for i in inputs]
        gm = make_fx(function)(*fakes)
    return remove_dead_stores(fuse(lower_graph(gm, "graph"), {}))


def results(
    program: Program, inputs: Sequence[torch.Tensor], known: Mapping[Symbol, int] | None = None
) -> list[torch.Tensor]:
    """What a program of kernels and of calls of aten with one result computes, where its size symbols have these values."""
    known = known or {}
    memory = {n: torch.full((b.span.evaluate(known),), 77).to(b.dtype) for n, b in program.buffers.items()}
    memory |= program.constants
    for name, value in zip(program.inputs, inputs, strict=True):
        assert isinstance(name, str)
        memory[name] = value.flatten().clone()

    def tensor(ref: Any) -> Any:
        if not isinstance(ref, TensorRef):
            return ref
        sizes, strides = ([e.evaluate(known) for e in part] for part in (ref.sizes, ref.strides))
        return torch.as_strided(memory[ref.buffer], sizes, strides, ref.offset.evaluate(known))

    for step in program.steps:
        if isinstance(step, KernelStep):
            step.kernel.verify(program.buffers)
            evaluate_kernel(step.kernel, memory, known)
        else:
            assert step.outputs[0] is not None
            memory[step.outputs[0]] = step.op(*map(tensor, step.args)).flatten()
    return [tensor(o) for o in program.outputs]


def last_kernel(program: Program) -> Any:
    return [s.kernel for s in program.steps if isinstance(s, KernelStep)][-1]


def _normalized(x: Any, mean: Any, scale: Any) -> Any:
    return torch.relu(((x.float() - mean) * scale).to(BF))


def _gradient(x: Any, mean: Any, scale: Any, w: Any) -> Any:
    """A product wants the result of `relu` in memory; what comes behind it asks of that, and of `x`."""
    y = _normalized(x, mean, scale)
    g = torch.where(y <= 0, 0.0, torch.mm(y, w))
    return y, g.float() * (x.float() - mean)


def _inputs(rows: int, columns: int, dtype: torch.dtype = BF) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x, w = torch.randn(rows, columns), torch.randn(columns, columns)
    return [x.to(dtype), torch.randn(columns), torch.rand(columns) + 0.5, w.to(dtype)]


def test_a_mask_follows_from_what_is_read_anyway() -> None:
    inputs = _inputs(6, 200)
    before = lowered(_gradient, inputs)
    after = derive_loads(before)
    (stored,) = [n for n in last_kernel(before).reads if n not in last_kernel(after).reads]
    assert stored in {n for s in after.steps for n in s.writes}
    assert any(v.op == "round_to" and v.data == BF for v in last_kernel(after).values)
    for got, want in zip(results(after, inputs), _gradient(*inputs), strict=True):
        torch.testing.assert_close(got, want)


def test_the_value_is_the_one_that_memory_would_have() -> None:
    """What `y` lost when it became a bfloat16 is read off a formula, too."""

    def function(x: Any, w: Any) -> Any:
        y = (x * 1.01).to(BF)
        product = torch.mm(y, w)
        return product, y.float() - x + product.float()

    inputs = [torch.randn(6, 200), torch.randn(200, 200).to(BF)]
    before = lowered(function, inputs)
    after = derive_loads(before)
    assert len(last_kernel(after).reads) < len(last_kernel(before).reads)
    for got, want in zip(results(after, inputs), function(*inputs), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "function",
    [
        # Another row than the one that is read anyway; too dear a formula; an operand that nobody else reads.
        lambda x, mean, scale, w: torch.mm(_normalized(x, mean, scale), w) + _normalized(x, mean, scale).flip(0) + x,
        lambda x, mean, scale, w: torch.mm(y := torch.exp(x.float() * scale).to(BF), w) + y + x + mean,
        lambda x, mean, scale, w: torch.mm(y := _normalized(x, mean, scale), w) + y,
    ],
    ids=["another place", "dear", "nobody reads it"],
)
def test_other_loads_stay(function: Callable[..., Any]) -> None:
    program = lowered(function, _inputs(6, 200))
    assert [s for s in derive_loads(program).steps if isinstance(s, KernelStep)] and (
        last_kernel(derive_loads(program)).reads == last_kernel(program).reads
    )


def test_parts_of_a_buffer_have_formulas_of_their_own() -> None:
    loop, device = LoopVar(Symbol("x0", 0, 7), constant(8)), torch.device("cuda")
    at = as_expr(loop.symbol)
    x, y = load("x", at, torch.float32), load("y", at, torch.float32)
    twice, thrice = Store("y", at, x * 2.0), Store("y", at + 8, x * 3.0)
    sizes = {"x": 8, "y": 16, "z": 8}
    buffers = {n: Buffer(n, torch.float32, device, (constant(k),), (constant(1),)) for n, k in sizes.items()}
    kernels = [
        LoopKernel("first", device, (loop,), (), stores) for stores in ((twice, thrice), (Store("z", at, y + x),))
    ]
    whole = TensorRef("z", (constant(8),), (constant(1),), constant(0))
    held = {"x": torch.randn(8)}  # a constant of the graph
    program = Program("graph", (), buffers, tuple(map(KernelStep, kernels)), (whole,), frozenset(), {}, held)
    torch.testing.assert_close(results(derive_loads(program), [])[0], held["x"] * 3)


def test_an_input_that_is_written_later_is_no_operand_of_a_formula() -> None:
    def function(x: Any, mean: Any, scale: Any, w: Any) -> Any:
        made = _gradient(x, mean, scale, w)
        mean.copy_(mean + 1)
        return made

    program = lowered(function, _inputs(6, 200))
    assert derive_loads(program).steps[-1] is program.steps[-1]
    kernels = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    derived = [s.kernel for s in derive_loads(program).steps if isinstance(s, KernelStep)]
    assert [k.reads for k in kernels] == [k.reads for k in derived]


def _residual(r: Any, a: Any, b: Any, x: Any) -> Any:
    g = torch.where(r <= 0, 0.0, a + b)
    return g, g - g.sum(0) * 0.001 - x * (g * x).sum(0)


@pytest.mark.parametrize("dtype", [torch.float32, BF], ids=str)
def test_the_last_stage_of_a_split_reads_what_the_first_has_stored(dtype: torch.dtype) -> None:
    inputs = [torch.randn(4000, 20).to(dtype) for _ in range(4)]
    program = lowered(_residual, inputs)
    (kernel,) = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    stages, _ = split(merged(kernel), program.buffers, {})
    assert len(stages) == 3
    stored = program.outputs[0].buffer
    assert stored in stages[0].writes
    assert stored in stages[2].reads
    large = [n for n in stages[2].reads if n in program.buffers and len(program.buffers[n].sizes) == 2]
    assert len(large) == 2
    rtol, atol = (1e-4, 1e-4) if dtype == torch.float32 else (2e-2, 1.0)
    wide = [i.double() for i in inputs]
    for got, want in zip(results(split_program(program, {}), inputs), _residual(*wide), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=rtol, atol=atol)


def test_the_last_stage_computes_again_what_is_no_less_to_read() -> None:
    def function(a: Any, x: Any) -> Any:
        g = a.float() * 2
        return g, g - g.sum(0) * 0.001 + x

    inputs = [torch.randn(4000, 20).to(BF), torch.randn(4000, 20)]
    program = lowered(function, inputs)
    (kernel,) = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    stages, _ = split(merged(kernel), program.buffers, {})
    assert program.outputs[0].buffer not in stages[2].reads


@pytest.mark.parametrize(
    ("function", "kernels"),
    [
        (lambda x, w: (c := x.transpose(1, 2).contiguous(), c.view(-1, 8) @ w), 2),
        (lambda x, w: (c := x.transpose(1, 2).contiguous(), c.view(6, 2, 8).mT @ c.view(6, 2, 8)), 2),
        (lambda x, w: (c := x.transpose(1, 2).double(), torch.mm(c.flatten(0, 1), w.double())), 2),
        (lambda x, w: (c := x.expand(2, 3, 8, 4).mT.contiguous(), c.view(-1, 8) @ w, c.sin()), 2),
    ],
    ids=["a view", "two views", "converted", "expanded"],
)
def test_a_result_of_which_an_operator_reads_a_view_is_stored_once(function: Callable[..., Any], kernels: int) -> None:
    """A small product is a kernel, too."""
    inputs = [torch.randn(3, 8, 4), torch.randn(8, 8)]
    program = lowered(function, inputs)
    assert sum(isinstance(step, KernelStep) for step in program.steps) == kernels
