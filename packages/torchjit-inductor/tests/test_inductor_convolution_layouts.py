"""Where convolutions on GPUs have their channels innermost, and who adds their biases: on fake CUDA tensors, run on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from torchjit_inductor import convolution_algorithms, convolution_layouts, convolution_times
from torchjit_inductor.convolution_layouts import CHANNELS_LAST, plan_convolutions
from torchjit_inductor.convolution_times import ConvolutionTimes, contest
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import remove_dead_stores
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import ExternStep, KernelStep, Program, TensorRef

aten = torch.ops.aten
Function = Callable[..., Any]


def planned(
    function: Function,
    *shapes: Sequence[int],
    dtype: torch.dtype = torch.float32,
    times: ConvolutionTimes | None = None,
) -> torch.fx.GraphModule:
    """The graph of a function of contiguous tensors, after the pass."""
    with FakeTensorMode() as mode:
        gm = make_fx(function)(*(torch.empty(s, dtype=dtype, device="cuda") for s in shapes))
        results = next(n for n in gm.graph.nodes if n.op == "output").all_input_nodes
        with mode:
            plan_convolutions(gm.graph, frozenset(results), times or ConvolutionTimes())
    gm.graph.lint()
    gm.recompile()
    return gm


def convolutions(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [n for n in gm.graph.nodes if n.target in (aten.convolution.default, aten.convolution_backward.default)]


def turned(function: Function, *shapes: Sequence[int], **options: Any) -> list[bool]:
    """Which of its convolutions have their channels innermost."""
    return [CHANNELS_LAST in n.meta for n in convolutions(planned(function, *shapes, **options))]


ALONE: dict[str, tuple[Function, Sequence[Sequence[int]]]] = {
    "depthwise 3x7": (lambda x, w: F.conv2d(x, w, groups=128), [(32, 128, 128, 256), (128, 1, 3, 7)]),
    "depthwise 3x1": (lambda x, w: F.conv2d(x, w, groups=8), [(64, 8, 512, 512), (8, 1, 3, 1)]),
    "1x1": (F.conv2d, [(16, 64, 1024, 1024), (128, 64, 1, 1)]),
    "3x3": (F.conv2d, [(16, 16, 1024, 1024), (128, 16, 3, 3)]),
    "transposed": (F.conv_transpose2d, [(32, 64, 256, 256), (64, 64, 3, 3)]),
    "of volumes": (F.conv3d, [(16, 32, 32, 32, 32), (64, 32, 3, 3, 3)]),
    "seen through a view": (lambda x, w, b: F.conv2d(x, w, b).flatten(2), [(64, 64, 56, 56), (64, 64, 3, 3), (64,)]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ALONE)
def test_a_lone_convolution_stays_as_it_is(case: str, dtype: torch.dtype) -> None:
    function, shapes = ALONE[case]
    gm = planned(function, *shapes, dtype=dtype)
    (node,) = convolutions(gm)
    assert CHANNELS_LAST not in node.meta and node.meta["val"].is_contiguous()
    # Its bias, too: cuDNN adds it in place, where a kernel of ours would need another result.
    assert (node.args[2] is None) == (len(shapes) == 2)


def test_a_promised_result_gets_its_bias_from_a_kernel() -> None:
    """One that may change the layout on its way: the pass is there in any case."""
    (node,) = convolutions(planned(F.conv2d, (16, 64, 1024, 1024), (128, 64, 1, 1), (128,)))
    assert node.args[2] is None and CHANNELS_LAST not in node.meta
    (node,) = convolutions(planned(F.conv2d, (128, 64, 128, 128), (128, 64, 3, 3), (128,)))
    assert node.args[2] is None and CHANNELS_LAST in node.meta


def test_a_lone_backward_stays_as_it_is() -> None:
    def function(g: Any, x: Any, w: Any) -> Any:
        return aten.convolution_backward(g, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])

    assert turned(function, (64, 64, 56, 56), (64, 64, 56, 56), (64, 64, 3, 3)) == [False]


FOLLOWED: list[tuple[str, Function, Sequence[Sequence[int]], bool]] = [
    ("3x3", lambda x, w: F.conv2d(x, w).relu(), [(128, 64, 128, 128), (128, 64, 3, 3)], True),
    ("1x1", lambda x, w: F.conv2d(x, w).relu(), [(16, 64, 1024, 1024), (128, 64, 1, 1)], False),
    ("groups", lambda x, w: F.conv2d(x, w, groups=32).relu(), [(64, 256, 28, 28), (256, 8, 3, 3)], True),
    ("depthwise 3x7", lambda x, w: F.conv2d(x, w, groups=96).relu(), [(64, 96, 112, 112), (96, 1, 3, 7)], False),
    ("depthwise 3x3", lambda x, w: F.conv2d(x, w, groups=96).relu(), [(64, 96, 112, 112), (96, 1, 3, 3)], True),
    ("dilated", lambda x, w: F.conv2d(x, w, groups=96, dilation=2).relu(), [(64, 96, 112, 112), (96, 1, 3, 3)], False),
    ("transposed", lambda x, w: F.gelu(F.conv_transpose2d(x, w)), [(32, 64, 256, 256), (64, 64, 3, 3)], True),
    ("transposed volumes", lambda x, w: F.conv_transpose3d(x, w, None, 2).softmax(1), [(16, 32, 16, 32, 32), (32, 64, 3, 3, 3)], True),  # fmt: skip  # noqa: E501
    ("volumes of 3 channels", lambda x, w: F.conv3d(x, w).relu(), [(128, 3, 24, 32, 32), (24, 3, 3, 3, 3)], False),
    ("depthwise volumes", lambda x, w: F.conv3d(x, w, groups=64).relu(), [(16, 64, 16, 56, 56), (64, 1, 3, 3, 3)], False),
    ("group norm", lambda x, w: F.group_norm(F.conv2d(x, w), 8), [(64, 64, 128, 128), (128, 64, 3, 3)], True),
    ("batch norm", lambda x, w: F.batch_norm(F.conv2d(x, w), None, None, training=True), [(64, 64, 128, 128), (128, 64, 3, 3)], True),
    ("96 channels to 32", lambda x, w: F.gelu(F.conv2d(x, w)), [(64, 96, 112, 112), (32, 96, 3, 3)], False),
    ("96 channels to 64", lambda x, w: F.gelu(F.conv2d(x, w)), [(64, 96, 112, 112), (64, 96, 3, 3)], True),
    ("few images", lambda x, w: F.conv2d(x, w).relu(), [(1, 512, 7, 7), (512, 512, 3, 3)], False),
]  # fmt: skip


@pytest.mark.parametrize(("function", "shapes", "gains"), [case[1:] for case in FOLLOWED], ids=[c[0] for c in FOLLOWED])
def test_a_convolution_that_gains_more_than_the_passes_around_it_take(
    function: Function, shapes: Any, gains: bool
) -> None:
    assert turned(function, *shapes) == [gains]


@pytest.mark.parametrize(("function", "shapes", "gains"), [case[1:] for case in FOLLOWED], ids=[c[0] for c in FOLLOWED])
def test_images_of_varying_size_are_laid_out_as_those_of_the_traced_sizes(
    function: Function, shapes: Any, gains: bool
) -> None:
    """All of them, not only the operands of the convolution: else each would be converted. Nothing is decided about the sizes."""
    env = ShapeEnv()

    def varying(number: int, size: int) -> Any:
        source = ConstantSource(f"size{number}")
        made = env.create_symbol(size, source, dynamic_dim=DimDynamic.DYNAMIC)
        return env.create_symintnode(made, hint=size, source=source)

    image, *filters = shapes
    sizes = [n if d == 1 else varying(d, n) for d, n in enumerate(image)]
    with FakeTensorMode(shape_env=env) as mode:
        gm = make_fx(function)(*(torch.empty(s, device="cuda") for s in (sizes, *filters)))
        decided = len(env.guards)
        results = next(n for n in gm.graph.nodes if n.op == "output").all_input_nodes
        with mode:
            plan_convolutions(gm.graph, frozenset(results), ConvolutionTimes())
    (node,) = convolutions(gm)
    assert (CHANNELS_LAST in node.meta) == gains
    assert len(env.guards) == decided
    if node not in results:
        step = node.meta["val"].stride()[1]
        assert (isinstance(step, int) and step == 1) == gains  # a symbolic one is not asked: torch 2.11 fails at some


def test_what_normalises_rows_wants_them_row_major() -> None:
    shapes = [(16, 32, 16, 32, 32), (32, 64, 3, 3, 3), (65,)]

    def over_rows(x: Any, w: Any, g: Any) -> Any:
        return F.layer_norm(F.conv_transpose3d(x, w, None, 2), (65,), g)

    def over_all(x: Any, w: Any, g: Any) -> Any:
        return F.layer_norm(F.conv_transpose3d(x, w, None, 2), (64, 33, 65, 65)) * g

    assert turned(over_rows, *shapes) == [False]
    assert turned(over_all, *shapes) == [True]
    assert turned(lambda x, w, g: F.softmax(F.conv_transpose3d(x, w, None, 2), -1), *shapes) == [False]


def test_regions_are_decided_one_by_one() -> None:
    def function(x: Any, w: Any, v: Any, y: Any, u: Any) -> Any:
        net = F.conv2d(F.conv2d(x, w, padding=1).relu(), v, padding=1) + x
        return net, F.conv2d(y, u, groups=96).relu()

    filters = (64, 64, 3, 3)
    assert turned(function, (64, 64, 56, 56), filters, filters, (64, 96, 112, 112), (96, 1, 3, 7)) == [
        True,
        True,
        False,
    ]


def test_volumes_that_the_library_reads_stay_as_they_were() -> None:
    gm = planned(
        lambda x, w: F.adaptive_max_pool3d(F.conv_transpose3d(x, w, None, 2).relu(), 4).exp(),
        (16, 32, 16, 32, 32),
        (32, 64, 3, 3, 3),
    )
    (node,) = convolutions(gm)
    relu = next(n for n in gm.graph.nodes if n.target is aten.relu.default)
    assert node.meta["val"].is_contiguous(memory_format=torch.channels_last_3d)
    assert relu.meta["val"].is_contiguous()


def test_depthwise_convolutions_of_our_own_take_the_layout_around_them() -> None:
    def function(x: Any, w: Any, v: Any) -> Any:
        y = F.conv2d(F.conv2d(x, w, padding=1).relu(), v, padding=(0, 3), groups=64)
        return F.conv2d(y, w).relu()

    gm = planned(function, (64, 64, 56, 56), (64, 64, 3, 3), (64, 1, 1, 7))
    assert [CHANNELS_LAST in n.meta for n in convolutions(gm)] == [True, False, True]
    assert convolutions(gm)[1].meta["val"].is_contiguous(memory_format=torch.channels_last)


# ------------------------------------------------------------------------------------------------------- biases


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_what_follows_a_convolution_adds_its_bias(rank: int) -> None:
    call = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    shapes = [(2, 4, *[6] * rank), (8, 4, *[3] * rank), (8,)]
    gm = planned(lambda x, w, b: call(x, w, b).sigmoid(), *shapes, dtype=torch.float64)
    assert [n.args[2] for n in convolutions(gm)] == [None]
    x, w, b = (torch.randn(s, dtype=torch.float64) for s in shapes)
    torch.testing.assert_close(gm(x, w, b), call(x, w, b).sigmoid())


def test_a_bias_between_two_convolutions_stays_with_the_library() -> None:
    gm = planned(
        lambda x, w, b, v: F.conv1d(F.conv1d(x, w, b), v).tanh(), (2, 4, 9), (8, 4, 3), (8,), (8, 8, 3), dtype=torch.float64
    )  # fmt: skip
    assert [n.args[2] is None for n in convolutions(gm)] == [False, True]


def test_the_gradient_of_a_bias_of_volumes_is_a_sum() -> None:
    def function(g: Any, x: Any, w: Any) -> Any:
        options = [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1
        return aten.convolution_backward(g, x, w, [8], *options, [True] * 3)

    shapes = [(2, 8, 4, 4, 4), (2, 4, 6, 6, 6), (8, 4, 3, 3, 3)]
    gm = planned(function, *shapes, dtype=torch.float64)
    assert [n.args[1] for n in gm.graph.nodes if n.target is aten.sum.dim_IntList] == [[0, 2, 3, 4]]
    inputs = [torch.randn(s, dtype=torch.float64) for s in shapes]
    for got, want in zip(gm(*inputs), function(*inputs), strict=True):
        torch.testing.assert_close(got, want)


# ------------------------------------------------------------------------------------------- through the kernels


def results(program: Program, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a program computes, the library's results stored as it answers on a GPU."""
    memory = {n: torch.full((b.span.evaluate({}),), 77).to(b.dtype) for n, b in program.buffers.items()}
    memory |= {str(n): value.flatten().clone() for n, value in zip(program.inputs, inputs, strict=True)}

    def tensor(ref: Any) -> Any:
        if isinstance(ref, (list, tuple)):
            return type(ref)(map(tensor, ref))
        if not isinstance(ref, TensorRef):
            return ref
        sizes, strides = ([e.evaluate({}) for e in part] for part in (ref.sizes, ref.strides))
        return torch.as_strided(memory[ref.buffer], sizes, strides, ref.offset.evaluate({}))

    for step in program.steps:
        if isinstance(step, KernelStep):
            step.kernel.verify(program.buffers)
            evaluate_kernel(step.kernel, memory)
        elif isinstance(step, ExternStep):
            made = step.op(*map(tensor, step.args))
            for name, value in zip(step.outputs, (made,) if step.single else made, strict=True):
                if name is not None:
                    last = torch.channels_last if value.dim() == 4 else torch.channels_last_3d
                    # cuDNN answers with the channels innermost where it was asked so.
                    given = tensor(step.args[0])
                    value = value.contiguous(memory_format=last if given.stride(1) == 1 else torch.contiguous_format)
                    memory[name] = value.as_strided((value.numel(),), (1,)).clone()
    return [tensor(o) for o in program.outputs]


