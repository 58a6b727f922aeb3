"""Lowerings that only GPUs have: programs for devices that need not exist, evaluated point by point, against eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch
import torch.fx
import torch.nn.functional as F
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor.codegen_protocol import CompiledKernel
from torchjit_inductor.folding import scalars_on_devices
from torchjit_inductor.host import write_host_program
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.lowering.graph_nodes import read_whole
from torchjit_inductor.schedule.cleanup import remove_dead_stores
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import ExternStep, KernelStep, Program
from torchjit_inductor.triton import launch
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.plan import make_plan
from torchjit_inductor.triton.source import kernel_source
from torchjit_inductor.triton.specialisations import Variant
from torchjit_torch.node_meta import FROM_PLACES

aten = torch.ops.aten


def traced(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """The graph on a CUDA device, with the strides of the inputs."""
    with FakeTensorMode():
        fakes = [torch.empty_strided(i.shape, i.stride(), dtype=i.dtype, device="cuda") for i in inputs]
        return make_fx(function)(*fakes)


def lowered(gm: torch.fx.GraphModule) -> Program:
    program = lower_graph(gm, "graph")
    return remove_dead_stores(fuse(program, {}))


def results(program: Program, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the kernels compute, by the evaluator of the loop IR; there may be no calls of aten with results in use."""
    memory = {n: torch.full((b.span.evaluate({}),), 77).to(b.dtype) for n, b in program.buffers.items()}
    for name, value in zip(program.inputs, inputs, strict=True):
        if isinstance(name, str):
            memory[name] = value.as_strided((value.untyped_storage().size() // value.itemsize,), (1,)).clone()
    for step in program.steps:
        if isinstance(step, KernelStep):
            evaluate_kernel(step.kernel, memory)
    made = []
    for ref in program.outputs:
        sizes, strides = ([e.evaluate({}) for e in part] for part in (ref.sizes, ref.strides))
        made.append(torch.as_strided(memory[ref.buffer], sizes, strides, ref.offset.evaluate({})))
    return made


def aten_calls(program: Program) -> list[Any]:
    return [s.op for s in program.steps if isinstance(s, ExternStep)]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["rows", "channels"])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "ceil"), [(3, 2, 1, False), (2, 2, 0, True), (3, 1, 1, False), (2, 3, 0, False)]
)
def test_the_backward_of_max_pooling(kernel: int, stride: int, padding: int, ceil: bool, layout: Any) -> None:
    x = torch.randint(0, 5, (2, 3, 9, 7)).float()  # with ties
    y, indices = F.max_pool2d(x, kernel, stride, padding, 1, ceil, return_indices=True)
    gradient = torch.randn(y.shape).to(memory_format=layout)

    def function(g: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> Any:
        return aten.max_pool2d_with_indices_backward(g, x, [kernel] * 2, [stride] * 2, [padding] * 2, [1, 1], ceil, at)

    program = lowered(traced(function, [gradient, x, indices]))
    assert not aten_calls(program)
    torch.testing.assert_close(results(program, [gradient, x, indices])[0], function(gradient, x, indices))


def test_the_backward_of_max_pooling_from_places_in_the_window() -> None:
    x = torch.randint(0, 5, (2, 3, 8, 8)).float()
    y, indices = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    gradient = torch.randn(y.shape)
    top = (torch.arange(4) * 2 - 1)[:, None]
    left = torch.arange(4) * 2 - 1
    places = ((indices // 8 - top) * 3 + indices % 8 - left).to(torch.int8)

    def function(g: torch.Tensor, x: torch.Tensor, places: torch.Tensor) -> Any:
        wide = places.to(torch.int64)
        top = (torch.arange(4, device=g.device) * 2 - 1)[:, None]
        left = torch.arange(4, device=g.device) * 2 - 1
        at = (wide // 3 + top) * 8 + (wide % 3 + left)
        return aten.max_pool2d_with_indices_backward(g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, at)

    gm = traced(function, [gradient, x, places])
    (node,) = gm.graph.find_nodes(op="call_function", target=aten.max_pool2d_with_indices_backward.default)
    FROM_PLACES.put(node, True)
    program = lowered(gm)
    assert not aten_calls(program)
    (kernel,) = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    assert not any(v.op == "floordiv" for v in kernel.values)
    torch.testing.assert_close(results(program, [gradient, x, places])[0], function(gradient, x, places))


@pytest.mark.parametrize(
    ("args", "channels_last"),
    [
        ((3, 2, 1), False),
        ((3, 2, 1, 3), False),
        ((3, 2, 1, 2, True), True),
        ((2, 2, 0), True),
        (((1, 2, 3), 1, (0, 1, 1)), False),
    ],
    ids=str,
)
def test_windows_of_three_dimensions(args: tuple[Any, ...], channels_last: bool) -> None:
    x = torch.randint(0, 9, (2, 3, 9, 7, 8)).float()
    x[0, 0, 3, 3, 3] = torch.nan
    if channels_last:
        x = x.to(memory_format=torch.channels_last_3d)

    def largest(x: torch.Tensor) -> Any:
        return list(aten.max_pool3d_with_indices(x, *args))

    def averages(x: torch.Tensor) -> Any:
        return [aten.avg_pool3d(x, *args[:3]), aten.avg_pool3d(x, *args[:3], False, False), aten.avg_pool3d(x, 2, 2)]

    for function in (largest, averages):
        program = lowered(traced(function, [x]))
        assert not aten_calls(program)
        for got, want in zip(results(program, [x]), function(x), strict=True):
            torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("bias", [False, True])
def test_the_product_of_one_row_is_a_reduction_that_takes_in_what_follows(bias: bool) -> None:
    x, residual = torch.randn(1, 160), torch.randn(1, 24)
    gate, up, b = torch.randn(24, 160), torch.randn(24, 160), torch.randn(24)

    def function(x: Any, gate: Any, up: Any, b: Any, residual: Any) -> Any:
        left = torch.addmm(b, x, gate.t()) if bias else x @ gate.t()
        return F.silu(left) * (x @ up.t()) + residual

    inputs = [x, gate, up, b, residual]
    program = lowered(traced(function, inputs))
    assert not aten_calls(program)
    assert len(program.steps) == 1
    torch.testing.assert_close(results(program, inputs)[0], function(*inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_the_product_with_one_column_is_a_reduction(bias: bool) -> None:
    x, w, b = torch.randn(37, 160), torch.randn(3, 160), torch.randn(3)

    def function(x: Any, w: Any, b: Any) -> Any:
        left = torch.addmm(b[:1], x, w.t()[:, 1:2]) if bias else x @ w.t()[:, 1:2]
        return left.sigmoid() * x

    program = lowered(traced(function, [x, w, b]))
    assert not aten_calls(program)
    torch.testing.assert_close(results(program, [x, w, b])[0], function(x, w, b), rtol=1e-4, atol=1e-4)


def test_other_products_are_calls() -> None:
    x = torch.randn(2, 160)
    for left, right in (
        (x, torch.randn(24, 160).t()),
        (x[:1], torch.randn(160, 24)),
        (x[:1, :64], torch.randn(24, 64).t()),
    ):
        program = lowered(traced(torch.mm, [left, right]))
        assert aten_calls(program) == [aten.mm.default]


def test_a_loss_that_picks_from_rows_stores_no_rows() -> None:
    logits, labels = torch.randn(6, 500), torch.randint(0, 500, (6,))

    def function(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        moved = logits - logits.amax(1, keepdim=True)
        scores = moved - moved.exp().sum(1, keepdim=True).log()
        return -scores.gather(1, labels[:, None]).sum()

    gm = traced(function, [logits, labels])
    (moved,) = (n for n in gm.graph.nodes if n.target is aten.sub.Tensor and n.args[0].op == "placeholder")
    assert (len(moved.users), read_whole(moved)) == (2, 1)
    program = lowered(gm)
    rows = [n for n in program.buffers if n not in program.inputs and len(program.buffers[n].sizes) == 2]
    assert all(program.buffers[n].sizes[1].value == 1 for n in rows)
    want = F.cross_entropy(logits, labels, reduction="sum")
    torch.testing.assert_close(results(program, [logits, labels])[0], want)


def test_a_16_bit_loss_picks_from_the_scores_themselves() -> None:
    logits, labels = torch.randn(6, 500).bfloat16(), torch.randint(0, 500, (6,))

    def function(logits: torch.Tensor, labels: torch.Tensor) -> Any:
        scores = logits.float()
        top = scores.amax(1, keepdim=True)
        near = scores - top
        total = near.exp().sum(1, keepdim=True)
        return -(near - total.log()).bfloat16().gather(1, labels[:, None]).float().sum(), top, total

    program = lowered(traced(function, [logits, labels]))
    assert not [n for n, b in program.buffers.items() if n not in program.inputs and b.span.evaluate({}) > 6]
    for got, want in zip(results(program, [logits, labels]), function(logits, labels), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)


def test_rows_that_are_returned_are_what_a_loss_picks_from() -> None:
    """In training a 16-bit loss saves its log-probabilities: their float32 operands need not be stored beside them."""
    logits, labels = torch.randn(6, 500).bfloat16(), torch.randint(0, 500, (6,))

    def function(logits: torch.Tensor, labels: torch.Tensor) -> Any:
        scores = F.log_softmax(logits.float(), 1).bfloat16()
        return -scores.gather(1, labels[:, None]).float().sum(), scores

    program = lowered(traced(function, [logits, labels]))
    rows = [b for n, b in program.buffers.items() if n not in program.inputs and b.span.evaluate({}) == logits.numel()]
    assert [b.dtype for b in rows] == [torch.bfloat16]
    for got, want in zip(results(program, [logits, labels]), function(logits, labels), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)


def test_chains_of_thousands_of_formulas_are_not_followed_to_their_end() -> None:
    graph = torch.fx.Graph()
    node = first = graph.placeholder("x")
    first.meta["val"] = torch.empty(64)
    for _ in range(3000):
        node = graph.call_function(aten.add.Tensor, (node, node))
        node.meta["val"] = torch.empty(64)
    picked = graph.call_function(aten.index_select.default, (node, 0, graph.placeholder("at")))
    picked.meta["val"] = torch.empty(2)
    assert read_whole(first) == 1
    assert read_whole(node) == 0


def test_a_reduction_and_its_user_through_a_split_dimension_are_one_kernel() -> None:
    x = torch.randn(4, 3, 40)

    def function(x: torch.Tensor) -> torch.Tensor:
        rows = F.softmax(x.view(12, 40), 1)
        return rows.view(4, 3, 40).to(torch.float64).view(12, 40)

    program = lowered(traced(function, [x]))
    assert len(program.steps) == 1
    torch.testing.assert_close(results(program, [x])[0], function(x))


def test_rows_are_stored_in_the_order_of_windows_by_the_kernel_of_their_norm() -> None:
    """A window is a digit of a row's number; so is a head of a column's."""

    def function(x: torch.Tensor) -> Any:
        y = F.layer_norm(x, (8,))
        windows = y.view(2, 3, 2, 3, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 8)
        return y.sin(), windows + 0

    x = torch.randn(2, 6, 6, 8)
    program = lowered(traced(function, [x]))
    assert len(program.steps) == 1
    for got, want in zip(results(program, [x]), function(x), strict=True):
        torch.testing.assert_close(got, want)


def test_halves_that_are_rotated_are_read_where_they_come_from() -> None:
    """The gradient of a rotary embedding: the product with the sine is not stored before its halves are swapped."""

    def function(g: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
        turned = g * sin
        low, high = aten.slice.Tensor(turned, -1, 0, 8), aten.slice.Tensor(turned, -1, 8, 16)
        back = aten.slice_backward(low.neg(), g.shape, 2, 8, 16, 1) + aten.slice_backward(high, g.shape, 2, 0, 8, 1)
        return back + g * cos

    inputs = [torch.randn(2, 5, 16), torch.randn(5, 16), torch.randn(5, 16)]
    program = lowered(traced(function, inputs))
    assert len(program.steps) == 1
    torch.testing.assert_close(results(program, inputs)[0], function(*inputs))

    def both(g: torch.Tensor, sin: torch.Tensor) -> Any:
        turned = (g * sin).tanh()
        return turned[..., :12].sum(0), turned[..., 4:].sum(1)  # more than all of it: computed once

    twice = lowered(traced(both, inputs[::2]))
    assert any(name.startswith("tanh") for step in twice.steps for name in step.writes)
    for got, want in zip(results(twice, inputs[::2]), both(*inputs[::2]), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(
    ("mode", "size"),
    [("linear", (14,)), ("bilinear", (14, 20)), ("bilinear", (5, 3)), ("bicubic", (14, 20)), ("trilinear", (5, 9, 4))],
)
def test_an_interpolation_is_one_kernel_of_positions_that_need_no_test(
    mode: str, size: tuple[int, ...], align: bool
) -> None:
    """All corners in a kernel, at places that are computed in 32 bits."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=size, mode=mode, align_corners=align)

    inputs = [torch.randn((2, 3, 7, 9, 4)[: len(size) + 2])]
    with enable_python_dispatcher():
        gm = traced(function, inputs)
    program = lowered(gm)
    assert len(program.steps) == 1
    torch.testing.assert_close(results(program, inputs)[0], function(*inputs))
    (kernel,) = (merged(step.kernel) for step in program.steps if isinstance(step, KernelStep))
    text = kernel_source(kernel, program.buffers, make_plan(kernel, program.buffers, {}))
    assert "assert" not in text
    assert "int64" not in text


def test_short_rows_are_sorted_in_registers() -> None:
    x = torch.randint(-9, 9, (5, 40)).float()

    def function(x: torch.Tensor) -> Any:
        return [*torch.sort(x * 2, dim=1, descending=True, stable=True), torch.sort(x, dim=0, stable=True)[1]]

    program = lowered(traced(function, [x]))
    assert not aten_calls(program)
    for got, want in zip(results(program, [x]), function(x), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize(
    "x",
    [torch.zeros(3, 9, dtype=torch.float64), torch.zeros(3, 9, dtype=torch.int64), torch.zeros(3, 5000)],
    ids=["float64", "int64", "long"],
)
def test_long_rows_and_elements_of_64_bits_are_sorted_by_aten(x: torch.Tensor) -> None:
    assert len(aten_calls(lowered(traced(lambda x: torch.sort(x, stable=True), [x])))) == 1


def _scale(x: torch.Tensor) -> torch.Tensor:
    """A square root that the CPU takes, as attention of DeBERTa has it: the pass over constants computes it."""
    return x / torch.full((), 40.0).sqrt().to(x.dtype)


def _masked(x: torch.Tensor) -> torch.Tensor:
    low = torch.full((), float("-inf"))
    return torch.where(x > torch.full((), 0.5), x, low).softmax(-1)


def _other_types(x: torch.Tensor) -> list[torch.Tensor]:
    """Whole numbers, and a number that bfloat16 rounds."""
    tenth = torch.full((), 0.1, dtype=torch.bfloat16)
    return [torch.clamp(x + torch.full((), 3), max=torch.full((), 2)), x.bfloat16() * tenth, x * tenth]


def _filled(x: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(x > 0, torch.full((), torch.finfo(x.dtype).min))


@pytest.mark.parametrize("function", [_scale, _masked, _other_types, _filled])
def test_known_scalars_of_the_cpu_are_numbers_of_kernels(function: Callable[..., Any]) -> None:
    x = torch.randn(6, 40)
    gm = traced(function, [x])
    with FakeTensorMode():
        scalars_on_devices(gm.graph, frozenset())
    program = lowered(gm)
    kernels = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    assert len(kernels) == 1 and kernels[0].device.type == "cuda"
    assert not aten_calls(program)
    wanted = function(x)
    for made, like in zip(results(program, [x]), wanted if isinstance(wanted, list) else [wanted], strict=True):
        torch.testing.assert_close(made, like, atol=0.02 if like.dtype == torch.bfloat16 else 1e-6, rtol=1e-5)


def test_a_scalar_of_the_cpu_that_each_call_may_change_is_left_to_aten() -> None:
    with FakeTensorMode():
        x, scale = torch.empty(6, 40, device="cuda"), torch.empty(())
        gm = make_fx(lambda x, scale: x * scale + 1)(x, scale)
        scalars_on_devices(gm.graph, frozenset())
    assert aten_calls(lowered(gm)) == [aten.mul.Tensor]


def test_numbers_that_follow_from_one_number_are_not_stored() -> None:
    """The keys of ten rounds of random bits: stored, they were ten arguments of each kernel, and too many for two of them in one."""
    x, seeds = torch.randn(6, 40), torch.tensor([5, 7])

    def function(x: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        for which in range(2):
            key, bits = seeds[which] & 0xFFFF, torch.arange(240, device=x.device).view(6, 40)
            for _ in range(6):
                bits = (bits * 0xD256 & 0xFFFF) ^ key ^ torch.bitwise_right_shift(bits, 3)
                key = (key + 0x9E37) & 0xFFFF
            x = x * (bits > 0x2000)
        return x.softmax(-1)

    program = lowered(traced(function, [x, seeds]))
    (kernel,) = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    assert not aten_calls(program) and len({v.data.buffer for v in kernel.values if v.op == "load"}) == 2
    torch.testing.assert_close(results(program, [x, seeds])[0], function(x, seeds))


def _smooth_l1(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    far = (x - y).abs()
    return torch.where(far < 1, 0.5 * far * far, far - 0.5)


LOSSES: dict[str, Callable[..., Any]] = {
    "smooth l1": lambda x, y: _smooth_l1(x, y).mean(),
    "huber": lambda x, y: (_smooth_l1(x, y) * 0.5).sum(),
    "mse": lambda x, y: F.mse_loss(x, y),
    "several users": lambda x, y: (lambda d: (d * d.exp() + d.sin()).mean())((x - y).abs()),
    "stored too": lambda x, y: (lambda d: [d, (d * d.sigmoid()).amax()])((x - y).relu()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_over_all_elements_reads_each_once(name: str) -> None:
    """What many use joins the sum although it has one row: its inner points are shared among programs."""
    inputs = [torch.randn(130, 260), torch.randn(130, 260)]
    gm = traced(LOSSES[name], inputs)
    program = lower_graph(gm, "graph")
    assert not aten_calls(program)
    backend = TritonBackend(arch=90)
    program = remove_dead_stores(fuse(program, {}, shares=lambda k: backend.shares(k, program.buffers, {})))
    (kernel,) = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    assert kernel.inner and set(program.inputs) <= set(kernel.reads)
    want = LOSSES[name](*inputs)
    for got, each in zip(results(program, inputs), want if isinstance(want, list) else [want], strict=True):
        torch.testing.assert_close(got, each)


@pytest.mark.parametrize(("shape", "dim"), [((2**16,), 0), ((3, 3 * 2**15), 1), ((2, 2**17, 2), 1)], ids=str)
def test_running_sums_of_few_long_rows_fill_the_device(shape: tuple[int, ...], dim: int) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    functions: list[Callable[..., Any]] = [
        lambda x: (x * 2).cumsum(dim),
        lambda x: (1 + x / 1000).cumprod(dim),
        lambda x: x.bfloat16().cumsum(dim),
        lambda x: (x * 9).long().cumsum(dim),
    ]
    for function in functions:
        program = lowered(traced(function, [x]))
        kernels = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
        assert len(kernels) == 3 and len(program.steps) == 3
        got, want = results(program, [x])[0], function(x)
        torch.testing.assert_close(got, want, rtol=1e-2 if want.dtype == torch.bfloat16 else 1e-4, atol=2e-2)
    few = lowered(traced(lambda x: x.cumsum(0), [torch.randn(2**16 + 1)]))
    assert len(few.steps) == 1, "parts are of one length"


def test_what_waits_for_the_result_or_cannot_be_shared_does_not_join_a_reduction_of_one_row() -> None:
    x = torch.randn(130, 260)
    backend = TritonBackend(arch=90)
    for function in (lambda x: x / x.norm(), lambda x: (lambda d: (d * d.exp()).argmax())(x.sin())):
        program = lower_graph(traced(function, [x]), "graph")
        program = fuse(program, {}, shares=lambda k, p=program: backend.shares(k, p.buffers, {}))  # type: ignore[misc]
        assert len(program.steps) == 2


class CountedBuffers(dict[str, Buffer]):
    """Counts how often somebody goes through all of them."""

    walks = 0

    def values(self) -> Any:
        type(self).walks += 1
        return super().values()


@pytest.mark.parametrize("products", [2, 20])
def test_the_host_program_looks_for_its_device_once(products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each allocation: a training step of 48 layers has thousands of buffers."""
    monkeypatch.setattr(CountedBuffers, "walks", 0)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(products):
            x = (x @ w).relu()
        return x

    program = lowered(traced(function, [torch.randn(4, 4), torch.randn(4, 4)]))
    program = attrs.evolve(program, buffers=CountedBuffers(program.buffers))
    kernels = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    made = {k.name: CompiledKernel(k.name, "", lambda: None) for k in kernels}
    source = write_host_program(program, made, check_strides=False).source
    assert source.count("exchange_device(0)") == 1
    assert CountedBuffers.walks == 2  # the program is written twice


def test_a_text_is_written_once_for_each_plan_and_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """What compiles a kernel asks for its text, and what reports it does."""
    written: list[bool] = []

    def counted(*given: Any, wide: bool) -> str:
        written.append(wide)
        return kernel_source(*given, wide=wide)

    monkeypatch.setattr(launch, "kernel_source", counted)
    program = lowered(traced(lambda x: x.exp() + 1, [torch.randn(40, 50)]))
    (kernel,) = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    kernel = merged(kernel)
    plan = make_plan(kernel, program.buffers, {})
    variants = launch.KernelVariants(kernel, program.buffers, plan, 90, {})
    narrow, wide = Variant(True, False), Variant(True, True)
    assert (
        variants.base(True, False).source
        == variants.source(narrow)
        == kernel_source(kernel, program.buffers, plan, wide=False)
    )
    assert variants.base(True, True).source == variants.source(wide) != variants.source(narrow)
    assert written == [False, True]
    variants.plan = attrs.evolve(plan, axes=tuple(attrs.evolve(a, block=a.block // 2) for a in plan.axes))
    assert variants.source(narrow) == kernel_source(kernel, program.buffers, variants.plan, wide=False)
    assert written == [False, True, False]
