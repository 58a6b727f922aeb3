"""Statistics over many elements on GPUs: which kernels there are, in which order they walk memory, and what they compute, point by point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_inductor_traffic import results
from torch import Tensor
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from torchjit_inductor import InductorSettings
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.kernel import LoopKernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import KernelStep, Program
from torchjit_inductor.triton import split_reduction
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.split_reduction import split_program

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is only done where much is read is done to tensors that tests can evaluate."""
    monkeypatch.setattr(split_reduction, "_LARGE", 2**10)
    monkeypatch.setattr(split_reduction, "CACHED", 2**12)
    monkeypatch.setattr(split_reduction, "_SMALLEST", 2**8)


def programs(function: Callable[..., Any], inputs: Sequence[Tensor], *, batch: int | None = None) -> Program:
    """Fused and split.

    Args:
        batch: first size of the first input if that is a symbol: what is known of it.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())
    kinds = [DimDynamic.STATIC if k or batch is None else DimDynamic.DYNAMIC for k in range(inputs[0].dim())]
    context = StatelessSymbolicContext(dynamic_sizes=kinds)  # type: ignore[var-annotated]
    first = mode.from_tensor(inputs[0], symbolic_context=context, source=ConstantSource("x"))
    with mode:
        fakes = [torch.empty_strided(i.shape, i.stride(), dtype=i.dtype, device="cuda") for i in (first, *inputs[1:])]
        gm = make_fx(function)(*fakes)
    program, backend = lower_graph(gm, "graph"), TritonBackend(InductorSettings(), arch=90)
    hints = {} if batch is None else dict.fromkeys(program.symbol_sources, batch)
    fused = fuse(program, hints, unwanted=lambda kernel: backend.unwanted(kernel, program.buffers, hints))
    return split_program(rename_kernels(remove_dead_stores(fused)), hints)


def computed(program: Program, inputs: Sequence[Tensor]) -> list[Tensor]:
    """What it computes from inputs that lie in memory as they do."""
    known = dict.fromkeys(program.symbol_sources, inputs[0].shape[0])
    return results(program, [i.as_strided((i.numel(),), (1,)) for i in inputs], known)


def kernels_of(program: Program) -> list[LoopKernel]:
    return [merged(s.kernel) for s in program.steps if isinstance(s, KernelStep)]


def images(*shape: int, last: bool = True) -> Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 2 + 3
    return x.to(memory_format=torch.channels_last) if last else x


def _group_norm(x: Tensor, w: Tensor, b: Tensor) -> Any:
    n, c, h, v = x.shape
    return aten.native_group_norm(x, w, b, n, c, h * v, 4, 1e-5)


def _pooled(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return aten.max_pool2d_with_indices(_group_norm(x, w, b)[0] * 2, [2, 2])[0].clamp(0, 1)


def _instance_norm(x: Tensor) -> Any:
    n, c, h, v = x.shape
    y = aten._native_batch_norm_legit(x.reshape(1, n * c, h, v), None, None, True, 0.1, 1e-5)[0]
    return y.view(x.shape) / 2.0


def _batch_norm(x: Tensor, w: Tensor, mean: Tensor, var: Tensor) -> Any:
    y, m, r, new_mean, new_var = aten._native_batch_norm_legit_functional(x, w, None, mean, var, True, 0.1, 1e-5)
    return y.relu(), m, r, new_mean, new_var


CASES: dict[str, tuple[Callable[..., Any], list[Tensor], int]] = {
    "groups": (_group_norm, [images(3, 16, 12, 10), torch.rand(16), torch.rand(16)], 3),
    "groups, half": (_group_norm, [images(3, 16, 12, 10).half(), torch.rand(16).half(), torch.rand(16).half()], 3),
    "groups, a length without divisors": (_group_norm, [images(2, 16, 1, 127), torch.rand(16), torch.rand(16)], 3),
    "groups, pooled": (_pooled, [images(3, 16, 12, 10), torch.rand(16), torch.rand(16)], 3),
    "groups, rows of memory": (_group_norm, [images(3, 16, 12, 10, last=False), torch.rand(16), torch.rand(16)], 1),
    "instances": (_instance_norm, [images(4, 80, 12, 10)], 3),
    "channels": (_batch_norm, [images(4, 80, 12, 10), *torch.rand(3, 80)], 3),
    "sums over short rows": (lambda x: x.sum((0, 3)), [torch.rand(200, 2, 9, 4)], 2),
    "sums over short rows, twice": (lambda x: x / x.sum((0, 3), keepdim=True), [torch.rand(200, 2, 9, 4) + 1], 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_statistics_walk_memory_in_its_order(name: str) -> None:
    function, inputs, kernels = CASES[name]
    program = programs(function, inputs)
    found = kernels_of(program)
    assert len(found) == kernels
    if kernels > 1:
        assert all(_walks_elements(kernel, program) for kernel in found[: 1 if name == "instances" else 3 : 2])
    half = inputs[0].dtype == torch.float16
    got, want = computed(program, inputs), function(*(i.float() for i in inputs))
    for g, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        torch.testing.assert_close(g.float(), w, rtol=1e-5, atol=1e-2 if half else 1e-5)


def _walks_elements(kernel: LoopKernel, program: Program) -> bool:
    """Does memory of the largest operand run along the last loop over which programs are spread?"""
    large = max(kernel.reads, key=lambda n: program.buffers[n].span.value or 0)
    indices = [v.data.index for v in kernel.values if v.op == "load" and v.data.buffer == large]
    return all(stride(i, kernel.outer[-1].symbol).value == 1 for i in indices)  # type: ignore[union-attr]


def test_what_reads_each_element_once_computes_it() -> None:
    """A pooling of windows that overlap reads the norm from memory."""
    inputs = [images(3, 16, 12, 10), torch.rand(16), torch.rand(16)]

    def overlapping(x: Tensor, w: Tensor, b: Tensor) -> Any:
        return aten.max_pool2d_with_indices(_group_norm(x, w, b)[0], [3, 3], [2, 2], [1, 1])[0]

    program = programs(overlapping, inputs)
    assert len(kernels_of(program)) == 4
    torch.testing.assert_close(computed(program, inputs)[0], overlapping(*inputs))
    both = programs(lambda x, w, b: aten.max_pool2d_with_indices(_group_norm(x, w, b)[0], [2, 2]), inputs)
    assert len(kernels_of(both)) == 3  # values and positions from one reading


def test_norms_of_few_bytes_stay_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    inputs = [images(3, 16, 12, 10), torch.rand(16), torch.rand(16)]
    (kernel,) = kernels_of(programs(_group_norm, inputs))
    # ... which walks memory in its order as far as a group goes.
    assert [v.size.value for v in kernel.inner] == [120, 4]
    program = programs(lambda x, w, b: F.relu(_group_norm(x, w, b)[0]), inputs)
    torch.testing.assert_close(computed(program, inputs)[0], F.relu(_group_norm(*inputs)[0]))


SYMBOLIC: dict[str, tuple[Callable[..., Any], Callable[[int], list[Tensor]], int]] = {
    "groups": (_group_norm, lambda n: [images(n, 16, 12, 10), torch.rand(16), torch.rand(16)], 3),
    "channels": (_batch_norm, lambda n: [images(n, 80, 12, 10), *torch.rand(3, 80)], 3),
    "channels, rows of memory": (_batch_norm, lambda n: [images(n, 5, 60, 10, last=False), *torch.rand(3, 5)], 3),
    "sums": (lambda x: (x.sum(0), x * 2), lambda n: [images(n, 3, 12, 10)], 2),
    "whole": (lambda x: x / x.sum(), lambda n: [images(n, 3, 12, 10)], 3),
    "all but the first, whose weights are another tensor": (
        lambda x, w: F.layer_norm(x.transpose(0, 1), (x.shape[0], 1009), w.T.expand(x.shape[0], 1009)),
        lambda n: [torch.randn(n, 2, 1009), torch.rand(1009, 1)],
        3,
    ),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_a_batch_of_any_size_is_split_as_one_of_the_first_size(name: str) -> None:
    """Any batch after that, also one that leaves parts without anything."""
    function, inputs_of, kernels = SYMBOLIC[name]
    program = programs(function, inputs_of(40), batch=40)
    assert len(kernels_of(program)) == kernels
    for n in (40, 41, 3, 1):
        inputs = inputs_of(n)
        want = function(*inputs)
        for g, w in zip(computed(program, inputs), want if isinstance(want, tuple) else (want,), strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4)


def test_a_softmax_of_few_rows_is_split_twice() -> None:
    """The maximum, and the sum of what is relative to it; kernels have numbers by then."""
    x = torch.randn(2, 4000)
    program = programs(lambda x: torch.softmax(x, 1), [x])
    assert len(kernels_of(program)) == 5
    torch.testing.assert_close(computed(program, [x])[0], torch.softmax(x, 1))
