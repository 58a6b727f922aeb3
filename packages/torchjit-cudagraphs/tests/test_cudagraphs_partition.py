"""Graphs in pieces: which calls stay outside, in which order the pieces run, and that they compute the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch
import torch.fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchjit_core.events import listen
from torchjit_cudagraphs import Chain, CudaGraphSettings, GraphPool, Split, record, split, tell_split
from torchjit_cudagraphs.simulated import SimulatedDriver

aten = torch.ops.aten


def on_cuda(function: Callable[..., Any], *inputs: torch.Tensor) -> torch.fx.GraphModule:
    """The function's graph with every input on the CUDA device, unless it is marked by dtype float64."""
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
        fakes = [torch.empty_like(x, device="cpu" if x.dtype == torch.float64 else "cuda") for x in inputs]
        return make_fx(function)(*fakes)


def names(part: Split) -> list[tuple[bool, list[str]]]:
    return [
        (p.captured, [n.target._opname for n in p.gm.graph.nodes if isinstance(n.target, torch._ops.OpOverload)])
        for p in part.pieces
    ]


def cut(function: Callable[..., Any], *inputs: torch.Tensor, smallest: int = 1) -> Split:
    found = split(on_cuda(function, *inputs), smallest=smallest)
    assert found is not None
    return found


X, Y = torch.ones(4, 4), torch.ones(4, 4)
HOST = torch.ones(4, dtype=torch.float64)


def test_a_graph_of_one_device_is_left_whole() -> None:
    assert split(on_cuda(lambda x: (x.sin() @ x).relu(), X)) is None


@pytest.mark.parametrize("read", ["rows", "pairs", "one dimension of two", "permutation"])
def test_an_index_by_positions_is_left_whole(read: str) -> None:
    """The operator says that its size depends on data, for the sake of masks."""
    at = torch.zeros(3, dtype=torch.int64)

    def f(x: torch.Tensor, at: torch.Tensor) -> Any:
        y = x.sin()
        pick = {"rows": (at,), "pairs": (at, at[:, None]), "one dimension of two": (slice(None), at)}
        return (y[y[:, 0].sort()[1]] if read == "permutation" else y[pick[read]]).exp()

    assert split(on_cuda(f, X, at)) is None


@pytest.mark.parametrize("beside", [False, True])
def test_an_index_by_a_mask_is_outside(beside: bool) -> None:
    def f(x: torch.Tensor, at: torch.Tensor) -> Any:
        mask = x[:, 0] > 0
        return x.exp().relu()[(mask, at) if beside else (mask,)]

    part = cut(f, X, torch.zeros(1, dtype=torch.int64))
    assert next(iter(part.outside)).target is aten.index.Tensor


def test_a_copy_from_the_host_runs_before_everything_that_can_be_captured() -> None:
    def f(x: torch.Tensor, h: torch.Tensor) -> Any:
        a = x.sin().cos().exp()
        moved = h.to(x.device, torch.float32)
        return (a + moved).relu()

    assert names(cut(f, X, HOST)) == [(False, ["_to_copy"]), (True, ["sin", "cos", "exp", "add", "relu"])]


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.device_count() < 2, reason="fakes of a device want it where CUDA is there"
)
def test_each_device_has_pieces_of_its_own() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        a = x.sin().cos()
        b = y.exp().tanh()  # needs nothing of the first device
        c = (a.to("cuda:1") + b).relu().sigmoid()
        return c.to("cuda:0") * a, c

    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
        traced = make_fx(f)(torch.empty(4, 4, device="cuda:0"), torch.empty(4, 4, device="cuda:1"))
    part = split(traced, smallest=1)
    assert part is not None
    assert names(part) == [
        (True, ["sin", "cos"]),
        (True, ["exp", "tanh"]),
        (False, ["_to_copy"]),
        (True, ["add", "relu", "sigmoid"]),
        (False, ["_to_copy"]),
        (True, ["mul"]),
    ]
    for piece in part.pieces:
        devices = {t.device for n in piece.outputs for t in [n.meta["val"]]}
        assert len(devices) == 1


