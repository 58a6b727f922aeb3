"""Sorts against eager's stable ones: elements, their signs and NaN, and positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inductor_testing import check, compiled, sample

from torchjit_core.expr import Symbol, as_expr, constant
from torchjit_core.reasons import InvalidIR
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store
from torchjit_inductor.ir.values import load, sort

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


def rows(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Elements with many equal ones; of floats also both zeros, both infinities and NaN of both signs."""
    generator = torch.Generator().manual_seed(seed)
    few = torch.randint(-4, 5, shape, generator=generator)
    if not dtype.is_floating_point:
        far = torch.randint(-(2**40), 2**40, shape, generator=generator)
        return torch.where(few > 2, far, few).to(dtype)
    x = torch.where(few > 2, torch.randn(shape, generator=generator, dtype=torch.float64), few)
    special = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), -float("nan"), 5e-324, -1e-40])
    chosen = special[torch.randint(0, len(special), shape, generator=generator)]
    return torch.where(torch.randint(0, 3, shape, generator=generator) == 0, chosen, x).to(dtype)


def same(got: Any, want: Any) -> None:
    """Elements, bit by bit but for what a NaN carries."""
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)
        if g.dtype.is_floating_point:
            assert torch.equal(g.signbit() & ~g.isnan(), w.signbit() & ~w.isnan())


def both_ways(*dims: int) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    """Stable sorts up and down along dimensions."""
    return lambda x: [
        t for d in dims for down in (False, True) for t in torch.sort(x, dim=d, descending=down, stable=True)
    ]


