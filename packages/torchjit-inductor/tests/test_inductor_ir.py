"""The loop IR: its rules, its evaluator against generated code, index simplification."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from inductor_testing import cache_dir, sample, trace

from torchjit_core.expr import Expr, Symbol, as_expr, constant, symbol
from torchjit_core.reasons import InvalidIR
from torchjit_inductor import InductorSettings
from torchjit_inductor.cpp.backend import CBackend
from torchjit_inductor.indexing import merge_loops, simplify, stride
from torchjit_inductor.ir import values as v
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.lowering.views import reshape_index
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import KernelStep, Program

CPU = torch.device("cpu")


def loop(name: str, size: int) -> LoopVar:
    return LoopVar(Symbol(name, 0, size - 1), constant(size))


# ---------------------------------------------------------------------- values and kernels
def test_values_are_shared_and_typed() -> None:
    a, b = v.load("a", 3, torch.float32), v.load("b", 3, torch.bfloat16)
    assert a is v.load("a", 3, torch.float32)
    assert b.dtype is torch.float32
    assert a + b is v.apply("add", a, b)
    assert v.constant(0.0, torch.float32) is not v.constant(-0.0, torch.float32)
    assert v.constant(float("nan"), torch.float32) is v.constant(float("nan"), torch.float32)
    assert v.cast(v.constant(300, torch.int64), torch.int8).data == 44
    assert v.cast(v.constant(2.5, torch.float32), torch.int32).data == 2
    with pytest.raises(ValueError, match="one dtype"):
        v.apply("add", a, v.constant(1, torch.int64))
    with pytest.raises(ValueError, match="unknown operation"):
        v.apply("frobnicate", a)
    with pytest.raises(ValueError, match="does not take"):
        v.apply("exp", v.constant(1, torch.int64))


def test_levels_count_reductions() -> None:
    x = v.load("a", as_expr(Symbol("r0", 0, 7)), torch.float32)
    top = v.reduce("max", x)
    e = v.apply("exp", x - top)
    out = e / v.reduce("sum", e)
    assert (x.level, top.level, e.level, out.level) == (0, 1, 1, 2)


def test_broken_kernels_are_reported() -> None:
    x0, r0 = loop("x0", 4), loop("r0", 8)
    x = v.load("a", as_expr(r0.symbol) + 8 * as_expr(x0.symbol), torch.float32)
    buffers = {n: Buffer(n, torch.float32, CPU, (constant(4), constant(8)), (constant(8), constant(1))) for n in "ao"}
    good = LoopKernel("k", CPU, (x0,), (r0,), (Store("o", as_expr(x0.symbol), v.reduce("sum", x), outer=True),))
    good.verify(buffers)
    assert "reduce(v0, sum)" in str(good)
    assert good.buffers == ("a", "o")
    bad = LoopKernel("k", CPU, (x0,), (r0,), (Store("o", as_expr(x0.symbol), x, outer=True),))
    with pytest.raises(InvalidIR, match="k: o: value is not outer"):
        bad.verify(buffers)
    with pytest.raises(InvalidIR, match="unknown buffer"):
        good.verify({"a": buffers["a"]})


# ---------------------------------------------------------------------- the evaluator against generated code
PROGRAMS: dict[str, Any] = {
    "norm": lambda x: [F.layer_norm(x, (x.shape[-1],)), x.softmax(0), x.sum((0, 2))],
    "layout": lambda x: [x.permute(2, 0, 1) * 2, torch.cat([x, x + 1], 1), F.pad(x, (1, 1)), x.reshape(-1, x.shape[1]).sum(0)],
    "types": lambda x: [x.int() * 3, x.bfloat16() + 1, x.double().exp(), x > 0, (x > 0).any(1), x.argmax(1), x.half() * x],
    "triangle": lambda x: [x.tril(), x.flip(1), x[:, ::2].exp(), x.var(1)],
}  # fmt: skip


def program_of(fn: Any, inputs: tuple[Any, ...], fused: bool) -> Program:
    program = lower_graph(trace(fn, inputs), "g")
    program = fuse(program, {}) if fused else program
    return rename_kernels(remove_dead_stores(program))


def memory_of(program: Program, inputs: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    memory = {n: torch.zeros(b.span.value or 0, dtype=b.dtype) for n, b in program.buffers.items()}
    for name, held in zip(program.inputs, inputs):
        assert isinstance(name, str)
        memory[name] = held.reshape(-1).clone()
    return memory


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("fused", [False, True], ids=["unfused", "fused"])
def test_generated_code_means_what_the_evaluator_says(name: str, fused: bool) -> None:
    inputs = (sample(5, 7, 18),)
    program = program_of(PROGRAMS[name], inputs, fused)
    kernels = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    assert len(kernels) == len(program.steps)
    compiled = CBackend(InductorSettings(cache_dir=cache_dir())).compile(kernels, program.buffers, graph="g", hints={})
    expected, memory = memory_of(program, inputs), memory_of(program, inputs)
    for kernel, made in zip(kernels, compiled):
        kernel.verify(program.buffers)
        evaluate_kernel(kernel, expected)
        made.launch(*(memory[n].data_ptr() for n in kernel.buffers))
        for written in kernel.writes:
            torch.testing.assert_close(memory[written], expected[written], rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------- indices
@st.composite
def factored(draw: Any) -> tuple[list[int], list[int]]:
    """Two shapes of one element count."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=5))

    def grouped() -> list[int]:
        shape, running = [], 1
        for f in draw(st.permutations(factors)):
            running *= f
            if draw(st.booleans()):
                shape.append(running)
                running = 1
        return [*shape, running]

    return grouped(), grouped()