def _net_of_images(x: Any, w: Any, b: Any) -> Any:
    y = F.conv2d(x, w, b, padding=1)
    return y.softmax(1), y.relu().sum((2, 3))


def _net_of_volumes(x: Any, w: Any, b: Any) -> Any:
    y = F.conv_transpose3d(x, w, b, stride=2)
    return y.softmax(1).sigmoid(), (y + 1).tanh() * y


def _step_of_volumes(x: Any, w: Any, g: Any) -> Any:
    options = [1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1
    y = aten.convolution(x, w, None, *options).sigmoid()
    made = aten.convolution_backward(g * y * (1 - y), x, w, [3], *options, [True] * 3)
    return y, made[0] * 2, made[1], made[2]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (_net_of_images, [(2, 3, 4, 5), (4, 3, 3, 3), (4,)]),
        (_net_of_volumes, [(2, 3, 2, 3, 2), (3, 4, 3, 3, 3), (4,)]),
        (_step_of_volumes, [(2, 2, 3, 4, 3), (3, 2, 3, 3, 3), (2, 3, 3, 4, 3)]),
    ],
    ids=["images", "volumes", "a training step of volumes"],
)
def test_results_and_their_strides_are_eagers(
    function: Function, shapes: Sequence[Sequence[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution_layouts, "_pays", lambda region, promised, times: True)
    gm = planned(function, *shapes)
    assert all(CHANNELS_LAST in n.meta for n in convolutions(gm))
    program = remove_dead_stores(fuse(lower_graph(gm, "graph"), {}))
    asked = [s.args[0] for s in program.steps if isinstance(s, ExternStep)]
    assert asked and all(ref.strides[1].value == 1 for ref in asked)
    torch.manual_seed(0)
    inputs = [torch.randn(s) for s in shapes]
    for got, want in zip(results(program, inputs), function(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert got.stride() == want.stride()


SUMMED: dict[str, tuple[Function, Sequence[Sequence[int]]]] = {
    "rows": (lambda x, w, b: F.conv1d(x, w, b, padding=2, groups=3), [(2, 3, 7), (3, 1, 5), (3,)]),
    "causal": (lambda x, w, b: F.conv1d(x, w, b, padding=3, groups=3)[..., :-3], [(2, 3, 7), (3, 1, 4), (3,)]),
    "two results a channel": (
        lambda x, w, b: F.conv1d(x.transpose(1, 2), w, b, stride=2, groups=3).transpose(1, 2),
        [(2, 9, 3), (6, 1, 3), (6,)],
    ),
    "images": (lambda x, w, b: F.conv2d(x, w, b, (1, 2), (1, 0), groups=3), [(2, 3, 5, 7), (3, 1, 3, 2), (3,)]),
    "a square for two results": (lambda x, w, b: F.conv2d(x, w, b, groups=2), [(2, 2, 5, 4), (4, 1, 3, 3), (4,)]),
    "dilated": (lambda x, w, b: F.conv2d(x, w, b, 1, 2, 2, groups=3), [(2, 3, 5, 6), (3, 1, 3, 3), (3,)]),
    "volumes": (lambda x, w, b: F.conv3d(x, w, b, padding=1, groups=2), [(1, 2, 3, 4, 3), (2, 1, 3, 3, 3), (2,)]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", SUMMED)
def test_depthwise_convolutions_are_sums_over_windows(case: str, dtype: torch.dtype) -> None:
    function, shapes = SUMMED[case]

    def followed(x: Any, w: Any, b: Any) -> Any:
        return F.gelu(function(x, w, b))

    program = remove_dead_stores(fuse(lower_graph(planned(followed, *shapes, dtype=dtype), "graph"), {}))
    assert [type(s) for s in program.steps] == [KernelStep]
    torch.manual_seed(0)
    inputs = [torch.randn(s, dtype=dtype) for s in shapes]
    (got,) = results(program, inputs)
    want = followed(*(each.double() for each in inputs))
    rough = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got.double(), want, rtol=rough, atol=rough, check_stride=False)


OTHERS: dict[str, tuple[Function, Sequence[Sequence[int]]]] = {
    "square": (lambda x, w: F.conv2d(x, w, padding=1, groups=3), [(2, 3, 5, 5), (3, 1, 3, 3)]),
    "groups": (lambda x, w: F.conv1d(x, w, groups=2), [(2, 4, 7), (4, 2, 3)]),
    "transposed": (lambda x, w: F.conv_transpose1d(x, w, groups=3), [(2, 3, 7), (3, 1, 3)]),
    "large": (lambda x, w: F.conv1d(x, w, groups=3), [(2, 3, 70), (3, 1, 31)]),
    "one channel": (F.conv1d, [(2, 1, 7), (1, 1, 3)]),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_convolutions_are_the_librarys(case: str) -> None:
    program = lower_graph(planned(OTHERS[case][0], *OTHERS[case][1]), "graph")
    assert aten.convolution.default in [s.op for s in program.steps if isinstance(s, ExternStep)]


# --------------------------------------------------------------------------------------------------- max_autotune


def test_measurements_decide_once_for_each_shape_and_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_times, "_machine", lambda device: "a machine")
    runs: list[int] = []

    def timer(node: torch.fx.Node, images: int) -> tuple[float, float]:
        runs.append(images)
        return 0.5, 0.25

    def function(x: Any, w: Any, v: Any) -> Any:
        return F.conv2d(F.conv2d(x, w).relu(), v).relu()

    shapes = (32, 128, 128, 256), (64, 128, 1, 1), (128, 64, 1, 1)
    assert turned(function, *shapes) == [False, False]
    for _ in range(2):  # another process finds what the first one has measured
        times = ConvolutionTimes(str(tmp_path), measures=True, timer=timer)
        assert turned(function, *shapes, times=times) == [True, True]
    assert len(runs) == 2 and all(0 < n < 32 for n in runs)  # few images, or the runs would fill the memory


def test_what_cannot_be_measured_is_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_times, "_machine", lambda device: "a machine")

    def timer(node: torch.fx.Node, images: int) -> tuple[float, float]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    case = FOLLOWED[0]
    times = ConvolutionTimes(str(tmp_path), measures=True, timer=timer)
    assert turned(case[1], *case[2], times=times) == [True]
    torch.use_deterministic_algorithms(True)
    try:
        alike = ConvolutionTimes(str(tmp_path), measures=True, timer=lambda node, images: (0.0, 1.0))
        assert turned(case[1], *case[2], times=alike) == [True]
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("backward", [False, True])
def test_a_run_is_the_operator_in_both_layouts(backward: bool) -> None:
    def function(x: Any, w: Any, g: Any) -> Any:
        options = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
        if backward:
            return aten.convolution_backward(g, x, w, None, *options, [True, True, False])[:2]
        return aten.convolution(x, w, None, *options)

    with FakeTensorMode():
        gm = make_fx(function)(torch.empty(6, 3, 5, 5), torch.empty(4, 3, 3, 3), torch.empty(6, 4, 3, 3))
    (node,) = convolutions(gm)
    row_major, last = (run() for run in contest(node, 2))
    made: list[Any] = [each if isinstance(each, tuple) else (each,) for each in (row_major, last)]
    for want, got in zip(made[0][:2], made[1][:2], strict=True):
        torch.testing.assert_close(got, want, check_stride=False)
    assert made[0][0].shape[0] == 2


def test_algorithms_are_measured_for_fixed_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeTensorMode():
        gm = make_fx(lambda x, w: F.conv2d(x, w).relu())(
            torch.empty(2, 3, 4, 4, device="cuda"), torch.empty(4, 3, 3, 3, device="cuda")
        )
    program = convolution_algorithms.measure_algorithms(lower_graph(gm, "graph"))
    (step,) = [s for s in program.steps if isinstance(s, ExternStep)]
    assert step.op is convolution_algorithms.convolution

    seen: list[bool] = []

    def operator(*args: Any) -> None:
        seen.append(torch.backends.cudnn.benchmark)
        raise RuntimeError("no such kernel")

    before = torch.backends.cudnn.benchmark
    with pytest.raises(RuntimeError):
        convolution_algorithms._measured(operator, ())
    assert seen == [True] and torch.backends.cudnn.benchmark == before
