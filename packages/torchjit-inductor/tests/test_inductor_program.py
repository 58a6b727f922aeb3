"""Whole graphs: symbolic sizes, mutation, fusion, memory, fallbacks, the cache, events."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import cache_dir, check, compiled, flat, sample, trace
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_core import events
from torchjit_core.failures import FailurePolicy, using_policy
from torchjit_inductor import Inductor, InductorSettings
from torchjit_inductor.benchmark_choice import AutotuneCache, best_times
from torchjit_inductor.cpp.backend import CBackend
from torchjit_inductor.cpp.build import trim
from torchjit_inductor.host import write_host_program
from torchjit_inductor.layouts import preferred_layouts
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.lowering.registry import LOWERINGS
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import ExternStep, KernelStep, Program

aten = torch.ops.aten


# ---------------------------------------------------------------------- symbolic sizes
SYMBOLIC: dict[str, Any] = {
    "pointwise": lambda x: [x.exp() + 1, x * x.shape[0]],
    "norm": lambda x: [F.layer_norm(x, (16,)).softmax(0), x.mean(0), x.var(1)],
    "views": lambda x: [x.view(-1) * 2, x.t().contiguous(), x.reshape(2, -1, 16) + 1, torch.cat([x, x.exp()], 0), x[1:] + 1],
    "merge": lambda x: [(x.unsqueeze(1).expand(-1, 3, -1).reshape(-1, 16) + 1).view(-1, 3, 16).sum(1)],
    "mm": lambda x: [torch.relu(x @ x.t()) + 1],
    "range": lambda x: [x + torch.arange(x.shape[0]).unsqueeze(1), torch.ones(x.shape[0], 3), x.new_full((x.shape[0],), 2.0)],
}  # fmt: skip


@pytest.mark.parametrize("name", SYMBOLIC)
def test_one_compilation_serves_all_sizes(name: str) -> None:
    fn: Any = SYMBOLIC[name]
    graph = compiled(fn, (sample(10, 16),), "symbolic")
    assert graph.source, graph.reason_not_recordable
    for rows in (10, 4, 34, 2000):
        x = sample(rows, 16)
        for got, want in zip(flat(graph(x)), flat(fn(x))):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_a_symbolic_size_that_is_one_in_this_call_is_broadcast() -> None:
    """The second half of three rows is one row; which of the two sizes is 1 only the call tells."""

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        half = torch.split(x, (x.shape[0] + 1) // 2)[1]
        return [x / (half * half + 1), half.expand(x.shape[0], -1) + 1]

    x = sample(3, 16)
    graph = compiled(fn, (x,), "symbolic")
    for got, want in zip(flat(graph(x)), fn(x), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (1, 2), (0, 1), (3, 1), (1, 8)])
def test_a_scatter_into_elements_that_share_memory_is_eagers(strides: tuple[int, int]) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        view = x.as_strided((8, 3), strides)
        return [torch.slice_scatter(view, view[:4] * 2, 0, 2, 6), torch.select_scatter(view, view[:, 0] + 1, 1, 1)]

    x = sample(40)
    for got, want in zip(flat(compiled(fn, (x,))(x)), fn(x), strict=True):
        torch.testing.assert_close(got, want)


AS_STRIDED: dict[str, Any] = {
    "select": lambda x: (x * 2)[3].as_strided((3, 2), (1, 1), 1),
    "slice without an offset": lambda x: (x * 2)[2:].as_strided((3, 2), (8, 1)),
    "transposed": lambda x: (x.t() * 2).as_strided((3, 2), (8, 1), 5),
    "chunk": lambda x: torch.chunk(x.exp(), 2)[1].as_strided((4,), (1,), 0),
    "reshaped": lambda x: x.exp().view(4, 12)[1].as_strided((4,), (2,), 9),
    "twice": lambda x: (x + 1)[1].as_strided((4, 2), (3, 1), 7)[2].as_strided((5,), (1,), 2),
    "of a product": lambda x: (x @ x.t())[1].as_strided((4,), (1,), 0),
    "of an input's view": lambda x: x[2].as_strided((4,), (1,), 3),
}


@pytest.mark.parametrize("name", AS_STRIDED)
def test_offsets_of_as_strided_count_from_the_storage(name: str) -> None:
    x = sample(6, 8)
    (got,) = flat(compiled(AS_STRIDED[name], (x,))(x))
    torch.testing.assert_close(got, AS_STRIDED[name](x))


def test_integer_inputs_are_sizes() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + n

    gm = make_fx(fn, tracing_mode="symbolic")(sample(5), 7)
    graph = Inductor(InductorSettings(cache_dir=cache_dir()))(gm, (sample(5), 7))
    for n in (7, 11):
        got = flat(graph(sample(6), n))[0]
        torch.testing.assert_close(got, sample(6) + n)


# ---------------------------------------------------------------------- mutation
def mutating(fn: Any, inputs: tuple[Any, ...]) -> Any:
    """Compile a graph with trailing copy_ into its inputs."""
    gm = make_fx(fn, tracing_mode="fake")(*inputs)
    return Inductor(InductorSettings(cache_dir=cache_dir()))(gm, inputs)


def test_inputs_are_updated_after_everything_that_reads_them() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = x + y, x * 2
        total = x.sum()
        x.copy_(b)
        y.copy_(a)
        return a * total

    x, y = sample(40), sample(40, seed=1)
    graph = mutating(fn, (x, y))
    assert graph.mutated_inputs == {0, 1}
    x1, y1, x2, y2 = x.clone(), y.clone(), x.clone(), y.clone()
    torch.testing.assert_close(graph(x1, y1)[0], fn(x2, y2))
    torch.testing.assert_close((x1, y1), (x2, y2))


def test_swap_and_shift() -> None:
    def swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = aten.alias(x) + 0, y * 1
        x.copy_(b)
        y.copy_(a)
        return x.new_zeros(())

    def shift(x: torch.Tensor) -> torch.Tensor:
        rolled = torch.cat([x[1:], x[:1]])
        x.copy_(rolled)
        return rolled + 1

    x, y = sample(50), sample(50, seed=2)
    x1, y1 = x.clone(), y.clone()
    mutating(swap, (x, y))(x1, y1)
    torch.testing.assert_close((x1, y1), (y, x))
    x2, x3 = x.clone(), x.clone()
    torch.testing.assert_close(mutating(shift, (x,))(x2)[0], shift(x3))
    torch.testing.assert_close(x2, x3)


# ---------------------------------------------------------------------- fusion
def test_a_norm_and_its_surroundings_are_one_kernel() -> None:
    def fn(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        h = x + r
        return [h, F.gelu(F.layer_norm(h, (64,), w, b)) * 2]

    check(fn, (sample(6, 9, 64), sample(6, 9, 64, seed=1), sample(64), sample(64, seed=2)), kernels=1)


def test_training_batch_norm_relu_add_is_one_kernel() -> None:
    def fn(
        x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor, r: torch.Tensor
    ) -> list[torch.Tensor]:
        y, *_, new_mean, new_var = aten._native_batch_norm_legit_functional(x, w, b, m, v, True, 0.1, 1e-5)
        return [F.relu(y + r), new_mean, new_var]

    c = 32
    check(
        fn,
        (
            sample(4, c, 6, 6),
            sample(c),
            sample(c, seed=1),
            sample(c, seed=2),
            sample(c, low=0.5, high=2),
            sample(4, c, 6, 6, seed=3),
        ),
        kernels=1,
    )


def test_shapes_that_differ_by_views_fuse() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.exp()
        return [y, y.view(12, 10) * 2, y.view(-1) + 1]

    check(fn, (sample(3, 4, 10),), kernels=1)


def test_transposed_consumers_fuse_without_harm() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.exp()
        return [y, y + y.t(), (y.t() * 2).sum(0), y.sum(1)]

    check(fn, (sample(24, 24),))


def test_fusion_can_be_switched_off() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.exp()
        return [y, y * 2 + y.sum()]

    assert len(compiled(fn, (sample(9),), fusion=False).kernels) >= len(compiled(fn, (sample(9),)).kernels)
    check(fn, (sample(9),), fusion=False)


def test_compilation_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    # A race decides about it, each time anew without a store.
    monkeypatch.setattr("torchjit_inductor.matmul._linear", lambda: None)

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = F.layer_norm(x, (32,))
        return [F.gelu(y) + x, y.sum(0), y.t() @ x]

    first, second = compiled(fn, (sample(8, 32),)), compiled(fn, (sample(8, 32),))
    assert first.source == second.source
    assert [k.source for k in first.kernels] == [k.source for k in second.kernels]


# ---------------------------------------------------------------------- memory
def test_memory_of_dead_buffers_is_reused_but_outputs_are_fresh() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = x
        for _ in range(4):
            y = F.relu(y @ x) * 0.1
        return [y, y + 1]

    x = sample(16, 16)
    graph = check(fn, (x,), aten=4)
    assert "reuse" in graph.source
    first, second = graph(x), graph(x)
    assert len({t.data_ptr() for t in (*first, *second)}) == 4
    torch.testing.assert_close(first, second)


def test_in_place_reuse_never_reads_overwritten_elements() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        a = x @ x
        b = a + a.t()
        c = b @ x
        d = c.softmax(1) + c.flip(0)
        e = d @ x
        return [e - e.mean(1, keepdim=True), d[:, 1:] + 1]

    check(fn, (sample(33, 33),), aten=3, tol={"rtol": 1e-4, "atol": 1e-4})


BESIDE: dict[str, tuple[Callable[[torch.Tensor], list[torch.Tensor]], bool]] = {
    "a sum of what is stored": (lambda y: [g := F.gelu(y), (g * g).sum(-1)], True),
    "of columns": (lambda y: [g := F.gelu(y), (g * g).sum(0), y.amax(0)], True),
    "of everything": (lambda y: [y.exp(), y.sum()], True),
    "after a sum": (lambda y: [y - y.sum(-1, keepdim=True), y.amax(-1)], True),
    "read again by the next run": (lambda y: [y.exp(), (y - y.amax(-1, keepdim=True)).abs().sum(-1)], False),
    "read again by a variance": (lambda y: [y.exp(), y.var(-1)], False),
    "stored behind the last run": (lambda y: [y.exp(), (y.sum(-1, keepdim=True) * y).sum(-1)], False),
}
"""What becomes of a product that nothing else reads, and whether the first result takes its memory."""


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("name", BESIDE)
def test_results_take_the_memory_of_what_only_their_run_reads(name: str, width: int) -> None:
    function, taken = BESIDE[name]
    for shape in ((40, 700), (3000, 40)):
        x, w = sample(shape[0], 8), sample(8, shape[1])
        graph = check(
            lambda x, w: function(x @ w), (x, w), aten=1, vector_bytes=width, tol={"rtol": 1e-4, "atol": 2e-3}
        )
        assert ("# reuse" in graph.source) is taken, graph.source


# ---------------------------------------------------------------------- graphs that cannot be compiled
def test_data_dependent_graphs_are_interpreted() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero() + 1

    inputs = (sample(5),)
    gm = make_fx(fn, tracing_mode="symbolic")(*inputs)
    seen: list[dict[str, Any]] = []
    with events.listen(lambda kind, fields: seen.append(fields) if kind == "fallback" else None):
        graph = Inductor(InductorSettings(cache_dir=cache_dir()))(gm, inputs)
    torch.testing.assert_close(flat(graph(*inputs))[0], fn(*inputs))
    assert graph.source or seen[0]["reason"] == "TJ-IND-002"


def test_a_device_without_a_code_generator_is_told() -> None:
    inputs = (torch.empty(5, device="meta"),)
    gm = trace(lambda x: x.exp() + 1, inputs)
    seen: list[dict[str, Any]] = []
    with events.listen(lambda kind, fields: seen.append(fields) if kind == "fallback" else None):
        graph = Inductor(InductorSettings(cache_dir=cache_dir()))(gm, inputs)
    assert graph(*inputs)[0].device.type == "meta"
    assert [(f["reason"], f["detail"]) for f in seen] == [("TJ-IND-004", "no code generator for meta")]


def test_no_compiler_warns_once_and_gives_eager_results() -> None:
    inductor = Inductor(InductorSettings(cache_dir=cache_dir(), compiler="no-such-compiler"))
    inputs = (sample(7),)
    gm = trace(lambda x: x.exp() + 1, inputs)
    with pytest.warns(UserWarning, match="TJ-IND-003.*no-such-compiler"):
        graph = inductor(gm, inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inductor(gm, inputs)
    torch.testing.assert_close(graph(*inputs)[0], inputs[0].exp() + 1)


# ---------------------------------------------------------------------- cache and events
def test_the_cache_is_private_and_changed_files_are_rebuilt(tmp_path: Path) -> None:
    def run() -> None:
        graph = compiled(lambda x: x.exp() * 3, (sample(9),), cache_dir=str(tmp_path))
        torch.testing.assert_close(graph(sample(9))[0], sample(9).exp() * 3)

    run()
    folder = tmp_path / "c"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    libraries = list(folder.glob("*.so"))
    assert len(libraries) == 1
    # Another file takes its name, as an attacker or a crash might leave it; the mapped original stays valid.
    libraries[0].unlink()
    libraries[0].write_bytes(b"not a library")
    run()
    assert libraries[0].stat().st_size > 1000
    assert not [n for n in os.listdir(folder) if n.startswith("tmp")]


def test_events_name_kernels_and_their_origins() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    with events.listen(lambda kind, fields: seen.append((kind, fields))):
        compiled(lambda x: F.gelu(x) + x.sum(), (sample(40, 40),))
    kernels = [f for kind, f in seen if kind == "kernel"]
    assert {k["language"] for k in kernels} == {"c"}
    assert any("gelu" in o for k in kernels for o in k["origins"])
    assert [f["name"] for kind, f in seen if kind == "host_program"] == ["graph"]
    assert "inductor lowering" in [f["name"] for kind, f in seen if kind == "phase"]


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_narrower_vectors_give_the_same_results(vector_bytes: int) -> None:
    if vector_bytes > {"AVX512": 64, "AVX2": 32}.get(torch.backends.cpu.get_cpu_capability(), 16):
        pytest.skip("this machine has no such vectors")

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [F.gelu(x), x.softmax(1), x.sum(0), x.double().tanh(), x.int() + 1, x.sqrt(), x.floor(), x.argmax(1)]

    check(fn, (sample(9, 37).abs(),), vector_bytes=vector_bytes)


# ---------------------------------------------------------------------- models
def test_transformer_block_forward_and_backward() -> None:
    torch.manual_seed(0)
    d, heads = 32, 4
    weights = [
        torch.randn(s) * 0.2
        for s in ((d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,))
    ]

    def block(x: torch.Tensor, *w: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = F.linear(F.layer_norm(x, (d,), w[0], w[1]), w[2], w[3]).chunk(3, -1)
        q, k, v = (y.reshape(b, t, heads, -1).transpose(1, 2) for y in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(a.transpose(1, 2).reshape(b, t, d), w[4], w[5])
        return x + F.linear(F.gelu(F.linear(x, w[6], w[7])), w[8], w[9])

    def step(x: torch.Tensor, *w: torch.Tensor) -> list[torch.Tensor]:
        inputs = [t.detach().requires_grad_() for t in (x, *w)]
        out = block(*inputs)
        return [out, *torch.autograd.grad((out * out).mean(), inputs)]

    inputs = (torch.randn(2, 12, d), *weights)
    gm = make_fx(step, tracing_mode="fake")(*inputs)
    graph = Inductor(InductorSettings(cache_dir=cache_dir()))(gm, inputs)
    assert graph.source
    for got, want in zip(graph(*inputs), step(*inputs)):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_names_of_nodes_do_not_clash_with_the_host_program() -> None:
    def fn(torch_: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        return torch_ @ grad + 1

    inputs = (sample(4, 4), sample(4, 4, seed=1))
    gm = trace(fn, inputs)
    for node, name in zip(gm.graph.nodes, ("no_grad", "grad", "as_strided", "empty_strided")):
        node.name = name
    graph = Inductor(InductorSettings(cache_dir=cache_dir()))(gm, inputs)
    torch.testing.assert_close(graph(*inputs)[0], fn(*inputs))


def test_memory_is_not_overwritten_before_what_is_stored_last_has_read_it() -> None:
    """Two kernels that random graphs found: per-row results are computed after the pass that stores per element."""

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = x / (x * x + 1)
        total, soft = y.sum(0, keepdim=True) * 0.1, (y + 0.25).softmax(0)
        rest = total - soft.view(6) - total
        return [F.pad(soft, (1, 2)), rest + 0, soft.view(6).softmax(0), (rest * rest + 1).sqrt()]

    check(fn, (sample(1, 6),), aten=None)


class ChannelsLastWins(AutotuneCache):
    def times(self, key: Any, contest: Any) -> tuple[float, float]:
        outcome = best_times(*contest())
        assert min(outcome.first, outcome.second) >= 0
        return 2.0, 1.0


class ChannelsLastWinsByLittle(AutotuneCache):
    def times(self, key: Any, contest: Any) -> tuple[float, float]:
        return 1.0, 0.8


class DefaultWins(AutotuneCache):
    def times(self, key: Any, contest: Any) -> tuple[float, float]:
        return 1.0, 1.2


class NobodyWins(AutotuneCache):
    def times(self, key: Any, contest: Any) -> tuple[float, float]:
        return 1.0, 1.0


def run_program(fn: Callable[..., list[torch.Tensor]], inputs: Sequence[torch.Tensor], program: Program) -> None:
    """Finish the compilation of a lowered program, run it, and compare values and strides with eager."""
    program = rename_kernels(remove_dead_stores(fuse(program, {})))
    kernels = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    made = CBackend(InductorSettings(cache_dir=cache_dir())).compile(kernels, program.buffers, graph="g", hints={})
    host = write_host_program(program, {k.name: k for k in made}, check_strides=True)
    for got, want in zip(host.call(*inputs), fn(*inputs)):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        assert got.stride() == want.stride()


def test_convolutions_of_many_weights_stay_row_major() -> None:
    """Between neighbours with their channels innermost; results and strides are eager's."""
    torch.manual_seed(0)
    w1, w2, w3 = torch.randn(16, 3, 3, 3), torch.randn(64, 16, 3, 3), torch.randn(8, 64, 1, 1)

    def fn(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, w3: torch.Tensor) -> list[torch.Tensor]:
        wide = F.relu(F.conv2d(x, w1, padding=1))
        small = F.relu(F.conv2d(F.avg_pool2d(wide, 13), w2, padding=1))  # 9216 weights for 1440 activations
        return [small + 1, F.conv2d(small, w3).relu()]

    inputs = (sample(2, 3, 40, 40), w1, w2, w3)
    gm = trace(fn, inputs)
    chosen = preferred_layouts(gm, ChannelsLastWins(cache_dir()))
    assert sum(n.target is aten.convolution.default for n in chosen) == 2
    program = lower_graph(gm, "g", chosen)
    images = [s.args[0] for s in program.steps if isinstance(s, ExternStep) and s.op is aten.convolution.default]
    assert [ref.strides[1].value == 1 for ref in images] == [True, False, True]
    run_program(fn, inputs, program)


