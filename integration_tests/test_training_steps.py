"""What training code does around its graphs, against eager PyTorch: second derivatives, several losses, scaled gradients, layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchjit

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
