"""The public functions, each doing what its docstring says."""

# mypy: allow-untyped-calls, no-warn-return-any

import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchjit
from torchjit.options import make_options
from torchjit_core.events import listen


def test_disable_runs_plainly_inside_compiled_code() -> None:
    seen = []

    @torchjit.disable
    def plain(x: torch.Tensor) -> torch.Tensor:
        seen.append(torchjit.is_compiling())
        return x * 3

    def f(x: torch.Tensor) -> torch.Tensor:
        return plain(x.sin()).cos()

    compiled = torchjit.compile(f, backend="eager")
    x = torch.randn(5)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), (x.sin() * 3).cos())
    assert seen == [False, False]
    breaks = torchjit.explain(f)(x).breaks
    assert [b.reason_id for b in breaks] == ["TJ-API-010"]


def test_disable_is_recursive_unless_told() -> None:
    inner: Any = torchjit.compile(lambda x: x + 1, backend="eager")
    torchjit.disable(lambda x: inner(x))(torch.ones(1))
    assert not inner.compiled.specializations
    torchjit.disable(lambda x: inner(x), recursive=False)(torch.ones(1))
    assert len(inner.compiled.specializations) == 1


def test_is_compiling_is_true_under_capture_only() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        if torchjit.is_compiling() and torch.compiler.is_compiling():
            return x + 1
        return x - 1

    x = torch.zeros(1)
    assert f(x).item() == -1
    assert torchjit.compile(f, backend="eager")(x).item() == 1


def test_graph_break_splits_the_graph() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torchjit.graph_break("here")
        return y.cos()

    x = torch.randn(3)
    told = torchjit.explain(f)(x)
    assert (told.graph_count, told.graph_break_count) == (2, 1)
    assert told.breaks[0].reason_id == "TJ-API-011"
    assert "torchjit.graph_break" in str(told)
    torch.testing.assert_close(torchjit.compile(f, backend="eager")(x), f(x))