@pytest.mark.parametrize(
    ("dtype", "vector_bytes"),
    [
        *((d, 64) for d in (*FLOATS, *INTS)),
        *((d, b) for d in (torch.float32, torch.int64, torch.float16) for b in (32, 16)),
    ],
    ids=str,
)
def test_types_and_lengths(dtype: torch.dtype, vector_bytes: int) -> None:
    """Short rows are sorted by rank, longer ones by digits, long ones in memory that is asked for."""
    lengths = (5, 37, 300) if vector_bytes < 64 else (3, 64, 129, 1100)
    inputs = [rows(dtype, 3, n, seed=n) for n in lengths]

    def fn(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [t for x in xs for t in both_ways(1)(x)]

    graph = compiled(fn, inputs, vector_bytes=vector_bytes)
    assert " 0 aten calls" in graph.source.splitlines()[0], graph.source
    same(graph(*inputs), fn(*inputs))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "dims": (both_ways(0, 1, 2, -1), (rows(torch.float32, 4, 5, 6),)),
    "columns": (both_ways(0), (rows(torch.float32, 70, 9),)),
    "not_contiguous": (lambda x: both_ways(0, 1)(x.t()[::2]), (rows(torch.float32, 12, 14),)),
    "channels_last": (both_ways(1, 3), (rows(torch.float32, 2, 6, 3, 5).to(memory_format=torch.channels_last),)),
    "number": (lambda x: [*both_ways(0)(x), x.sort()[0] + 1], (torch.tensor(3.0),)),
    "empty": (both_ways(0, 1), (torch.zeros(4, 0),)),
    "one": (lambda x: [*both_ways(1)(x), x.sort(1)[1] + 1], (sample(5, 1),)),
    "expanded": (lambda x: both_ways(0, 1)(x.expand(4, 9)), (sample(9),)),
    "constant": (lambda x: both_ways(1)(torch.full_like(x, 2.0)), (sample(3, 9),)),
    "computed": (lambda x, w: both_ways(1)(x * w + 1), (sample(6, 40), sample(40))),
    "unstable": (lambda x: [x.sort(1)[0], torch.sort(x, 0, True)[0], torch.msort(x)], (rows(torch.float32, 6, 40),)),
    "argsort": (lambda x: [torch.argsort(x, dim=1, stable=True), x.argsort(dim=0, stable=True)], (rows(torch.int32, 6, 40),)),
    "only_positions": (lambda x: torch.sort(x, stable=True)[1], (rows(torch.int64, 6, 40),)),
    "followed": (lambda x: [v * 2 + i for v, i in [torch.sort(x, stable=True)]], (sample(20, 40),)),
    "sum_of_largest": (lambda x: x.sort(1, descending=True)[0][:, :5].sum(1), (sample(20, 40),)),
    "running": (lambda x: [x.sort(1)[0].cumsum(1), x.cumsum(1).sort(1)[0]], (sample(20, 40),)),
    "softmax": (lambda x: x.softmax(-1).sort(-1, descending=True)[0].cumsum(-1), (sample(20, 40),)),
    "less_the_mean": (lambda x: (x - x.mean(1, keepdim=True)).sort(1)[0] * x.amax(1, keepdim=True), (sample(20, 40),)),
    "twice": (lambda x: torch.sort(torch.sort(x, stable=True)[1], stable=True)[1], (sample(20, 40),)),
    "picked": (lambda x: x.gather(1, torch.sort(x, stable=True)[1]), (sample(20, 40),)),
    "flat": (lambda x: torch.sort(x.reshape(-1), stable=True), (rows(torch.float32, 20, 40),)),
    "rounded": (lambda x: torch.sort(x * 3, stable=True), (rows(torch.bfloat16, 6, 90),)),
    "extremes": (lambda x: [x.sort(1)[0], x.argmax(1), x.max(1)[0]], (sample(30, 9),)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    fn, inputs = PROGRAMS[name]
    check(fn, inputs)


def test_what_is_sorted_is_computed_in_the_kernel() -> None:
    check(lambda x, w, b: torch.sort(x * w + b, stable=True), (sample(30, 50), sample(50), sample(50)), kernels=1)
    check(lambda x: torch.sort(x.softmax(1), dim=1, descending=True)[0].cumsum(1), (sample(30, 50),), kernels=1)


def test_overlapping_rows() -> None:
    """What copies the rows reads the same memory in another order, which would cut the loop over a row in two."""

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        columns = (x * 2).as_strided((84, 2), (1, 1), 1)
        return [columns + 1, columns.sort(0, descending=True)[0] + 1]

    x = rows(torch.int32, 168)
    same(compiled(fn, (x,))(x), fn(x))


def test_symbolic_lengths() -> None:
    fn = both_ways(1)
    graph = compiled(fn, (rows(torch.float32, 4, 7),), mode="symbolic")
    for shape in ((4, 7), (3, 130), (5, 2000), (2, 2)):
        x = rows(torch.float32, *shape, seed=1)
        same(graph(x), fn(x))


def test_many_threads() -> None:
    x = rows(torch.float32, 300, 700)
    same(compiled(both_ways(1), (x,))(x), both_ways(1)(x))


def test_long_rows_of_64_bits_are_left_to_aten() -> None:
    check(lambda x: torch.sort(x, stable=True), (torch.randn(70000, dtype=torch.float64),), aten=1)
    check(lambda x: torch.sort(x, stable=True), (torch.randn(70000),), aten=0)


def test_gradients() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> list[torch.Tensor]:
        def values(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.sort(x * w, dim=1, descending=True, stable=True)[0]

        return list(torch.func.vjp(values, x, w)[1](g))

    check(fn, (sample(6, 40), sample(40), sample(6, 40, seed=1)), tol={"rtol": 1e-5, "atol": 1e-5})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=str)
def test_on_a_gpu(dtype: torch.dtype) -> None:
    """Against eager on the CPU, whose order of zeros and NaN is the documented one."""
    inputs = [rows(dtype, 70, n, seed=n) for n in (2, 33, 512)]

    def fn(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [t for x in xs for t in both_ways(0, 1)(x)]

    given = [x.cuda() for x in inputs]
    graph = compiled(fn, given)
    if dtype.itemsize < 8:
        assert " 0 aten calls" in graph.source.splitlines()[0], graph.source
        same([t.cpu() for t in graph(*given)], fn(*inputs))
    else:
        same(graph(*given), fn(*given))


@settings(max_examples=10, deadline=None)
@given(
    shape=st.lists(st.integers(0, 70), min_size=1, max_size=3).filter(lambda s: max(s) * len(s) < 150),
    dtype=st.sampled_from((*FLOATS, *INTS)),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_any_rows(shape: list[int], dtype: torch.dtype, seed: int, data: st.DataObject) -> None:
    x = rows(dtype, *shape, seed=seed)
    fn = both_ways(data.draw(st.integers(-len(shape), len(shape) - 1)))
    same(compiled(fn, (x,))(x), fn(x))


def sorting_kernel(rows: int, length: int, dtype: torch.dtype) -> LoopKernel:
    """Positions of elements, sorted down, and twice the elements."""
    x, r = Symbol("x0", 0, rows - 1), Symbol("r0", 0, length - 1)
    place = as_expr(x) * length + as_expr(r)
    v = load("a", place, dtype)
    stores = (
        Store("at", place, sort(v, descending=True, positions=True)),
        Store("b", place, sort(v, descending=True) * 2),
    )
    loops = (LoopVar(x, constant(rows)),), (LoopVar(r, constant(length)),)
    return LoopKernel("k", torch.device("cpu"), *loops, stores)


def test_the_executable_meaning() -> None:
    kernel, a = sorting_kernel(4, 9, torch.float32), rows(torch.float32, 4, 9)
    memory = {"a": a.flatten(), "b": torch.zeros(36), "at": torch.zeros(36, dtype=torch.int64)}
    contents = {n: Buffer(n, t.dtype, t.device, (constant(36),), (constant(1),)) for n, t in memory.items()}
    kernel.verify(contents)
    assert max(s.value.level for s in kernel.stores) == 1
    evaluate_kernel(kernel, memory)
    values, positions = torch.sort(a, dim=1, descending=True, stable=True)
    same((memory["b"], memory["at"]), ((values * 2).flatten(), positions.flatten()))


def test_a_sort_has_a_row() -> None:
    kernel = sorting_kernel(4, 9, torch.float32)
    contents = {n: Buffer(n, torch.float32, kernel.device, (), ()) for n in kernel.buffers}
    with pytest.raises(InvalidIR, match="a sort without inner loops"):
        attrs.evolve(kernel, outer=(*kernel.outer, *kernel.inner), inner=()).verify(contents)
    once = tuple(attrs.evolve(s, index=as_expr(kernel.outer[0].symbol), outer=True) for s in kernel.stores)
    with pytest.raises(InvalidIR, match="not outer"):
        attrs.evolve(kernel, stores=once).verify(contents)
