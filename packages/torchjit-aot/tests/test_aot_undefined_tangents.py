"""Backwards of calls some of whose results got no gradient."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from aot_harness import STRICT, assert_same, graph_of
from torch import fx

import torchjit_aot
from torchjit_aot import AotSettings, linear, run_eagerly
from torchjit_core.events import listen

aten = torch.ops.aten


class Recording:
    """Compiles like `run_eagerly` and keeps the backward graphs."""

    def __init__(self) -> None:
        self.backwards: list[fx.Graph] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], /, *, kind: Any, **options: Any) -> Any:
        if kind == "backward":
            self.backwards.append(gm.graph)
        return run_eagerly(gm, example_inputs, kind=kind, **options)

    def targets(self, number: int) -> list[Any]:
        return [node.target for node in self.backwards[number].nodes if node.op == "call_function"]

    def tangents(self, number: int) -> list[str]:
        names = [node.name for node in self.backwards[number].nodes if node.op == "placeholder"]
        return [name for name in names if name.startswith("tangent")]


def compiled(f: Callable[..., Any], *args: Any, compiler: Any = run_eagerly, settings: AotSettings = STRICT) -> Any:
    return torchjit_aot.compile(graph_of(f, len(args)), args, compiler=compiler, settings=settings)


def leaves(*sizes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator).requires_grad_() for size in sizes]


def gradients(outputs: Sequence[torch.Tensor], used: Sequence[int], inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    loss = sum(((outputs[k] * (1.5 + k)).sum() for k in used), torch.zeros(()))
    return torch.autograd.grad(loss, inputs, allow_unused=True)


def test_what_has_no_gradient_adds_no_nan() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * 2).sum(), x.log()  # the derivative at 0 is infinite

    x = torch.tensor([0.0, 1.0], requires_grad=True)
    run = compiled(f, x)
    for g in (f, run):
        assert torch.autograd.grad(g(x)[0], x)[0].tolist() == [2.0, 2.0]
    for g in (f, run):
        a, b = g(x)
        assert torch.autograd.grad(a + b.sum(), x)[0].tolist() == [float("inf"), 3.0]


def test_nothing_is_computed_for_what_has_no_gradient() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = x @ w
        return hidden.exp().sum(), hidden, hidden.sin()

    x, w = leaves((3, 4), (4, 5))
    recording = Recording()
    run = compiled(f, x, w, compiler=recording)
    for used in ([0], [0], [0, 1, 2], [0]):
        for want, have in zip(gradients(f(x, w), used, (x, w)), gradients(run(x, w), used, (x, w)), strict=True):
            assert_same(want, have, exact=False)
    assert len(recording.backwards) == 2
    assert recording.tangents(0) == ["tangent0"]
    assert recording.tangents(1) == ["tangent0", "tangent1", "tangent2"]
    assert aten.add.Tensor not in recording.targets(0)
    assert aten.add.Tensor in recording.targets(1)


def test_every_combination() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, right = (x * w).split(2)  # type: ignore[no-untyped-call]
        return left.exp(), right - x[:2], torch.cat([w, x]).tanh(), torch.where(x > 0, w, x).cumsum(0)

    x, w = leaves((4, 3), (4, 3))
    recording = Recording()
    run = compiled(f, x, w, compiler=recording)
    for _ in range(2):
        for used in itertools.chain(*(itertools.combinations(range(4), n) for n in (1, 2, 3, 4))):
            for want, have in zip(gradients(f(x, w), used, (x, w)), gradients(run(x, w), used, (x, w)), strict=True):
                assert_same(want, have, exact=False)
    assert len(recording.backwards) <= 9  # combinations beyond eight are given zeros


def test_zeros_that_an_operator_reads() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = x.t().split(2)  # type: ignore[no-untyped-call]
        return left.sqrt(), right.sqrt()

    x = torch.zeros(3, 4, requires_grad=True)  # zeros times the derivative were NaN
    recording = Recording()
    run = compiled(f, x, compiler=recording)
    (want,), (have,) = (gradients(g(x), [1], (x,)) for g in (f, run))
    assert_same(want, have)
    assert not have.isnan().any()
    assert recording.tangents(0) == ["tangent1"]


def test_zeros_that_are_a_view() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = x.split(2)  # type: ignore[no-untyped-call]
        return left.sum().sqrt(), right * 2

    x = torch.zeros(4, 3, requires_grad=True)
    (want,), (have,) = (gradients(g(x), [1], (x,)) for g in (f, compiled(f, x)))
    assert_same(want, have)
    assert not have.isnan().any()


def test_strides_of_a_lone_gradient() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sum(), x * 2

    (x,) = leaves((3, 4))
    run = compiled(f, x)
    (want,), (have,) = (torch.autograd.grad(g(x)[0], x) for g in (f, run))
    assert want.stride() == have.stride() == (0, 0)


def test_a_backward_of_its_own_after_another() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * w).exp(), (x + w).sin()

    x, w = leaves((3, 4), (3, 4))
    found = []
    for g in (f, compiled(f, x, w)):
        x.grad = w.grad = None
        a, b = g(x, w)
        a.sum().backward(retain_graph=True)
        (a.sum() + b.sum()).backward(retain_graph=True)
        b.sum().backward()
        found.append((x.grad, w.grad))
    for want, have in zip(*found, strict=True):
        assert_same(want, have, exact=False)


def test_batched_gradients_for_some() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.exp(), x.sin() * x.sum()

    (x,) = leaves((4,))
    batch = torch.eye(4)
    found = [torch.autograd.grad(g(x)[0], x, batch, is_grads_batched=True)[0] for g in (f, compiled(f, x))]
    assert_same(*found, exact=False)


def test_a_pass_that_fails_there_costs_no_step() -> None:
    @torchjit_aot.graph_pass("fail")
    def fail(graph: fx.Graph) -> None:
        if "tangent1" not in {node.name for node in graph.nodes} and "tangent0" in {node.name for node in graph.nodes}:
            raise ValueError("no")

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.exp(), x.sin()

    (x,) = leaves((3,))
    run = compiled(f, x, settings=AotSettings(post_grad_passes=(fail,)))
    told: list[dict[str, Any]] = []
    with listen(lambda kind, fields: told.append(fields) if kind == "fallback" else None):
        (have,) = torch.autograd.grad(run(x)[0].sum(), x)
    assert_same(x.exp().detach(), have, exact=False)
    assert [fields["reason"] for fields in told] == ["TJ-AOT-012"]
    with pytest.raises(ValueError, match="no"):
        compiled(f, x, settings=AotSettings(post_grad_passes=(fail,), fallback=False))(x)[0].sum().backward()


def test_threads_share_one() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.exp(), x.sin()

    (x,) = leaves((3,))
    recording = Recording()
    run = compiled(f, x, compiler=recording)
    threads = [threading.Thread(target=lambda: run(x)[0].sum().backward()) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recording.backwards) == 1


def telling(name: str, seen: list[Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    def hook(gradient: torch.Tensor) -> torch.Tensor:
        seen.append((name, gradient.tolist()))
        return gradient * 2

    return hook


def test_hooks_of_parameters_that_get_no_gradient_are_not_called() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * w, x.exp() * v

    found = []
    for compile_it in (False, True):
        x, w, v = leaves((3,), (3,), (3,))
        run = compiled(f, x, w, v) if compile_it else f
        seen: list[Any] = []
        handles = [t.register_hook(telling(name, seen)) for name, t in (("w", w), ("v", v))]  # type: ignore[no-untyped-call]
        for used in ((0,), (1,), (0, 1)):
            outputs = run(x, w, v)
            sum(outputs[k].sum() for k in used).backward()  # type: ignore[union-attr]
        handles[0].remove()
        run(x, w, v)[0].sum().backward()
        found.append((seen, w.grad, v.grad))
    assert sorted(found[0][0]) == sorted(
        found[1][0]
    )  # which of two leaves comes first in one backward is the engine's affair
    for want, have in zip(found[0][1:], found[1][1:], strict=True):
        assert_same(want, have, exact=False)


def test_a_call_whose_results_get_nothing_calls_no_hooks() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, (x * w).sum()

    for compile_it in (False, True):
        x, w = leaves((3,), (3,))
        run = compiled(f, x, w) if compile_it else f
        seen: list[Any] = []
        w.register_hook(lambda g, seen=seen: seen.extend([g]))  # type: ignore[no-untyped-call]
        doubled, _ = run(x, w)
        doubled.sum().backward()
        assert not seen
        assert w.grad is None


Z = torch.zeros(3, 3)
C = torch.zeros(3, 3, dtype=torch.complex64)
I = torch.tensor([0, 2])
SAMPLES: dict[str, tuple[Any, ...]] = {
    "aten::_conj_physical": (C,),
    "aten::_fft_c2c": (C, [0], 0, True),
    "aten::_fft_c2r": (C, [0], 0, 3),
    "aten::_fft_r2c": (Z, [0], 0, True),
    "aten::_unsafe_view": (Z, [9]),
    "aten::add": (Z, Z),
    "aten::bmm": (Z[None], Z[None] + 2),
    "aten::cat": ([Z, Z],),
    "aten::constant_pad_nd": (Z, [1, 1], 0.0),
    "aten::cumsum": (Z, 0),
    "aten::div": (Z, Z + 2),
    "aten::dot": (Z[0], Z[0] + 2),
    "aten::flip": (Z, [0]),
    "aten::gather": (Z, 0, I[None]),
    "aten::index": (Z, [I]),
    "aten::index_add": (Z, 0, I, Z[:2]),
    "aten::index_put": (Z, [I], Z[:2], True),
    "aten::index_select": (Z, 0, I),
    "aten::masked_fill": (Z, Z > 1, 0.0),
    "aten::mm": (Z, Z + 2),
    "aten::mul": (Z, Z + 2),
    "aten::mv": (Z, Z[0] + 2),
    "aten::repeat": (Z, [2, 1]),
    "aten::reshape": (Z, [9]),
    "aten::roll": (Z, [1], [0]),
    "aten::scatter_add": (Z, 0, I[None], Z),
    "aten::select_scatter": (Z, Z[0], 0, 0),
    "aten::slice_scatter": (Z, Z),
    "aten::stack": ([Z, Z],),
    "aten::sub": (Z, Z),
    "aten::where": (Z > 1, Z, Z),
    "prims::convert_element_type": (Z, torch.float64),
}


@pytest.mark.parametrize("name", sorted({*linear._FIRST, *linear._EITHER, *linear._TOGETHER}))
def test_what_is_called_linear_gives_zeros(name: str) -> None:
    namespace, operator = name.split("::")
    result = getattr(getattr(torch.ops, namespace), operator)(*SAMPLES.get(name, (Z,)))
    assert not result.any()
    if name in linear._EITHER:
        left, right = SAMPLES[name]
        assert not getattr(torch.ops.aten, operator)(left + 2, right * 0).any()