def test_any_callable_is_a_backend() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def mine(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        graphs.append(gm)
        assert all(isinstance(t, torch.Tensor) for t in example_inputs)
        return gm.forward

    x = torch.randn(3)
    torch.testing.assert_close(torchjit.compile(lambda x: x.sin() + 1, backend=mine)(x), x.sin() + 1)
    assert [n.op for n in graphs[0].graph.nodes].count("call_function") + [n.op for n in graphs[0].graph.nodes].count(
        "call_method"
    ) == 2
    node = next(n for n in graphs[0].graph.nodes if n.op.startswith("call"))
    assert node.meta["val"].shape == (3,)
    assert __file__ in node.meta["stack_trace"]


def test_lists_of_backends_and_options() -> None:
    assert "inductor" in torchjit.list_backends()
    assert "eager" not in torchjit.list_backends()
    assert {"eager", "aot_eager", "inductor"} <= set(torchjit.list_backends(exclude_tags=None))
    assert torchjit.list_mode_options("reduce-overhead") == {"triton.cudagraphs": True}
    assert "max_autotune" in torchjit.list_options()
    assert torchjit.lookup_backend(len) is len


def test_capture_sizes_are_positive_and_need_cuda_graphs() -> None:
    name, graphs = "triton.cudagraph_capture_sizes", {"triton.cudagraphs": True}
    assert make_options(None, {**graphs, name: [16, 8, 16]}).capture_sizes == (8, 16)
    for bad in ({name: [8]}, {**graphs, name: [0]}, {**graphs, name: True}, {**graphs, name: ["8"]}):
        with pytest.raises(torchjit.exc.UserError, match=name):
            make_options(None, bad)
    told: list[str] = []
    with listen(lambda kind, fields: told.append(fields["detail"]) if fields.get("reason") == "TJ-CG-014" else None):
        for function, grad in ((torch.sin, False), (torch.sum, False), (torch.sin, True)):
            compiled = torchjit.compile(function, options={**graphs, name: (4,)}, dynamic=True)
            assert compiled(torch.ones(3, requires_grad=grad)).shape == function(torch.ones(3)).shape
    assert len(told) == 2 and "result 0" in told[0] and "forward graph" in told[1]


def test_disable_argument_and_decorator_forms() -> None:
    def f(x: int) -> int:
        return x

    assert torchjit.compile(f, disable=True) is f
    assert torchjit.compile(backend="eager")(f).__name__ == "f"


@pytest.mark.parametrize("yes", [1, np.True_, np.bool_(1)])
def test_what_is_true_or_false_as_a_number_is_taken(yes: Any) -> None:
    """As `torch.compile` does."""
    no = type(yes)(0)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    x = torch.ones(3)
    assert torchjit.compile(f, disable=yes) is f
    with pytest.raises(torchjit.exc.Unsupported):
        torchjit.compile(lambda x: torchjit.graph_break() or x, fullgraph=yes, disable=no)(x)  # type: ignore[func-returns-value]
    for dynamic, entries in ((yes, 1), (no, 2), (None, 2)):
        compiled: Any = torchjit.compile(backend="eager", dynamic=dynamic, isolate_recompiles=yes, fullgraph=no)(f)
        assert [compiled(torch.ones(n)).shape[0] for n in (3, 4)] == [3, 4]
        assert len(compiled.compiled.entries) == entries
    with torchjit.error_on_graph_break(no), torchjit.config.patch(automatic_dynamic_shapes=no, disable=yes):
        assert torchjit.config.disable is True and torchjit.config.automatic_dynamic_shapes is False
    torchjit.testing.assert_equal_to_eager(f, x, gradients=no)
    assert torchjit.explain(f, dynamic=yes)(x).graph_count == 1
    assert torchjit.disable(f, recursive=no)(x).sum() == 6


def test_methods_compile_bound_and_on_the_class() -> None:
    class Thing:
        def __init__(self, k: float) -> None:
            self.k = k

        @torchjit.compile(backend="eager")
        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

        def shifted(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.k

    x = torch.ones(2)
    thing, other = Thing(2.0), Thing(3.0)
    torch.testing.assert_close(thing.scaled(x), x * 2)
    torch.testing.assert_close(other.scaled(x), x * 3)
    torch.testing.assert_close(torchjit.compile(thing.shifted, backend="eager")(x), x + 2)


def test_compiled_modules_share_state_with_the_original() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    compiled = torchjit.compile(net, backend="eager")
    x = torch.randn(8, 4)
    compiled(x)
    assert net[1].num_batches_tracked.item() == 1
    net.eval()
    assert not compiled.training
    torch.testing.assert_close(compiled(x), net(x))
    with torch.no_grad():
        net[0].weight.mul_(2)
    torch.testing.assert_close(compiled(x), net(x))
    net[0] = nn.Linear(4, 4)
    torch.testing.assert_close(compiled(x), net(x))
    twin = copy.deepcopy(compiled)
    with torch.no_grad():
        twin[0].weight.zero_()
    assert not torch.equal(twin(x), compiled(x))
    torch.testing.assert_close(pickle.loads(pickle.dumps(compiled))(x), net(x))
    assert torchjit.compile(compiled, backend="eager")(x).shape == (8, 4)


def test_config_patch_restores_and_reset_forgets() -> None:
    before = torchjit.config.recompile_limit
    with torchjit.config.patch(recompile_limit=3):
        assert torchjit.config.recompile_limit == 3
    assert torchjit.config.recompile_limit == before
    f: Any = torchjit.compile(lambda x: x + 1, backend="eager")
    f(torch.ones(1))
    torchjit.reset()
    assert not f.compiled.specializations and not torchjit.counters
    f(torch.ones(1))
    assert len(f.compiled.specializations) == 1


def test_logs_print_what_they_are_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    torchjit.set_logs(graph_code=True, recompiles=True)
    try:
        with caplog.at_level("INFO", logger="torchjit"):
            f = torchjit.compile(lambda x, n: x + n, backend="eager")
            f(torch.ones(1), "a".__len__())
            f(torch.ones(1, 1), 1)
    finally:
        torchjit.set_logs(graph_code=False, recompiles=False)
    assert "captured graph" in caplog.text and "recompiles" in caplog.text


def test_explain_counts() -> None:
    told = torchjit.explain(lambda x: (x + 1).sin())(torch.ones(2))
    assert (told.graph_count, told.graph_break_count, told.op_count) == (1, 0, 2)
    assert told.regions[0].guards and told.compile_seconds > 0


def test_what_python_calls_at_a_break_is_captured_too() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    @torchjit.disable(recursive=False)
    def plain(x: torch.Tensor) -> torch.Tensor:
        return inner(x) * 2

    def f(x: torch.Tensor) -> torch.Tensor:
        return plain(x.cos()).exp()

    compiled: Any = torchjit.compile(f, backend="eager")
    x = torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), ((x.cos().sin() + 1) * 2).exp())
    names = [s.name for s in compiled.compiled.sites if s.specializations]
    assert any(n.endswith("inner") for n in names), names
    with torchjit.config.patch(capture_calls_at_breaks=False):
        alone: Any = torchjit.compile(f, backend="eager")
        torch.testing.assert_close(alone(x), compiled(x))
        assert not any(s.name.endswith("inner") for s in alone.compiled.sites)


def test_checkpoint_recomputes_what_ran() -> None:
    lin = nn.Linear(8, 8)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.utils.checkpoint.checkpoint(lambda t: lin(t).relu(), x.sin(), use_reentrant=False)
        return y.sum()

    compiled = torchjit.compile(f, backend="inductor")
    x = torch.randn(4, 8, requires_grad=True)
    (want,) = torch.autograd.grad(f(x), x)
    for _ in range(2):
        (got,) = torch.autograd.grad(compiled(x), x)
        torch.testing.assert_close(got, want)


