"""The runtime wrapper: fallback, errors, lazy backward, retained graphs, versions, modules with their own state."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from aot_harness import STRICT, graph_of, run_both
from torch import fx

import torchjit_aot
from torchjit_aot import AotSettings, run_eagerly
from torchjit_core.events import listen
from torchjit_core.reasons import GraphBreak


def compiled(f: Any, *args: Any, settings: AotSettings = STRICT, compiler: Any = run_eagerly) -> Any:
    return torchjit_aot.compile(graph_of(f, len(args)), args, compiler=compiler, settings=settings)


@pytest.mark.parametrize(
    ("f", "args", "reason"),
    [
        (lambda x: x * x.sum().item(), (torch.ones(3),), "TJ-AOT-001"),
        (lambda x: x.resize_(2, 3), (torch.ones(3, 2),), "TJ-AOT-004"),
        (lambda x: x.resize_(2), (torch.ones(3),), "TJ-AOT-004"),
        (lambda x: x * 2, (torch.ones(3).to_sparse(),), "TJ-AOT-006"),
        (lambda x: x.add_(1), (torch.ones(8).as_strided((3, 4), (2, 1)),), "TJ-AOT-002"),
    ],
)
def test_what_cannot_be_compiled_runs_eagerly(f: Any, args: tuple[Any, ...], reason: str) -> None:
    gm = graph_of(f, len(args))
    with pytest.raises(GraphBreak) as caught:
        torchjit_aot.compile(gm, args, compiler=run_eagerly, settings=STRICT)
    assert caught.value.reason.id == reason
    seen = []
    with listen(lambda kind, fields: seen.append((kind, fields))):
        run = torchjit_aot.compile(gm, args, compiler=run_eagerly)
    assert [fields["reason"] for kind, fields in seen if kind == "fallback"] == [reason]
    want, have = f(args[0].clone()), run(args[0].clone())
    assert torch.equal(want.to_dense(), have.to_dense())


def test_mutated_inputs_that_share_storage() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    base = torch.arange(6.0)
    with pytest.raises(GraphBreak) as caught:
        compiled(f, base, base.data[1:])  # with a version counter of its own
    assert caught.value.reason.id == "TJ-AOT-003"
    fallback = compiled(f, base, base.data[1:], settings=AotSettings())
    shared = compiled(f, base, base[1:])
    checked = compiled(f, torch.zeros(6), torch.zeros(5))
    for run in (fallback, shared, checked):
        base = torch.arange(6.0)
        assert run(base, base[1:]).tolist() == [4.0, 6.0, 8.0, 10.0, 12.0]


def test_requires_grad_in_the_graph_is_refused() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_method("requires_grad_", (x,)))
    gm = fx.GraphModule({}, graph)
    with pytest.raises(GraphBreak, match="TJ-AOT-004"):
        torchjit_aot.compile(gm, [torch.ones(3)], compiler=run_eagerly, settings=STRICT)
    assert torchjit_aot.compile(gm, [torch.ones(3)], compiler=run_eagerly)(torch.ones(3)).requires_grad


def test_a_leaf_written_in_place_raises_as_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    x = torch.ones(3, requires_grad=True)
    run = compiled(f, x, settings=AotSettings())
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        run(x)


def test_backward_is_compiled_when_it_is_first_needed() -> None:
    kinds = []

    def compiler(gm: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        kinds.append(options["kind"])
        return run_eagerly(gm, inputs, **options)

    x = torch.ones(3, requires_grad=True)
    run = compiled(lambda x: x.sin(), x, compiler=compiler)
    assert kinds == ["forward"]
    y = run(x)
    assert kinds == ["forward"]
    y.sum().backward()
    run(x).sum().backward()
    assert kinds == ["forward", "backward"]
    kinds.clear()
    compiled(lambda x: x.sin(), x, compiler=compiler, settings=AotSettings(eager_backward=True))
    assert kinds == ["forward", "backward"]


def test_a_compiler_that_fails_on_the_backward_is_replaced() -> None:
    def compiler(gm: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        if options["kind"] == "backward":
            raise RuntimeError("no backward today")
        return run_eagerly(gm, inputs, **options)

    x = torch.ones(3, requires_grad=True)
    seen = []
    with listen(lambda kind, fields: seen.append(fields) if kind == "fallback" else None):
        compiled(lambda x: x.sin(), x, compiler=compiler, settings=AotSettings())(x).sum().backward()
    assert [fields["reason"] for fields in seen] == ["TJ-AOT-012"]
    assert x.grad is not None and torch.allclose(x.grad, x.cos())
    run = compiled(lambda x: x.sin(), x, compiler=compiler)
    with pytest.raises(RuntimeError, match="no backward today"):
        run(x).sum().backward()


def test_inference_has_no_autograd_wrapper() -> None:
    kinds = []

    def compiler(gm: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        kinds.append(options["kind"])
        return run_eagerly(gm, inputs, **options)

    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        run = compiled(lambda x: x.sin(), x, compiler=compiler)
        assert not run(x).requires_grad
    assert kinds == ["inference"]


def test_a_graph_of_fresh_tensors_that_is_a_range_by_itself_is_called_directly() -> None:
    made: list[Any] = []

    def compiler(gm: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        run = run_eagerly(gm, inputs, **options)
        made.append(lambda *inputs: run(*inputs))
        made[-1].range_name = None
        return made[-1]

    assert compiled(lambda x: (x.sin(), x + 1), torch.ones(3), compiler=compiler) is made[0]
    assert made[0].range_name == "## Call CompiledFxGraph graph_inference ##"


def test_backward_twice_and_retained_graph() -> None:
    x = torch.ones(3, requires_grad=True)
    run = compiled(lambda x: x.sin(), x)
    y = run(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert torch.allclose(x.grad, 2 * torch.ones(3).cos())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_double_backward_is_refused_clearly() -> None:
    x = torch.ones(3, requires_grad=True)
    run = compiled(lambda x: x.sin(), x)
    (grad,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
    assert torch.allclose(grad, torch.ones(3).cos())
    with pytest.raises(RuntimeError, match="TJ-AOT-009"):
        grad.sum().backward()  # type: ignore[no-untyped-call]


def test_saved_input_changed_in_place_raises_as_eager() -> None:
    x = torch.ones(3, requires_grad=True)
    w = torch.ones(3)
    run = compiled(lambda x, w: x * w, x, w)
    y = run(x, w)
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.usefixtures("older_objects_rest")
def test_saved_tensors_are_released() -> None:
    x = torch.randn(100, requires_grad=True)
    run = compiled(lambda x: x.sin().exp(), x)
    y = run(x)
    saved = [weakref.ref(t) for t in y.grad_fn.saved_tensors if t is not x]
    y.sum().backward()
    del y
    gc.collect()
    assert all(ref() is None for ref in saved)


def test_tangents_of_other_layouts_and_missing_tangents() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ w, (x * 2).t().contiguous()

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    run = compiled(f, x, w)
    for pick in (lambda a, b: a.sum(), lambda a, b: b.sum(), lambda a, b: (a.t().exp() * torch.ones(5, 1)).sum()):
        grads = [torch.autograd.grad(pick(*g(x, w)), (x, w), allow_unused=True) for g in (f, run)]  # type: ignore[no-untyped-call]
        for want, have in zip(*grads, strict=True):
            assert (want is None and have is None) or torch.allclose(want, have)


def test_gradients_for_a_subset_of_inputs() -> None:
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    run = compiled(lambda x, w: x * w, x, w)
    (grad,) = torch.autograd.grad(run(x, w).sum(), w)
    assert torch.equal(grad, x)


def test_results_may_be_written_in_place() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    run = compiled(lambda x: (x * 2).t(), x)
    y = run(x)
    y.add_(1)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3, 4), 2.0))  # type: ignore[arg-type]


def test_hooks_on_results_and_inputs() -> None:
    x = torch.randn(3, requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append(g.clone()) or g * 2)  # type: ignore[func-returns-value, no-untyped-call]
    y = compiled(lambda x: x * 3, x)(x)
    y.register_hook(lambda g: g + 1)
    y.sum().backward()
    assert seen[0].tolist() == [6.0, 6.0, 6.0]
    assert x.grad.tolist() == [12.0, 12.0, 12.0]  # type: ignore[union-attr]


class Net(torch.nn.Module):
    """Convolution, batch norm, shared weights, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.conv2 = torch.nn.Conv2d(4, 4, 3, padding=1)
        self.conv3 = torch.nn.Conv2d(4, 4, 3, padding=1)
        self.conv3.weight = self.conv2.weight
        self.head = torch.nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.conv(x)))
        y = y + F.relu(self.norm(self.conv2(y)))
        y = F.dropout(self.conv3(y), 0.3, self.training)
        return self.head(y.mean((2, 3)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("training", [True, False])
def test_module_with_buffers_trains_as_eager(training: bool) -> None:
    torch.manual_seed(0)
    eager = Net().train(training)
    other = copy.deepcopy(eager)
    x = torch.randn(2, 3, 6, 6)
    run = torchjit_aot.compile(fx.symbolic_trace(other), [x], compiler=run_eagerly, settings=STRICT)
    sgd = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (eager, other)]
    for step in range(3):
        for m, call, optimizer in ((eager, eager, sgd[0]), (other, run, sgd[1])):
            torch.manual_seed(step)
            optimizer.zero_grad()
            call(x + step).square().sum().backward()
            optimizer.step()
    for (name, want), (_, have) in zip(eager.state_dict().items(), other.state_dict().items(), strict=True):
        torch.testing.assert_close(have, want, msg=lambda text, name=name: f"{name}: {text}")  # type: ignore[misc]


def test_statistics_of_batch_norm_do_not_move_versions() -> None:
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(3))
    x = torch.randn(4, 3, requires_grad=True)
    run = torchjit_aot.compile(fx.symbolic_trace(module), [x], compiler=run_eagerly, settings=STRICT)
    a, b = run(x), run(x)  # eager PyTorch allows two forwards before the backwards
    (a.sum() + (b * b).sum()).backward()
    assert module[0].running_mean._version == torch.nn.BatchNorm1d(3).running_mean._version  # type: ignore[union-attr]
    assert module[0].num_batches_tracked.item() == 2  # type: ignore[operator]


def test_ambient_autocast_is_in_the_graph() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).float().exp() @ w

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run_both(f, (x, w))


def test_a_function_is_specialised_to_the_ambient_autocast() -> None:
    run = torchjit_aot.aot_function(lambda x, w: x @ w)
    args = [torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)]
    assert run(*args).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert run(*args).dtype == torch.bfloat16


def test_a_detached_input_with_a_history_of_its_own_runs_eagerly() -> None:
    def f(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        d = a.detach()
        d.mul_(w)
        return d

    args = (torch.randn(3), torch.randn(3, requires_grad=True))
    with pytest.raises(GraphBreak, match="TJ-AOT-005"):
        compiled(f, *args)
    run_both(f, args, settings=AotSettings())
