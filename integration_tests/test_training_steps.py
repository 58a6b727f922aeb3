"""What training code does around its graphs, against eager PyTorch: second derivatives, several losses, scaled gradients, layers."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchjit
import torchjit_aot

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "inductor"])


def compare(f: Callable[..., Any], use: Callable[..., Any], backend: str) -> Any:
    """`use(run)` with the compiled function gives what it gives with the function; returns the compiled one."""
    run = torchjit.compile(f, backend=backend)
    for _ in range(2):
        found, wanted = [], []
        for call, seen in ((run, found), (f, wanted)):
            torch.manual_seed(1)
            seen.append(use(call))
        torch.testing.assert_close(found, wanted)
    return run


@BACKENDS
def test_a_gradient_of_a_gradient_through_what_was_computed_before(backend: str) -> None:
    def penalty(h: Tensor, x: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(h.sin().sum(), x, create_graph=True)
        return slope.square().sum()

    def use(run: Any) -> Any:
        x = torch.randn(4, requires_grad=True)
        loss = run(x * x, x)
        loss.backward()
        return loss.detach(), x.grad

    compare(penalty, use, backend)


@BACKENDS
def test_backward_of_a_graph_that_is_differentiated_again(backend: str) -> None:
    def second(x: Tensor) -> Tensor:
        x.sin().sum().backward(create_graph=True)  # type: ignore[no-untyped-call]
        assert x.grad is not None
        return torch.autograd.grad(x.grad.square().sum(), x)[0]

    compare(second, lambda run: run(torch.randn(3, requires_grad=True)), backend)


@BACKENDS
def test_a_detached_result_of_an_earlier_graph_leaves_its_backward_alone(backend: str) -> None:
    def losses(x: Tensor, g: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        fake = x * g.sin()
        torchjit.graph_break()
        return fake, (fake.detach() * d.cos()).sum()

    def use(run: Any) -> Any:
        x, g, d = torch.randn(3), torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        fake, loss = run(x, g, d)
        loss.backward()
        fake.sum().backward()
        return g.grad, d.grad

    compare(losses, use, backend)


@BACKENDS
def test_a_retained_gradient_is_that_of_the_value_after_a_write(backend: str) -> None:
    def write(y: Tensor) -> Tensor:
        y.mul_(3)
        return y * y

    def use(run: Any) -> Any:
        x, seen = torch.randn(4, requires_grad=True), []
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda g: seen.append(g.clone()))  # type: ignore[no-untyped-call]
        run(y).sum().backward()
        return x.grad, y.grad, seen

    compare(write, use, backend)


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_unscaling_is_exact(dtype: torch.dtype, backend: str) -> None:
    def unscale(grads: list[Tensor], found: Tensor, inverse: Tensor) -> None:
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)  # type: ignore[attr-defined]

    for bad in (1.0, float("inf"), float("nan")):
        sides = []
        for run in (unscale, torchjit.compile(unscale, backend=backend, fullgraph=True)):
            torch.manual_seed(0)
            sides.append(
                ([torch.randn(5).to(dtype), torch.tensor([bad], dtype=dtype)], torch.zeros(1), torch.tensor([1 / 3]))
            )
            run(*sides[-1])
        torch.testing.assert_close(sides[1], sides[0], rtol=0, atol=0, equal_nan=True)


@BACKENDS
@pytest.mark.parametrize("given_state", [False, True])
def test_a_recurrent_layer_on_data(given_state: bool, backend: str) -> None:
    """Only the weights require gradients."""
    layer = nn.LSTM(2, 5, batch_first=True)

    def run_layer(x: Tensor, state: Any) -> Any:
        return layer(x, state)

    def use(run: Any) -> Any:
        layer.zero_grad()
        state = (torch.randn(1, 6, 5), torch.randn(1, 6, 5)) if given_state else None
        out, _ = run(torch.randn(6, 3, 2), state)
        out.square().sum().backward()
        return out.detach(), [p.grad.clone() for p in layer.parameters()]

    compare(run_layer, use, backend)


@BACKENDS
def test_a_contrastive_step_with_a_momentum_encoder(backend: str) -> None:
    def step(query: Any, key: Any, x: Tensor, queue: Tensor) -> Tensor:
        q = F.normalize(query(x), dim=-1)
        with torch.no_grad():
            for a, b in zip(key.parameters(), query.parameters(), strict=True):
                a.data = a.data * 0.9 + b.data * 0.1
            k = F.normalize(key(x), dim=-1)
        logits = torch.cat([(q * k).sum(-1, keepdim=True), q @ queue.clone().T], 1)
        loss = F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))
        loss.backward()  # type: ignore[no-untyped-call]
        queue[: len(x)] = k
        return loss.detach()

    def use(run: Any) -> Any:
        query, key, queue = nn.Linear(4, 3), nn.Linear(4, 3), torch.randn(8, 3)
        losses = [run(query, key, torch.randn(5, 4), queue) for _ in range(2)]
        return losses, [p.grad for p in query.parameters()], [p.detach() for p in key.parameters()], queue

    compare(step, use, backend)


class Gan(nn.Module):
    """Both losses of a training step."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6))
        self.critic = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, noise: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        fake = self.generator(noise)
        critic = F.softplus(-self.critic(real)).mean() + F.softplus(self.critic(fake.detach())).mean()
        return critic, F.softplus(-self.critic(fake)).mean()