def test_a_whole_step_with_backward_and_optimizer() -> None:
    nets = [nn.Linear(8, 1), nn.Linear(8, 1)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [torch.optim.AdamW(n.parameters(), lr=1e-2) for n in nets]
    x = torch.randn(4, 8)

    def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    compiled = torchjit.compile(step)
    for _ in range(4):
        torch.testing.assert_close(compiled(nets[1], optimizers[1]), step(nets[0], optimizers[0]))
    torch.testing.assert_close(nets[1].weight, nets[0].weight)


def test_threads_share_one_compilation() -> None:
    import threading

    compiled: Any = torchjit.compile(lambda x: (x @ x.T).relu().sum(0))
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for k in range(5):
                y = torch.randn(4 + k, 8)
                torch.testing.assert_close(compiled(y), (y @ y.T).relu().sum(0))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert len(compiled.compiled.specializations) == 2


def test_settings_reach_the_compilation() -> None:
    with torchjit.config.patch(automatic_dynamic_shapes=False):
        fixed: Any = torchjit.compile(lambda x: x.sin() * 2, backend="eager")
        for size in (3, 4, 5):
            fixed(torch.ones(size))
        assert len(fixed.compiled.specializations) == 3
    with pytest.raises(ValueError, match="graph_diagrams"):
        torchjit.compile(lambda x: x, options={"trace.graph_diagrams": True})
    with torchjit.config.patch(caches=False):
        torch.testing.assert_close(torchjit.compile(lambda x: x.sin() * 2)(torch.ones(3)), torch.ones(3).sin() * 2)
    symbolic: Any = torchjit.compile(lambda x: x.sin() * 2, backend="eager", dynamic=True)
    for size in (3, 4, 5):
        symbolic(torch.ones(size))
    assert len(symbolic.compiled.specializations) == 1


def test_a_chain_of_bfloat16_is_rounded_as_in_eager_where_that_is_asked_for() -> None:
    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((x / y).floor() + (x * y).round()).sin()

    x, y = (torch.randn(200, generator=torch.Generator().manual_seed(s)).bfloat16() for s in (1, 2))
    exact = torchjit.compile(chain, options={"emulate_precision_casts": True})
    assert torch.equal(exact(x, y), chain(x, y))
    assert not torch.equal(torchjit.compile(chain)(x, y), chain(x, y))


class _Backends:
    def returns_a_list(self, gm: torch.fx.GraphModule, inputs: Any) -> Any:
        return [gm.forward]

    def __call__(self, gm: torch.fx.GraphModule, inputs: Any) -> Any:
        return gm.code


@pytest.mark.parametrize(
    "backend",
    [lambda gm, inputs: None, _Backends().returns_a_list, _Backends(), functools.partial(lambda _, gm, i: 3, 0)],
)
@pytest.mark.parametrize("on_error", [None, "eager"])
def test_a_backend_that_returns_nothing_to_call_is_told(backend: Any, on_error: Any) -> None:
    compiled = torchjit.compile(lambda x: x + 1, backend=backend, on_error=on_error)
    for _ in range(2):
        with pytest.raises(torchjit.exc.UserError, match="TJ-API-008") as caught:
            compiled(torch.ones(2))
    assert (getattr(backend, "__qualname__", None) or type(backend).__qualname__) in str(caught.value)


def test_what_a_backend_does_in_a_call_is_not_captured() -> None:
    """Below a graph break the frame hook looks at what is called; the backend's functions are no code of the program."""
    seen: list[bool] = []

    def helper(gm: torch.fx.GraphModule, args: tuple[Any, ...]) -> Any:
        seen.append(torchjit.is_compiling())
        return gm(*args)

    class Callable_:
        def __init__(self, gm: torch.fx.GraphModule) -> None:
            self.gm = gm

        def __call__(self, *args: Any) -> Any:
            return helper(self.gm, args)

        def method(self, *args: Any) -> Any:
            return helper(self.gm, args)

    def given(gm: torch.fx.GraphModule, *args: Any) -> Any:
        return helper(gm, args)

    def inner(y: torch.Tensor) -> torch.Tensor:  # its graph is the front door's target itself
        return y * 2

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torchjit.graph_break()
        return inner(y) - 1

    forms: list[Any] = [
        lambda gm, inputs: lambda *args: helper(gm, args),
        lambda gm, inputs: Callable_(gm),
        lambda gm, inputs: Callable_(gm).method,
        lambda gm, inputs: functools.partial(given, gm),
    ]
    x = torch.ones(2)
    for backend in forms:
        fast = torchjit.compile(program, backend=backend)
        for _ in range(3):
            torch.testing.assert_close(fast(x), program(x))
    assert len(seen) >= 3 * len(forms)
    assert not any(seen)
