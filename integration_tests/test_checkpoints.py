"""`torch.utils.checkpoint` in compiled code: what a selective one keeps, and that effects of a region happen once."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from training_programs import seen_fallbacks
from training_programs_backward import LOG, note

import torchjit
from torchjit_core.events import listen

MM = torch.ops.aten.mm.default


def keep_products(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
    return op is MM


def every_second_product() -> Any:
    count: dict[bool, int] = defaultdict(int)

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        count[ctx.is_recompute] += op is MM  # torch 2.11 asks in the backward too
        keep = op is MM and count[ctx.is_recompute] % 2 == 0
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def region(t: Tensor, w: Tensor) -> Tensor:
    return ((t @ w).sin() @ w).relu() @ w


keep_all = functools.partial(create_selective_checkpoint_contexts, keep_products)
keep_sines = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.sin.default])


def plain(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(region, x * 2, w, use_reentrant=False)


def all_products(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(region, x * 2, w, use_reentrant=False, context_fn=keep_all)


def made_inside(x: Tensor, w: Tensor) -> Tensor:
    contexts = functools.partial(create_selective_checkpoint_contexts, keep_products)
    return checkpoint(region, x * 2, w, use_reentrant=False, context_fn=contexts)


def made_by_keyword(x: Tensor, w: Tensor) -> Tensor:
    contexts = functools.partial(create_selective_checkpoint_contexts, policy_fn_or_list=keep_products)
    return checkpoint(region, x * 2, w, use_reentrant=False, context_fn=contexts)


def made_by_lambda(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(
        region, x * 2, w, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(keep_products)
    )


def some_products(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(region, x * 2, w, use_reentrant=False, context_fn=every_second_product)


def sines(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(region, x * 2, w, use_reentrant=False, context_fn=keep_sines)


def train(f: Callable[..., Tensor]) -> list[Tensor]:
    torch.manual_seed(0)
    x, w = torch.randn(16, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    out = f(x, w)
    out.sum().backward()
    assert x.grad is not None and w.grad is not None
    return [out.detach(), x.grad, w.grad]


@pytest.mark.parametrize(
    ("f", "kept"),
    [
        (plain, 0), (all_products, 2), (made_inside, 2), (made_by_keyword, 2), (made_by_lambda, 2), (some_products, 1),
        (sines, 1),
    ],
)  # fmt: skip
def test_a_selective_checkpoint_keeps_what_its_policy_says(f: Callable[..., Tensor], kept: int) -> None:
    """Besides the region's inputs; the last product is its result."""
    tables: list[Any] = []
    compiled = torchjit.compile(f, backend="aot_eager", fullgraph=True)
    with listen(lambda kind, fields: tables.extend(fields["tensors"]) if kind == "saved_tensors" else None):
        seen = train(compiled)
    torch.testing.assert_close(seen, train(f))
    computed = [t["name"] for t in tables if t["why"] == "tagged to be saved"]
    assert len(computed) == kept and len(tables) == kept + 2


def test_a_policy_that_raises_is_eager_pytorchs_matter() -> None:
    def broken() -> Any:
        raise KeyError("no contexts")

    def f(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(region, x, w, use_reentrant=False, context_fn=broken)

    with pytest.raises(KeyError, match="no contexts"):
        train(torchjit.compile(f, backend="aot_eager"))


def test_wrapped_modules_are_one_graph() -> None:
    layers = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4)) for _ in range(2)]
    model = torch.nn.Sequential(
        checkpoint_wrapper(layers[0], context_fn=every_second_product), checkpoint_wrapper(layers[1])
    )
    x = torch.randn(3, 4)
    found = []
    for run in (model, torchjit.compile(model, backend="aot_eager")):
        model.zero_grad()
        with seen_fallbacks() as reasons:
            run(x).sum().backward()
        found.append([p.grad for p in model.parameters()])
    assert reasons == []
    torch.testing.assert_close(found[1], found[0])


def test_the_effects_of_a_region_happen_once() -> None:
    """Eager PyTorch repeats them when it computes the region again: such as statistics that move twice in one step."""
    norm = torch.nn.BatchNorm1d(4)
    seen: list[str] = []

    def inner(t: Tensor) -> Tensor:
        note(t)
        seen.append("call")
        return norm(t.sin()).exp()

    def f(x: Tensor) -> Tensor:
        return checkpoint(inner, x, use_reentrant=False)

    x = torch.randn(5, 4, requires_grad=True)
    LOG.clear()
    torchjit.compile(f, backend="aot_eager")(x).sum().backward()
    assert len(LOG) == len(seen) == 1
    assert int(norm.num_batches_tracked) == 1  # type: ignore[arg-type]
    torch.testing.assert_close(norm.running_mean, 0.1 * x.detach().sin().mean(0))