def test_convolutions_alone_keep_their_layout() -> None:
    """Two changes of layout cost more than one convolution gains; a pooling gains with it. A change of shape parts two of them."""
    torch.manual_seed(0)
    w1, w2 = torch.randn(16, 3, 3, 3), torch.randn(8, 16, 1, 1)

    def alone(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> list[torch.Tensor]:
        return [F.conv2d(x.sin(), w1, padding=1).softmax(1)]

    def parted(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> list[torch.Tensor]:
        rows = F.conv2d(x, w1, padding=1).relu().flatten(2)
        return [F.conv2d(rows.softmax(2).view(2, 16, 12, 12), w2)]

    def pooled(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> list[torch.Tensor]:
        return [F.max_pool2d(F.conv2d(x, w1, padding=1).relu(), 2)]

    def together(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> list[torch.Tensor]:
        return [F.conv2d(F.conv2d(x, w1, padding=1).relu(), w2)]

    inputs = (sample(2, 3, 12, 12), w1, w2)
    for fn, count in ((alone, 0), (parted, 0), (pooled, 1), (together, 2)):
        gm = trace(fn, inputs)
        chosen = preferred_layouts(gm, ChannelsLastWins(cache_dir()))
        assert sum(n.target is aten.convolution.default for n in chosen) == count
        run_program(fn, inputs, lower_graph(gm, "g", chosen))


def test_convolutions_choose_their_layout() -> None:
    """Whatever the race says, results and the strides of outputs are eager's."""
    torch.manual_seed(0)
    w1, w2, w3 = torch.randn(16, 3, 3, 3), torch.randn(16, 16, 3, 3), torch.randn(8, 16, 1, 1)

    def fn(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, w3: torch.Tensor) -> list[torch.Tensor]:
        a = F.relu(F.conv2d(x, w1, padding=1))
        b = F.relu(F.conv2d(a, w2, padding=1) + a)
        return [b, F.conv2d(b, w3, stride=2), F.conv2d(b, w2, padding=1).mean((2, 3))]

    x = sample(2, 3, 12, 12)
    inputs = (x, w1, w2, w3)
    gm = trace(fn, inputs)
    chosen = preferred_layouts(gm, ChannelsLastWins(cache_dir()))
    assert sum(n.target is aten.convolution.default for n in chosen) == 4
    assert not preferred_layouts(gm, DefaultWins(cache_dir()))
    assert preferred_layouts(gm, NobodyWins(cache_dir())) == chosen
    halves = trace(lambda *a: [torch.cat([y, y[:, 2:]], 1) for y in fn(*a) if y.dim() == 4], inputs)
    assert not preferred_layouts(halves, NobodyWins(cache_dir()))  # channels are cut and joined
    assert preferred_layouts(halves, ChannelsLastWinsByLittle(cache_dir()))
    shuffled = trace(
        lambda *a: [y.view(2, 2, -1, *y.shape[2:]).transpose(1, 2).flatten(1, 2) for y in fn(*a)[:2]], inputs
    )
    assert preferred_layouts(shuffled, NobodyWins(cache_dir()))  # a shuffle reads in order with the channels innermost
    assert not preferred_layouts(shuffled, DefaultWins(cache_dir()))
    for channels_last in (set(), chosen):
        run_program(fn, inputs, lower_graph(gm, "g", channels_last))
    varying = trace(fn, inputs, "symbolic")
    chosen = preferred_layouts(varying, ChannelsLastWins(cache_dir()))
    assert sum(n.target is aten.convolution.default for n in chosen) == 4
    run_program(fn, (sample(3, 3, 17, 17), w1, w2, w3), lower_graph(varying, "g", chosen))


def test_a_variance_pass_does_not_read_what_an_earlier_pass_overwrote() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = x @ x
        var, mean = torch.var_mean(y, 1, keepdim=True, correction=0)
        return [y - mean, (y - mean) * torch.rsqrt(var + 1e-5)]

    check(fn, (sample(40, 40),), aten=1, tol={"rtol": 1e-4, "atol": 1e-4})


def test_the_cache_is_trimmed(tmp_path: Path) -> None:
    for k in range(4):
        for suffix in (".so", ".sha256", ".cpp"):
            path = tmp_path / f"{k:040x}{suffix}"
            path.write_bytes(b"x" * 100)
            os.utime(path, (1000 + k, 1000 + k))
    (tmp_path / "races.json").write_text("{}")
    assert trim(tmp_path, 600, keep=[tmp_path / f"{0:040x}.so"]) == 600
    assert sorted({int(p.stem, 16) for p in tmp_path.glob("*.so")}) == [0, 3]
    assert (tmp_path / "races.json").exists()
    assert trim(tmp_path, 0) == 0  # not twice within an hour


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_parts_replaced_in_an_expanded_tensor(mode: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        made = torch.slice_scatter(x, y, 1, 3, 5), torch.select_scatter(x, y[:, 0], 1, 1)
        return [*(m * 2 for m in made), *(m.clone() for m in made)]

    inputs = torch.arange(6.0).expand(4, 6), torch.randn(4, 2)
    traced = trace(function, inputs, mode)
    for node in traced.graph.nodes:  # as fakes of torch 2.11 are
        if "scatter" in str(node.target):
            node.meta["val"] = node.meta["val"][:1].expand(node.meta["val"].shape)
    graph = Inductor(InductorSettings(cache_dir=cache_dir()))(traced, inputs)
    for have, want in zip(graph(*inputs), function(*inputs), strict=True):
        assert torch.equal(have, want)


def test_results_of_operators_need_not_begin_their_storage() -> None:
    """`slice_scatter` of a view that begins in the middle of a storage returns such a view."""

    def function(x: torch.Tensor) -> torch.Tensor:
        x = torch.slice_scatter(x, x[:2], 0, 1, 3)
        return x @ x.t()

    x = torch.randn(9, 4)[3:]
    assert torch.slice_scatter(x, x[:2], 0, 1, 3).storage_offset() == 12
    check(function, (x,), mode="symbolic", aten=None)


@pytest.mark.parametrize(
    "fn",
    [
        lambda z: z.mean(-1),
        lambda z: z.var(-1),
        lambda z: torch.linalg.vector_norm(z, dim=-1),
        lambda z: (z.sum(0), z.cumsum(-1).real + 1),
        lambda z: torch.where(z.real > 0, z, z * 2).prod(-1),
        lambda z: (z.abs().mean(-1), torch.std(z, -1)),
    ],
)
def test_complex_numbers_are_no_failure_of_a_lowering(fn: Callable[..., Any]) -> None:
    z = torch.complex(sample(5, 8), sample(5, 8, seed=1))
    with using_policy(FailurePolicy(raises=True)):
        check(fn, (z,), aten=None)


def test_a_broken_lowering_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(LOWERINGS, torch.ops.aten.sin.default, broken)
    with using_policy(FailurePolicy(raises=True)), pytest.raises(Exception, match="oops"):
        compiled(lambda x: x.sin(), (sample(5),))


def test_a_view_is_stored_as_what_it_shows_would_be() -> None:
    """What an image that is enlarged is computed from has its channels innermost where the image would have."""

    def enlarged(x: torch.Tensor) -> list[torch.Tensor]:
        return [F.silu(x).view(2, 8, 5, 1, 6, 1).expand(2, 8, 5, 2, 6, 2).clone().view(2, 8, 10, 12)]

    def repeated(x: torch.Tensor) -> list[torch.Tensor]:
        return [F.silu(x).unsqueeze(3).expand(2, 8, 5, 2, 6).clone()]

    for fn in (enlarged, repeated):
        inputs = (torch.randn(2, 8, 5, 6),)
        gm = trace(fn, inputs)
        silu = next(n for n in gm.graph.nodes if "silu" in n.name)
        program = lower_graph(gm, "g", {silu})
        assert tuple(s.value for s in program.buffers["expand"].strides)[:3] == (240, 1, 48)
        run_program(fn, inputs, program)
        row_major = lower_graph(gm, "g", set()).buffers["expand"]
        assert [s.value for s in row_major.strides][:3] == [240, 30, 6]


MOVED: dict[str, tuple[Callable[..., Any], int]] = {
    "exclusive sums": (lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)], 1), 2),
    "sums from the end": (lambda x: x.flip(1).cumsum(1).flip(1), 1),
    "sums along rows": (lambda x: torch.cat([x[:1] * 2, x.cumsum(0), x.softmax(0)], 0), 3),
    "products behind both": (lambda x: torch.cat([x.sin(), x.cumprod(1), x], 1).flip(0).flip(0), 3),
    "norms side by side": (lambda x: torch.cat([x.softmax(1), x.log_softmax(1) + 1], 1), 2),
    "turned in two dimensions": (lambda x: x.view(2, 3, 40).cumsum(1).flip(0, 2), 1),
}


@pytest.mark.parametrize("name", MOVED)
def test_rows_that_are_only_moved_are_stored_where_they_end(name: str) -> None:
    function, kernels = MOVED[name]
    x = sample(6, 40)
    for given in (x, x.t().contiguous().t()):
        check(function, (given,), kernels=kernels if given is x and name != "products behind both" else None)


def test_rows_that_somebody_else_reads_are_not_moved() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        sums = x.cumsum(1)
        joined = torch.cat([x[:, :1], sums], 1)
        return [joined, sums.flip(1), torch.cat([joined, joined], 1), torch.cat([x.softmax(1), x.softmax(1)], 1)]

    check(function, (sample(6, 40),))
    check(lambda x: torch.cat([x.cumsum(1), x], 1).sin() + 1, (sample(6, 40),))
    check(lambda x: torch.cat([x.cumsum(1), x.double()], 1), (sample(6, 40),))
