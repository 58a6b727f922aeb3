"""The backward engine in Python against autograd's own, and tracing for CUDA on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from aot_harness import STRICT, graph_of
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import torchjit_aot
from torchjit_aot.backward_engine import gradients


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape).requires_grad_()


def written(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    y[0].mul_(w[0])
    y.t().add_(1)
    return y.sin(), y[1]


PROGRAMS: list[Callable[[Tensor, Tensor], Any]] = [
    lambda x, w: (x * w + w, (x @ w.t()).relu()),
    lambda x, w: (F.layer_norm(x, (4,), w[0]), w.sum(0)),
    lambda x, w: ((x + x).sin() * x, x.expand(2, 3, 4) * w),
    lambda x, w: (torch.cat([x, w]).softmax(1), x.max(1).values),
    lambda x, w: (x.bfloat16() * w, x),
    lambda x, w: (x.split(2, 1)[1].exp(), x.split(2, 1)[0] * 2),  # type: ignore[no-untyped-call]
    lambda x, w: (x * 1, x[0] * w[0]),
    written,
]


@pytest.mark.parametrize("f", PROGRAMS)
def test_equals_autograd(f: Callable[[Tensor, Tensor], Any]) -> None:
    torch.manual_seed(0)
    x, w, unused = leaf(3, 4), leaf(3, 4), leaf(2)
    tangents: list[Tensor] = []
    found = []
    engines: list[Any] = [lambda o, i, t: torch.autograd.grad(o, i, t, allow_unused=True), gradients]
    for grad in engines:
        outputs = f(x, w)
        tangents = tangents or [torch.randn_like(o) for o in outputs]
        found.append(grad(outputs, [x, w, unused], tangents))
    for want, have in zip(*found, strict=True):
        assert (want is None) == (have is None)
        if want is not None:
            torch.testing.assert_close(have, want)


@pytest.mark.skipif(torch.cuda.is_available(), reason="autograd's own engine works with a GPU")
def test_cuda_graphs_are_traced_without_a_gpu() -> None:
    graphs: dict[str, list[str]] = {}

    def compiler(gm: Any, inputs: Any, *, kind: Any, static_inputs: Any = frozenset(), name: str = "graph") -> Any:
        graphs[kind] = [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]
        assert all(v.device.type == "cuda" for v in inputs)
        return lambda *args: ()

    with FakeTensorMode():
        x = torch.empty(4, 8, device="cuda")
        w = torch.empty(8, 8, device="cuda", requires_grad=True)
    settings = torchjit_aot.AotSettings(fallback=False, eager_backward=True)
    torchjit_aot.compile(graph_of(lambda x, w: F.gelu(x @ w).sum(), 2), [x, w], compiler=compiler, settings=settings)
    assert "aten.mm.default" in graphs["forward"]
    assert {"aten.gelu_backward.default", "aten.mm.default"} <= set(graphs["backward"])


def test_source_lines_reach_the_backward() -> None:
    """Backward nodes carry the line of the forward operator that they belong to."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.sin, (x,))
    second = graph.call_function(torch.exp, (first,))
    first.meta["stack_trace"], second.meta["stack_trace"] = "line 1", "line 2"
    graph.output(second)
    seen: dict[str, set[Any]] = {}

    def compiler(gm: Any, inputs: Any, *, kind: Any, static_inputs: Any = frozenset(), name: str = "graph") -> Any:
        for node in gm.graph.nodes:
            if node.op == "call_function":
                seen.setdefault(f"{kind} {node.target}", set()).add(node.meta.get("stack_trace"))
        return torchjit_aot.run_eagerly(gm, inputs, kind=kind)

    run = torchjit_aot.compile(torch.fx.GraphModule({}, graph), [leaf(3)], compiler=compiler, settings=STRICT)
    run(leaf(3)).sum().backward()
    assert seen["forward aten.sin.default"] == seen["backward aten.cos.default"] == {"line 1"}
    assert seen["forward aten.exp.default"] == {"line 2"}
    assert seen["backward aten.mul.Tensor"] == {"line 1", "line 2"}