@BACKENDS
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_losses_without_a_common_operator_have_backwards_of_their_own(backend: str, order: tuple[int, int]) -> None:
    def use(run: Any) -> Any:
        torch.manual_seed(0)
        model = Gan()
        step = torch.optim.SGD(model.parameters(), 0.1)
        seen = []
        for _ in range(3):
            losses = run(model, torch.randn(5, 4), torch.randn(5, 6))
            for k in order:
                losses[k].backward()
            seen += [p.grad.clone() for p in model.parameters() if p.grad is not None]
            step.step()
            step.zero_grad()
        return seen

    compare(lambda model, noise, real: model(noise, real), use, backend)


def _two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x.sin() * x).sum(), (y.cos() * y).sum()


@BACKENDS
@pytest.mark.parametrize("between", ["nothing", "a write to the first", "a write to the second", "the first again"])
def test_the_second_backward_works_and_fails_as_in_eager_mode(backend: str, between: str) -> None:
    def use(run: Any) -> Any:
        x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        first, second = run(x, y)
        first.backward()
        try:
            if between == "the first again":
                first.backward()
            elif between != "nothing":
                with torch.no_grad():
                    (x if between == "a write to the first" else y).mul_(2)
            second.backward()
        except RuntimeError as error:
            return type(error).__name__, str(error)[:60]
        return x.grad, y.grad

    run = torchjit.compile(_two, backend=backend)
    for _ in range(2):
        torch.manual_seed(1)
        found = use(run)
        torch.manual_seed(1)
        wanted = use(_two)
        if isinstance(wanted[0], Tensor):
            torch.testing.assert_close(found, wanted)
        else:
            assert found == wanted


@BACKENDS
def test_both_at_once_retained_and_then_alone(backend: str) -> None:
    def use(run: Any) -> Any:
        x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        first, second = run(x, y)
        (first + second).backward(retain_graph=True)
        first.backward(retain_graph=True)
        second.backward()
        first.backward()
        return x.grad, y.grad

    compare(_two, use, backend)


@BACKENDS
def test_what_was_saved_is_kept_until_the_last_backward(backend: str) -> None:
    run = torchjit.compile(_two, backend=backend)
    for _ in range(2):
        x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        first, second = run(x, y)
        node: Any = first.grad_fn
        first.backward()
        assert node.kept is not None
        second.backward()
        assert node.kept is None
        with pytest.raises(RuntimeError, match="freed"):
            second.backward()


@BACKENDS
def test_results_with_a_common_operator_keep_nothing(backend: str) -> None:
    """A loss and what it was computed from, as models return them: memory must go with the loss's backward."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        logits = (x @ w).exp()
        return logits.square().sum(), logits

    run = torchjit.compile(f, backend=backend)
    for _ in range(2):
        loss, logits = run(torch.randn(3, 4), torch.randn(4, 5, requires_grad=True))
        node: Any = loss.grad_fn
        loss.backward()
        assert not hasattr(node, "kept")
        with pytest.raises(RuntimeError, match="freed"):
            logits.sum().backward()


_IMAGE, _WEIGHT = (2, 4, 9, 9), (6, 4, 3, 3)
LONE: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "product": (torch.bmm, [(2, 3, 4), (2, 4, 5)]),
    "product of rows": (lambda x, w: x @ w, [(3, 4, 5), (5, 6)]),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, padding=1), [_IMAGE, _WEIGHT, (6,)]),
    "transposed": (lambda x, w: F.conv_transpose1d(x, w, stride=2), [(2, 4, 9), (4, 3, 3)]),
    "resized": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [_IMAGE]),
    "attention": (F.scaled_dot_product_attention, [(1, 2, 8, 16)] * 3),
    "pooled": (lambda x: F.adaptive_avg_pool2d(x, 4), [_IMAGE]),
}


@pytest.mark.parametrize("name", LONE)
def test_one_operation_of_a_library_keeps_its_own_node(name: str) -> None:
    """What compiled code would call is what eager PyTorch calls: a node in Python would only cost time."""
    f, shapes = LONE[name]

    def use(run: Any) -> Any:
        inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
        out = run(*inputs)
        assert "CompiledGraph" not in type(out.grad_fn).__name__
        grads = torch.autograd.grad(out.square().sum(), inputs, create_graph=name == "product")
        if name == "product":
            grads += torch.autograd.grad(torch.stack([g.square().sum() for g in grads]).sum(), inputs)
        return out, grads

    compare(f, use, "inductor")


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (lambda x: x.relu(), [(8, 8)]),  # a kernel
        (lambda x, w, b: F.linear(x, w, b), [(4, 8), (8, 8), (8,)]),  # whose backward has one
        (lambda x, w, v: x @ w @ v, [(4, 8), (8, 8), (8, 8)]),
    ],
)
def test_what_is_more_than_one_operation_has_a_node_of_ours(f: Any, shapes: list[tuple[int, ...]]) -> None:
    def use(run: Any) -> Any:
        inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
        out = run(*inputs)
        if run is not f:
            assert "CompiledGraph" in type(out.grad_fn).__name__
        return out, torch.autograd.grad(out.square().sum(), inputs)

    compare(f, use, "inductor")


def test_one_operation_that_a_pass_of_the_user_changes_is_compiled() -> None:
    @torchjit_aot.graph_pass("nothing-1")
    def noop(graph: torch.fx.Graph) -> None:
        pass

    run = torchjit.compile(torch.bmm, options={"joint_custom_post_pass": noop})
    x, y = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 4, 5)
    assert "CompiledGraph" in type(run(x, y).grad_fn).__name__
