"""What a program says through `torch.compiler` and `torch._dynamo` counts: markers, marks on tensors, registrations."""

# mypy: allow-untyped-calls, allow-untyped-decorators, no-warn-return-any

import binascii
import inspect
import warnings
from typing import Any

import pytest
import torch
import torch._dynamo
from torch._dynamo.variables.functions import PolyfilledFunctionVariable

import torchjit


def graph_of(compiled: Any) -> torch.fx.Graph:
    (made,) = compiled.compiled.specializations
    (gm,) = made.graphs
    return gm.graph


def test_allowed_in_graph() -> None:
    def body(x: torch.Tensor, by: float) -> torch.Tensor:
        return x.sin() * by

    torch.compiler.allow_in_graph(body)
    compiled = torchjit.compile(lambda x: body(x, 2.0) + 1, backend="eager", fullgraph=True)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), x.sin() * 2 + 1)
    assert [n.target for n in graph_of(compiled).nodes if n.op == "call_function"][0] is body
    for backend in ("aot_eager", "inductor"):
        torch.testing.assert_close(torchjit.compile(lambda x: body(x, 2.0) + 1, backend=backend)(x), x.sin() * 2 + 1)


@pytest.mark.skipif(not hasattr(torch.compiler, "nonstrict_trace"), reason="this torch has no such name")
def test_nonstrictly_traced() -> None:
    @torch.compiler.nonstrict_trace
    def body(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x.sin()

    compiled = torchjit.compile(lambda x: body(x) + 1, backend="aot_eager", fullgraph=True)
    x = torch.randn(3, requires_grad=True)
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_constant_results() -> None:
    calls = []

    @torch.compiler.assume_constant_result
    def width() -> int:
        calls.append(1)
        return 3

    compiled = torchjit.compile(lambda x: x * width(), backend="eager", fullgraph=True)
    for _ in range(3):
        assert compiled(torch.ones(1)).item() == 3
    assert len(calls) == 1


def test_substituted_functions() -> None:
    @torch.compiler.substitute_in_graph(binascii.crc32)
    def crc32(data: bytes, crc: int = 0, /) -> int:
        return len(data) + crc

    try:
        compiled = torchjit.compile(lambda x, t: x * binascii.crc32(t, 3), backend="eager", fullgraph=True)
        assert compiled(torch.ones(1), b"abc").item() == 6
        assert torchjit.compile(lambda x: x * crc32(b"ab"), backend="eager", fullgraph=True)(torch.ones(1)).item() == 2
    finally:  # upstream's table lives as long as the process, and has both of them
        handlers = PolyfilledFunctionVariable._get_polyfill_handlers()
        del handlers[binascii.crc32], handlers[crc32]


@pytest.mark.parametrize("upstreams", [True, False], ids=["torch._dynamo", "torchjit"])
def test_breaks_that_are_asked_for(upstreams: bool) -> None:
    ask = torch._dynamo.graph_break if upstreams else torchjit.graph_break

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        ask("the tables are filled here")
        return y.cos()

    told = torchjit.explain(f)(torch.ones(2))
    assert [b.reason_id for b in told.breaks] == ["TJ-API-011"] and told.graph_count == 2
    assert "the tables are filled here" in told.breaks[0].detail


@pytest.mark.parametrize(
    "ask",
    [
        torch._dynamo.is_compiling,
        torch.compiler.is_compiling,
        torch.compiler.is_dynamo_compiling,
        torch._utils.is_compiling,
    ],
)
def test_is_compiling_by_every_name(ask: Any) -> None:
    f = lambda x: x + (1 if ask() else 0)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of the names are deprecated
        assert f(torch.zeros(1)).item() == 0
    assert torchjit.compile(f, backend="eager", fullgraph=True)(torch.zeros(1)).item() == 1


class TestNestedRegions:
    def test_functions(self) -> None:
        @torch.compiler.nested_compile_region
        def g(x: torch.Tensor, by: float = 1.0) -> torch.Tensor:
            return x.sin() + by

        f = lambda x: g(g(x), by=2.0)  # noqa: E731
        x = torch.randn(3, requires_grad=True)
        want = torch.autograd.grad(f(x).sum(), x)
        got = torch.autograd.grad(torchjit.compile(f, backend="inductor", fullgraph=True)(x).sum(), x)
        torch.testing.assert_close(got, want)

    @pytest.mark.skipif(
        "max_reuse_entries" not in inspect.signature(torch.compiler.nested_compile_region).parameters,
        reason="this torch has no such argument",
    )
    def test_with_arguments_on_methods_that_write(self) -> None:
        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.calls = 0

            @torch.compiler.nested_compile_region(max_reuse_entries=2)
            def layer(self, x: torch.Tensor) -> torch.Tensor:
                self.calls += 1
                return x * self.calls

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.layer(self.layer(x))

        net, plain = Net(), Net()
        compiled = torchjit.compile(net, backend="eager", fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(torch.ones(2)), plain(torch.ones(2)))
        assert net.calls == plain.calls == 4


class TestMarksOnTensors:
    def sizes(self, mark: Any, *shapes: int, **options: Any) -> int:
        compiled: Any = torchjit.compile(lambda x: x.sin() * x.shape[0], backend="eager", **options)
        for n in shapes:
            x = torch.randn(n, 3)
            mark(x)
            torch.testing.assert_close(compiled(x), x.sin() * n)
        return len(compiled.compiled.specializations)

    def test_dynamic(self) -> None:
        assert self.sizes(lambda x: None, 4, 5) == 2
        assert self.sizes(lambda x: torch._dynamo.mark_dynamic(x, 0), 4, 5, 6) == 1
        assert self.sizes(lambda x: torch._dynamo.maybe_mark_dynamic(x, 0), 4, 5) == 1
        assert self.sizes(lambda x: torch._dynamo.mark_dynamic(x, 0, min=2, max=9), 4, 5) == 1

    def test_unbacked(self) -> None:
        assert self.sizes(lambda x: torch._dynamo.decorators.mark_unbacked(x, 0), 1, 4, 5) == 1

    def test_static(self) -> None:
        assert self.sizes(lambda x: torch._dynamo.mark_static(x, 0), 4, 5, 6) == 3
        assert self.sizes(lambda x: torch._dynamo.mark_static(x), 4, 5, 6, dynamic=True) == 3

    def test_a_mark_that_cannot_hold(self) -> None:
        compiled = torchjit.compile(lambda x: x + 1 if x.shape[0] == 4 else x, backend="eager")
        x = torch.randn(4)
        torch._dynamo.mark_dynamic(x, 0)
        with pytest.raises(torchjit.exc.UserError):
            compiled(x)
        torch._dynamo.maybe_mark_dynamic(y := torch.randn(4), 0)
        torch.testing.assert_close(compiled(y), y + 1)