def test_a_number_that_the_host_reads_cuts_the_graph_in_two() -> None:
    def f(x: torch.Tensor) -> Any:
        rows = x.sin().gt(0).sum(1).nonzero()
        return rows.shape[0], x.cos().exp()

    part = cut(f, X)
    assert [captured for captured, _ in names(part)] == [True, False]
    assert names(part)[1][1] == ["nonzero", "sym_size"]
    assert set(part.outside.values()) == {"its result's size depends on data"}

    def g(x: torch.Tensor) -> Any:
        y = x.sin().cos()
        return (y * y.sum().cpu().to(x.device)).exp().tanh()

    part = cut(g, X)
    assert names(part) == [
        (True, ["sin", "cos", "sum"]),
        (False, ["_to_copy", "_to_copy"]),
        (True, ["mul", "exp", "tanh"]),
    ]
    assert all("cpu and cuda" in why for why in part.outside.values())


def test_what_only_a_later_piece_takes_is_computed_there() -> None:
    w, wide = torch.ones(4, 4), torch.ones(4, 64)

    def f(x: torch.Tensor, w: torch.Tensor, wide: torch.Tensor) -> Any:
        y = x.sin().cos()
        keys = y @ w.t()  # as large as what it is computed from, which lives on
        small = (x @ wide).exp().sum(1)  # much smaller than `exp`
        moved = y.sum().cpu().to(x.device)
        return (keys * moved).tanh() + small + y

    part = cut(f, X, w, wide)
    assert names(part) == [
        (True, ["sin", "cos", "mm", "exp", "sum", "sum"]),
        (False, ["_to_copy", "_to_copy"]),
        (True, ["t", "mm", "mul", "tanh", "add", "add"]),
    ]
    # The parameter itself, whose address stays, and not a view of it.
    assert part.inputs[1] in part.pieces[2].inputs and part.inputs[1] not in part.pieces[0].inputs
    assert [str(n.target) for n in part.pieces[0].outputs] == [
        "aten.cos.default",
        "aten.sum.dim_IntList",
        "aten.sum.default",
    ]


def test_a_view_of_an_input_is_made_by_every_piece_that_reads_it() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        v = w.t()[1:]
        y = (x @ v.t()).sin()
        return v, (y * y.sum().cpu().to(x.device)) @ v

    part = cut(f, X, Y)
    assert [[n.name for n in p.inputs] for p in part.pieces][2][0] == part.inputs[1].name
    assert sum(n.target is aten.t.default for p in part.pieces for n in p.gm.graph.nodes) >= 2
    assert part.outputs[0] in part.pieces[0].outputs and part.outputs[0] not in part.pieces[2].outputs


def test_small_pieces_are_not_captured() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x.sin().cos().exp()
        return (y + x.sum().cpu().to(x.device)).tanh()

    found = split(on_cuda(f, X), smallest=3)
    assert found is not None and [p.captured for p in found.pieces] == [True, False]
    assert split(on_cuda(f, X), smallest=9) is None


def test_random_numbers_keep_their_order() -> None:
    def f(x: torch.Tensor) -> Any:
        a = torch.rand_like(x) + x.sum().cpu().to(x.device)
        b = a * torch.rand_like(a) + torch.rand(4, dtype=torch.float64).to(x.device)
        return b, torch.rand_like(x)

    drawn = [n for _, ops in names(cut(f, X)) for n in ops if n in ("rand", "rand_like")]
    assert drawn == ["rand_like", "rand_like", "rand", "rand_like"]


def test_an_input_is_written_after_everybody_has_read_it() -> None:
    def f(x: torch.Tensor) -> Any:
        new = x.sin()
        late = x.t() + new.sum().cpu().to(x.device)  # a view, which is read once the host has answered
        aten.copy_(x, new)
        return late

    assert names(cut(f, X)) == [
        (True, ["sin", "sum"]),
        (False, ["_to_copy", "_to_copy"]),
        (True, ["t", "add", "copy_"]),
    ]


def test_updates_that_need_one_anothers_old_values_keep_the_graph_whole() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x.sum().cpu()
        aten.copy_(x, y)
        aten.copy_(y, x)
        return z

    gm = on_cuda(f, X, X)
    copies = [n for n in gm.graph.nodes if n.target is aten.copy_.default]
    copies[1].args = (copies[1].args[0], next(n for n in gm.graph.nodes if n.op == "placeholder"))
    assert split(gm, smallest=1) is None