@given(factored())
@settings(max_examples=120, deadline=None)
def test_reshape_index_addresses_the_same_element(shapes: tuple[list[int], list[int]]) -> None:
    old, new = shapes
    loops = [loop(f"x{k}", n) for k, n in enumerate(new)]
    index = tuple(as_expr(var.symbol) if n > 1 else constant(0) for var, n in zip(loops, new))
    sizes = {var.symbol: var.size for var in loops}
    back = [simplify(e, sizes) for e in reshape_index(index, tuple(map(constant, new)), tuple(map(constant, old)))]
    want = torch.arange(int(torch.tensor(old).prod())).reshape(old)
    got = want.reshape(new)
    for position in torch.cartesian_prod(*(torch.arange(n) for n in new)).reshape(-1, len(new)).tolist():
        env = {var.symbol: i for var, i in zip(loops, position)}
        assert want[tuple(e.evaluate(env) for e in back)] == got[tuple(position)]


@given(
    st.lists(st.tuples(st.integers(2, 5), st.integers(0, 40)), min_size=1, max_size=4), st.integers(1, 12), st.data()
)
@settings(max_examples=60, deadline=None)
def test_simplify_keeps_the_value(terms: list[tuple[int, int]], divisor: int, data: Any) -> None:
    loops = [loop(f"x{k}", n) for k, (n, _) in enumerate(terms)]
    linear = constant(data.draw(st.integers(0, 9)))
    for var, (_, factor) in zip(loops, terms):
        linear = linear + as_expr(var.symbol) * factor
    sizes = {var.symbol: var.size for var in loops}
    for e in (linear // divisor, linear % divisor, (linear // divisor) % 3 + linear % divisor):
        simple = simplify(e, sizes)
        for _ in range(5):
            env = {var.symbol: data.draw(st.integers(0, n - 1)) for var, (n, _) in zip(loops, terms)}
            assert simple.evaluate(env) == e.evaluate(env)


def test_symbolic_sizes_decide_divisions() -> None:
    t_size, b_size = symbol("T"), symbol("B")
    t, b = Symbol("x1", 0, None), Symbol("x0", 0, None)
    sizes: dict[Symbol, Expr] = {t: t_size, b: b_size}
    flat = as_expr(b) * t_size + as_expr(t)
    assert simplify(flat // t_size, sizes) is as_expr(b)
    assert simplify(flat % t_size, sizes) is as_expr(t)
    assert stride(flat, b) is t_size
    assert stride(flat // 2, b) is None


def test_loops_that_walk_on_are_merged() -> None:
    a, b, c = loop("x0", 4), loop("x1", 5), loop("x2", 6)
    x0, x1, x2 = (as_expr(var.symbol) for var in (a, b, c))
    merged, replaced = merge_loops([a, b, c], [x0 * 30 + x1 * 6 + x2])
    assert [var.size.value for var in merged] == [120]
    assert (x0 * 30 + x1 * 6 + x2).substitute(replaced) is as_expr(merged[0].symbol)
    merged, _ = merge_loops([a, b, c], [x0 * 30 + x1 * 6 + x2, x1 * 6 + x2])
    assert [var.size.value for var in merged] == [4, 30]
    merged, _ = merge_loops([a, b, c], [x0 * 30 + x1 * 6 + x2, x1])
    assert [var.size.value for var in merged] == [4, 5, 6]
