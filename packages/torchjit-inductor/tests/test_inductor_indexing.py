"""Computed positions, scatters and running sums against eager, with eager's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import check, compiled, trace

from torchjit_core.events import listen
from torchjit_inductor import Inductor, InductorSettings
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import KernelStep, TensorRef

aten = torch.ops.aten
Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def _ints(low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(high))


def _floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


GATHERS: dict[str, Case] = {
    "embedding_layer_norm": (lambda w, i: F.layer_norm(F.embedding(i, w), (16,)), (_floats(50, 16), _ints(0, 50, 4, 7))),
    "embedding_int32": (lambda w, i: F.embedding(i, w) * 2, (_floats(50, 16), _ints(0, 50, 5).int())),
    "index_middle": (lambda x, i: x[:, i] + 1, (_floats(6, 8, 10), _ints(-8, 8, 5))),
    "index_two": (lambda x, i, j: x[:, i, j] * 2, (_floats(6, 8, 10), _ints(-8, 8, 5), _ints(-10, 10, 3, 5))),
    "index_apart": (lambda x, i, j: x[i, :, j], (_floats(6, 8, 10), _ints(-6, 6, 5), _ints(0, 10, 3, 1))),
    "gather_last": (lambda x, i: x.gather(1, i).relu(), (_floats(5, 9), _ints(0, 9, 4, 20))),
    "gather_first": (lambda x, i: x.gather(0, i) + 1, (_floats(5, 9).t().contiguous().t(), _ints(0, 5, 4, 9))),
    "index_select": (lambda x, i: x.index_select(2, i).exp(), (_floats(6, 8, 10), _ints(0, 10, 4))),
    "gather_bool": (lambda x, i: (x > 0).gather(1, i), (_floats(5, 9), _ints(0, 9, 5, 3))),
    "under_padding": (lambda w, i: F.pad(F.embedding(i, w), (1, 2, 1, 0)), (_floats(9, 5), _ints(0, 9, 6))),
    "nothing_but_padding": (lambda x, i: F.pad(x.index_select(1, i), (0, 2)), (_floats(9, 1), _ints(0, 1, 0))),
}  # fmt: skip

SCATTERS: dict[str, Case] = {
    "scatter_add": (lambda x, i, s: x.scatter_add(1, i, s), (_floats(5, 9), _ints(0, 9, 4, 20), _floats(4, 21))),
    "scatter_add_first": (lambda x, i, s: x.scatter_add(0, i, s), (_floats(5, 9), _ints(0, 5, 40, 9), _floats(41, 9))),
    "scatter_add_vector": (lambda x, i, s: x.scatter_add(0, i, s * 2) + 1, (_floats(7), _ints(0, 7, 400), _floats(400))),
    "scatter_last_wins": (lambda x, i, s: x.scatter(0, i, s), (_floats(7), _ints(0, 7, 40), _floats(40))),
    "scatter_one_hot": (lambda x, i: torch.zeros_like(x).scatter(1, i, 1.5) * x, (_floats(5, 9), _ints(0, 9, 5, 1))),
    "index_put_add": (lambda x, i, v: torch.index_put(x, (i,), v, True), (_floats(50, 16), _ints(0, 50, 4, 7), _floats(4, 7, 16))),
    "index_put_dims": (lambda x, i, j, v: aten.index_put(x, [None, i, j], v, True), (_floats(6, 8, 10), _ints(-8, 8, 5), _ints(-10, 10, 3, 5), _floats(5))),
    "index_put": (lambda x, i, v: torch.index_put(x, (i,), v), (_floats(50, 16), _ints(0, 50, 9), _floats(9, 16))),
    "index_add": (lambda x, i, v: x.index_add(1, i, v, alpha=2), (_floats(6, 8, 10), _ints(0, 8, 20), _floats(6, 20, 10))),
    "embedding_gradient": (lambda g, i: aten.embedding_dense_backward(g, i, 50, 3, False), (_floats(4, 7, 16), _ints(0, 50, 4, 7))),
    "embedding_gradient_bf16": (lambda g, i: aten.embedding_dense_backward(g, i, 50, -1, False), (_ints(-9, 10, 4, 7, 16).bfloat16(), _ints(0, 50, 4, 7))),
}  # fmt: skip

SCANS: dict[str, Case] = {
    "cumsum_last": (lambda x: x.cumsum(2) * 2, (_floats(6, 8, 10),)),
    "cumsum_middle": (lambda x: x.relu().cumsum(1), (_floats(6, 8, 20),)),
    "cumsum_both": (lambda x: x.t().cumsum(0) + x.t().cumsum(1), (_floats(33, 40),)),
    "cumsum_long": (lambda x: x.cumsum(0), (_floats(10000),)),
    "cumsum_less_max": (lambda x: x.cumsum(0) - x.cumsum(0).max(), (_ints(0, 9, 1000),)),
    "cumsum_of_ones": (lambda x: torch.ones_like(x).cumsum(1) + x, (_floats(6, 8, 10),)),
    "cumsum_of_softmax": (lambda x: x.softmax(1).cumsum(1), (_floats(9, 33),)),
    "softmax_of_cumsum": (lambda x: x.cumsum(1).softmax(1), (_floats(9, 33),)),
    "cumsum_bf16": (lambda x: x.cumsum(-1), (_floats(6, 40).bfloat16(),)),
    "cumsum_bool": (lambda x: (x > 0).cumsum(1), (_floats(6, 40),)),
    "cumsum_number": (lambda x: x.cumsum(0), (torch.tensor(3.0),)),
    "cumprod": (lambda x: x.cumprod(1), (_floats(6, 8, 10),)),
}
CASES = {**GATHERS, **SCATTERS, **SCANS}


@pytest.mark.parametrize("name", CASES)
def test_against_eager(name: str) -> None:
    fn, inputs = CASES[name]
    check(fn, inputs)


@pytest.mark.parametrize("name", CASES)
def test_the_evaluator_agrees(name: str) -> None:
    fn, inputs = CASES[name]
    program = fuse(lower_graph(trace(fn, inputs), "g"), {})
    memory = {
        b.name: torch.empty(b.span.evaluate({}), dtype=b.dtype)
        for b in program.buffers.values()
        if b.name not in program.inputs
    }
    for held, tensor in zip(program.inputs, inputs):
        assert isinstance(held, str)
        memory[held] = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,))
    for step in program.steps:
        assert isinstance(step, KernelStep)
        step.kernel.verify(program.buffers)
        evaluate_kernel(step.kernel, memory)
    (out,) = program.outputs
    assert isinstance(out, TensorRef)
    got = memory[out.buffer].as_strided([n.evaluate({}) for n in out.sizes], [n.evaluate({}) for n in out.strides])
    torch.testing.assert_close(got, fn(*inputs), equal_nan=True)


OUTSIDE: list[Case] = [
    (lambda w, i: F.embedding(i, w), (_floats(5, 3), torch.tensor([0, -1]))),
    (lambda x, i: x[:, i], (_floats(6, 8, 10), torch.tensor([1, 8]))),
    (lambda x, i: x[i], (_floats(3), torch.tensor([-4]))),
    (lambda x, i: x.gather(1, i), (_floats(6, 8), torch.tensor([[0, -1]]))),
    (lambda x, i: x.index_select(0, i), (_floats(6), torch.tensor([6]))),
    (lambda x, i, s: x.scatter_add(0, i, s), (_floats(3, 4), torch.tensor([[4]]), _floats(3, 4))),
    (lambda x, i, s: torch.index_put(x, (i,), s), (_floats(3, 4), torch.tensor([4]), _floats(4))),
    (lambda x, i, s: x.index_add(0, i, s), (_floats(3, 4), torch.tensor([-1]), _floats(1, 4))),
]


@pytest.mark.parametrize("case", OUTSIDE)
def test_positions_outside_raise_as_in_eager(case: Case) -> None:
    fn, inputs = case
    with pytest.raises((IndexError, RuntimeError)) as eager:
        fn(*inputs)
    graph = compiled(fn, inputs)
    assert graph.kernels
    with pytest.raises(type(eager.value)) as ours:
        graph(*inputs)
    assert str(ours.value) == str(eager.value).splitlines()[0]


def test_masked_positions_do_not_raise() -> None:
    """An index that is out of range where nothing is read."""

    def fn(w: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return F.pad(F.embedding(n + 1, w), (0, 0, 2, 2))

    check(fn, (_floats(1, 4), torch.tensor([-1, -1])))


def test_positions_of_argmax_survive_fusion() -> None:
    check(lambda x: (x.sum(), x.argmax(), x.t().argmax()), (_floats(33, 40).t(),))


def test_a_refused_kernel_is_evaluated_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    inductor = Inductor(InductorSettings())
    backend = inductor._backend("cpu")
    monkeypatch.setattr(
        backend,
        "unsupported",
        lambda kernel, buffers: "no tanh" if any(v.op == "tanh" for v in kernel.values) else None,
    )

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tanh(x) * 2, (x + 1).sum(0)

    x = _floats(5, 7)
    events: list[dict[str, Any]] = []
    with listen(lambda kind, fields: events.append({"kind": kind, **fields})):
        graph = inductor(trace(fn, (x,)), (x,))
    assert [e["reason"] for e in events if e["kind"] == "fallback"] == ["TJ-IND-005"]
    assert len(graph.kernels) == 2
    for got, want in zip(graph(x), fn(x)):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    ("shifts", "dims"), [((3, -2), (1, 2)), (-5, -1), (17, 0), ((1, 2, 14), (1, 1, 2)), (7, ())], ids=str
)
def test_a_roll_is_an_index(shifts: Any, dims: Any) -> None:
    x = _floats(4, 14, 14, 6)

    def windows(x: torch.Tensor) -> torch.Tensor:
        return torch.roll(x * 2, shifts, dims).view(4, 2, 7, 2, 7, 6).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 6) + 1

    check(windows, [x], kernels=None if dims == () else 1, aten=None if dims == () else 0)


@pytest.mark.parametrize("shifts", [3, -2, 17, -30])
def test_a_roll_by_more_or_less_than_a_size_that_varies_is_an_index(shifts: int) -> None:
    check(lambda x: x.roll(shifts, 1) + x.roll((1, shifts), (1, 0)), [_floats(5, 7)], mode="symbolic", kernels=1)


SHUFFLES: dict[str, Case] = {
    "pixels": (lambda x: F.pixel_shuffle(x, 2) * 2, (_floats(2, 12, 3, 5),)),
    "pixels_without_a_batch": (lambda x: F.pixel_shuffle(x, 2) * 2, (_floats(12, 3, 5),)),
    "pixels_back": (lambda x: F.pixel_unshuffle(x, 3) + 1, (_floats(2, 4, 6, 9),)),
    "channels": (lambda x: torch.channel_shuffle(x, 3) + 1, (_floats(2, 6, 4, 5),)),
    "of_what_is_computed": (lambda x: F.pixel_shuffle(x.exp(), 2) + 1, (_floats(2, 12, 3, 5),)),
}


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffles_are_views(name: str, mode: str) -> None:
    fn, inputs = SHUFFLES[name]
    check(fn, inputs, mode=mode, kernels=1)


WINDOWS: dict[str, Case] = {
    "overlapping": (lambda x: (x.unfold(1, 4, 2) * torch.arange(4.0)).sum(-1), (_floats(5, 33),)),
    "of_what_is_computed": (lambda x: x.sin().unfold(1, 4, 2).amax(-1), (_floats(5, 33),)),
    "apart": (lambda x: x.exp().unfold(1, 4, 4) + 1, (_floats(5, 33),)),
    "of_the_first_dimension": (lambda x: x.t().unfold(0, 3, 1).mean((0, 1)), (_floats(5, 33),)),
    "returned": (lambda x: (x.unfold(0, 2, 1), (x + 1).unfold(1, 3, 2)), (_floats(5, 33),)),
    "of_an_expanded_one": (lambda x: (x.unfold(0, 3, 2), x.unfold(0, 3, 2) + 1), (_floats(1).expand(33),)),
    "one": (lambda x: x.unfold(1, 33, 1) + 1, (_floats(5, 33),)),
}


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_views(name: str, mode: str) -> None:
    fn, inputs = WINDOWS[name]
    check(fn, inputs, mode=mode)


def test_a_fake_that_repeats_elements_which_differ() -> None:
    """That of torch 2.11's `slice_scatter` into an expanded tensor, and of what operators make of it."""

    def scattered(x: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        return torch.cummax(torch.slice_scatter(x, part, 0, 2, 6).view(4, 2), 0).values * 2

    check(scattered, (_floats(1).expand(8), _floats(4)), aten=None)
