"""Backends without the meta-package: what options come to, which graphs other compilers are given, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import torchjit_aot
import torchjit_inductor
from torchjit_backends import later, others
from torchjit_backends.openvino import KEPT_SIZES, _OfEachSize
from torchjit_backends.options import Options
from torchjit_backends.pipeline import _inductor_settings, aot_eager_backend, cudagraphs, inductor_backend
from torchjit_core.events import listen
from torchjit_core.reasons import MissingPackage, UserError
from torchjit_inductor import InductorSettings
from torchjit_inductor.assembly.workers import Workers
from torchjit_session.backend_calls import is_ours

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def softened(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
    return (torch.softmax(x @ w, -1).sin(),)


@pytest.mark.parametrize(
    "backend",
    [
        inductor_backend(Options(), InductorSettings()),
        inductor_backend(Options(cudagraphs=True), InductorSettings()),
        inductor_backend(Options(freezing=True), InductorSettings()),
        aot_eager_backend(Options()),
        cudagraphs,
    ],
)
def test_each_backend_gives_results_and_gradients(backend: Callable[..., Any]) -> None:
    assert is_ours(backend)
    x, w = X.clone().requires_grad_(), torch.eye(4).requires_grad_()
    compiled = backend(fx.symbolic_trace(softened), [x, w])
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, w)[0], softened(x, w)[0])
    got = torch.autograd.grad(backend(fx.symbolic_trace(softened), [x, w])(x, w)[0].square().sum(), (x, w))
    torch.testing.assert_close(got, torch.autograd.grad(softened(x, w)[0].square().sum(), (x, w)))


@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_writes_kernels_for_a_gpu_is_imported_with_the_backend_where_one_is_used(
    monkeypatch: pytest.MonkeyPatch, on_gpu: bool
) -> None:
    """And what is wrong with it is no concern of the imports: it is told where a graph needs it."""
    imported: list[str] = []

    def import_module(name: str) -> None:
        imported.append(name)
        raise RuntimeError("a Triton that cannot be imported")

    monkeypatch.setattr(later, "_uses_cuda", lambda: on_gpu)
    monkeypatch.setattr("torchjit_backends.later.importlib", SimpleNamespace(import_module=import_module))
    backend = later.inductor_backend(Options(), InductorSettings())
    assert not backend.is_loaded
    backend.load()
    assert backend.is_loaded
    assert imported == (["torchjit_inductor.triton.backend"] if on_gpu else [])


def test_processes_that_compile_start_before_a_graph_for_a_gpu_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(torchjit_aot, "compile", lambda *_, **__: seen.append("traced"))
    monkeypatch.setattr(torchjit_inductor.Inductor, "expect", lambda _, gm: seen.append(gm))
    gm, backend = fx.symbolic_trace(softened), inductor_backend(Options(), InductorSettings())
    backend(gm, [X, torch.eye(4)])
    with FakeTensorMode():
        backend(gm, [3, X, torch.empty(4, 4, device="cuda")])
    assert seen == ["traced", gm, "traced"]


@pytest.mark.parametrize("only", [False, True])
def test_processes_start_for_graphs_that_become_kernels(only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.setattr(Workers, "start", lambda _, most: started.append(most))
    torchjit_inductor.Inductor(InductorSettings(fallback_only=only)).expect(fx.symbolic_trace(softened))
    assert started == ([] if only else [1])


def test_options_reach_the_inductor_beside_what_the_host_says() -> None:
    options = Options(
        autotune_seconds=300.0, coordinate_descent_tuning=True, autotune_in_subproc=False, layout_optimization=False
    )
    made = _inductor_settings(options, InductorSettings(cache_dir="kept", compiler="cc", compiler_seconds=5.0))
    assert (made.autotune_seconds, made.coordinate_descent_tuning, made.autotune_in_subproc) == (300.0, True, False)
    assert (made.cache_dir, made.compiler, made.compiler_seconds, made.race_layouts) == ("kept", "cc", 5.0, False)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        options.freezing = True  # type: ignore[misc]


def writes(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.copy_.default(x, x * 2)  # type: ignore[no-any-return]


def attends(dropout: float) -> Callable[[torch.Tensor], Any]:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    return lambda x: attention(x, x, x, dropout)[0]


@pytest.mark.parametrize(
    ("function", "shape", "why"),
    [
        (torch.sin, (3,), None),
        (writes, (3,), "writes to an input"),
        (torch.bernoulli, (3,), "aten.bernoulli.default draws random numbers"),
        (attends(0.0), (1, 1, 4, 8), None),
        (attends(0.5), (1, 1, 4, 8), "draws random numbers"),
    ],
)
def test_graphs_that_no_other_compiler_is_given(
    function: Callable[..., Any], shape: tuple[int, ...], why: str | None
) -> None:
    graph = make_fx(function, tracing_mode="fake")(torch.rand(shape)).graph
    refusal = others.refusal_of(graph)
    assert refusal is None if why is None else why in str(refusal)


def test_a_refusal_is_told() -> None:
    heard: list[dict[str, Any]] = []
    with listen(lambda kind, fields: heard.append(fields)):
        others.tell_refusal("graph", "why")
    assert heard[0]["reason"] == "TJ-API-062" and heard[0]["detail"] == "graph: why"


def test_what_is_missing_and_what_is_retired() -> None:
    missing = others.Known("no-such-package", ("no_such_package_anywhere",), "torchjit_backends.tvm")
    assert not missing.is_there() and isinstance(missing.refusal("one"), MissingPackage)
    assert "pip install no-such-package" in str(missing.refusal("one"))
    assert others.Known("a", ("math",), "torchjit_backends.tvm").load("tvm").__name__ == "tvm"
    retired = others.EXTERNAL["ipex"]
    assert not retired.is_there() and "TJ-API-006" in str(retired.refusal("ipex"))
    for module, name in (("no_such_package_anywhere", "f"), ("math", "no_such_function")):
        with pytest.raises(UserError, match=rf"TJ-API-007.*{module}\.{name}"):
            others.entry_of(module, name)
    assert others.entry_of("math", "floor")(1.5) == 1


def test_a_compiler_of_fixed_sizes_is_asked_once_for_each() -> None:
    asked: list[Any] = []

    def compile(inputs: Sequence[Any]) -> Callable[..., Any]:
        asked.append([tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in inputs])
        return lambda x, n: x.mul_(n)

    graph = _OfEachSize(fx.symbolic_trace(lambda x, n: x * n), compile)
    x = torch.ones(2)
    first = graph(x, 2)[0]
    assert torch.equal(graph(x, 2)[0], torch.full((2,), 4.0)) and torch.equal(
        first, torch.full((2,), 2.0)
    )  # no memory of its
    graph(torch.ones(3), 2), graph(torch.ones(3), 3)
    assert asked == [[(2,), 2], [(3,), 2], [(3,), 3]]
    for n in range(4, 4 + KEPT_SIZES):
        graph(torch.ones(1), n)
    graph(x, 2)
    assert asked[-1] == [(2,), 2]  # forgotten meanwhile