def test_the_event_names_operations_with_their_lines_and_reasons() -> None:
    part = cut(lambda x, h: (x + h.to(x.device)).sin(), X, HOST)
    node = next(iter(part.outside))
    node.meta["stack_trace"] = '  File "model.py", line 7, in forward\n    x + h.to(x.device)\n'
    heard: list[dict[str, Any]] = []
    with listen(lambda kind, fields: heard.append(fields) if kind == "fallback" else None):
        tell_split(part, "graph")
    assert heard[0]["reason"] == "TJ-CG-012"
    for text in ("1 of 2 pieces", 'File "model.py", line 7, in forward', "x + h.to(x.device)", "cpu and cuda"):
        assert text in heard[0]["detail"]


# ---------------------------------------------------------------- in pieces on the simulated device
@attrs.define(eq=False)
class Compiled:
    gm: torch.fx.GraphModule
    static_inputs: frozenset[int] = frozenset()
    mutated_inputs: frozenset[int] = frozenset()
    device: torch.device | None = torch.device("cpu")
    reason_not_recordable: str | None = None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        result: Sequence[Any] = self.gm(*inputs)
        return result


def chain(gm: torch.fx.GraphModule, pool: GraphPool, settings: CudaGraphSettings) -> Chain | None:
    """The graph in pieces around every `cumsum`, the others recorded."""
    part = split(gm, lambda n: "a cumsum" if n.target is aten.cumsum.default else None, smallest=1)
    if part is None:
        return None
    made: list[Any] = []
    for piece in part.pieces:
        compiled = Compiled(piece.gm)
        values = [n.meta["val"] for n in piece.inputs]
        inside = frozenset(k for k, n in enumerate(piece.outputs) if n not in part.outputs)
        made.append(record(compiled, values, settings, internal=inside, pool=pool) if piece.captured else compiled)
    return Chain(part, made)


def random_graph(seed: int) -> Callable[..., Any]:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        chosen = random.Random(seed)
        values = [x, y]
        for _ in range(14):
            a, b = chosen.choice(values), chosen.choice(values)
            made: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
                torch.add,
                lambda a, b: (a @ b).tanh(),
                lambda a, b: a.cumsum(0) / 4,
                lambda a, b: a.t(),
                lambda a, b: a.sin(),
                lambda a, b: torch.split(a, 2)[0].repeat(2, 1),
            ]
            values.append(chosen.choice(made)(a, b))
        return tuple(chosen.sample(values[2:], 3))

    return f


@pytest.mark.parametrize("seed", range(12))
def test_pieces_compute_what_the_whole_graph_does(seed: int) -> None:
    f = random_graph(seed)
    generator = torch.Generator().manual_seed(seed)
    with FakeTensorMode() as mode:
        gm = make_fx(f)(mode.from_tensor(X), mode.from_tensor(Y))
    driver = SimulatedDriver()
    run = chain(gm, GraphPool(driver), CudaGraphSettings(warmup_calls=1, measure=False, copy_up_to=0))
    if run is None:
        assert not any(n.target is aten.cumsum.default for n in gm.graph.nodes)
        return
    held = []
    for call in range(6):
        inputs = [torch.randn(4, 4, generator=generator) for _ in range(2)]
        results, want = run.boxed(list(inputs)), f(*inputs)
        for got, expected in zip(results, want, strict=True):
            torch.testing.assert_close(got, expected)
        if call % 2:
            held.append((results, want))
    for results, want in held:
        for got, expected in zip(results, want, strict=True):
            torch.testing.assert_close(got, expected)
    assert driver.replays


def test_values_are_dropped_after_their_last_use() -> None:
    def f(x: torch.Tensor) -> Any:
        return (x + 1).cumsum(0).sin().cumsum(0).cos()

    with FakeTensorMode() as mode:
        gm = make_fx(f)(mode.from_tensor(X))
    pool = GraphPool(SimulatedDriver())
    run = chain(gm, pool, CudaGraphSettings(warmup_calls=1, measure=False, copy_up_to=0))
    assert run is not None
    for _ in range(4):
        result = run(X)
    assert len(pool.blocks_in_use()) <= 1  # the result
    del result
    assert pool.idle()
