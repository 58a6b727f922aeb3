"""Graphs compiled to be recorded: what the compiler is asked for, and when a batch is filled up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchjit_core.events import listen
from torchjit_cudagraphs import Chain, RecordingCompiler
from torchjit_cudagraphs.graph_compiler import _internal, _is_symbolic, _stay
from torchjit_torch.node_meta import RESULTS


class Plain:
    """What no recording can be made of, so that it is itself what comes back."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self.gm, self.device, self.reason_not_recordable = gm, torch.device("cuda"), "it is a test's"
        self.static_inputs = self.mutated_inputs = frozenset[int]()

    def __call__(self, *inputs: Any) -> Any:
        return self.gm(*inputs)


def graph_of(function: Callable[..., Any], *shapes: tuple[int, ...], device: str = "cuda") -> torch.fx.GraphModule:
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
        return make_fx(function)(*(torch.empty(shape, device=device) for shape in shapes))


def compiled(gm: torch.fx.GraphModule, **more: Any) -> tuple[Any, list[dict[str, Any]], list[str]]:
    """The result, the calls of the compiler, and what was told."""
    calls: list[dict[str, Any]] = []

    def compile(gm: torch.fx.GraphModule, inputs: Any, **keywords: Any) -> Any:
        calls.append(keywords)
        return Plain(gm)

    told: list[str] = []
    sizes = more.pop("capture_sizes", ())
    inputs = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    with listen(lambda kind, fields: told.append(fields.get("detail", ""))):
        made = RecordingCompiler(compile, sizes)(gm, inputs, **{"kind": "inference", "name": "g", **more})
    return made, calls, told


def test_a_graph_of_one_device_is_compiled_whole() -> None:
    made, calls, told = compiled(graph_of(lambda x, w: (x @ w,), (2, 3), (3, 4)), static_inputs=frozenset({1}))
    assert isinstance(made, Plain) and any("it is a test's" in text for text in told)
    assert calls == [{"kind": "inference", "static_inputs": frozenset({1}), "name": "g"}]


def test_a_graph_of_two_devices_is_compiled_in_pieces_which_know_their_static_inputs() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        a = (x @ w).sin().cos()
        return ((a + a.cpu().sum().to("cuda")).exp().tanh().sin() @ w,)

    gm = graph_of(f, (4, 4), (4, 4))
    made, calls, told = compiled(gm, static_inputs=frozenset({1}), capture_sizes=(8,))
    assert isinstance(made, Chain) and len(calls) > 1
    assert [call["name"] for call in calls] == [f"g_piece{n}" for n in range(len(calls))]
    assert calls[0]["static_inputs"] == frozenset({1}) or calls[0]["static_inputs"] == frozenset({0})
    assert any("captured in pieces" in text for text in told)


def test_why_a_batch_is_not_filled_up() -> None:
    rows = graph_of(lambda x: (x.sin(),), (2, 3))
    for kind in ("forward", "backward"):
        *_, told = compiled(rows, kind=kind, capture_sizes=(4,))
        assert f"g: it is a {kind} graph" in told
    assert all("graph" not in text.partition("g: ")[2] for text in compiled(rows)[2])


def test_outputs_that_users_do_not_get_to_see() -> None:
    gm = graph_of(lambda x: (x.sin(), x.cos(), x.exp()), (2,))
    assert _internal(gm, "inference") == frozenset() and _internal(gm, "backward") == frozenset({0, 1, 2})
    RESULTS.put(gm, 1)
    assert _internal(gm, "forward") == frozenset({1, 2})


def test_memory_that_stays_where_it_is_and_sizes_that_vary() -> None:
    gm = graph_of(lambda x, y: (x + y,), (2,), (2,))
    x, y = gm.graph.find_nodes(op="placeholder")
    y.meta["address_stays"] = True
    assert _stay(gm) == frozenset({1}) and not _is_symbolic([x.meta["val"], y.meta["val"]])
    symbolic = make_fx(lambda x: x + 1, tracing_mode="symbolic")(torch.ones(5, 2))
    varies = symbolic.graph.find_nodes(op="placeholder")[0].meta["val"]
    y.meta["val"] = varies
    assert _stay(gm) == frozenset() and _is_symbolic([varies]) and _is_symbolic([3])
