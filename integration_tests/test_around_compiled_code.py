"""What a program may do around compiled code: forward-mode differentiation, batched backwards, checkpoints, anomaly mode."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import torchjit

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "inductor"])


def f(x: Tensor) -> Tensor:
    return x.sin().softmax(-1) * x


def tangent_of(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor | None:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(run(forward_ad.make_dual(x, torch.arange(3.0)))).tangent


@BACKENDS
@pytest.mark.parametrize("compiled_before", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_tangents_of_forward_mode_are_not_lost(backend: str, compiled_before: bool, requires_grad: bool) -> None:
    x = torch.randn(3, requires_grad=requires_grad)
    run = torchjit.compile(f, backend=backend)
    if compiled_before:
        run(x)
    torch.testing.assert_close(tangent_of(run, x), tangent_of(f, x))
    torch.testing.assert_close(run(x), f(x))
    assert len(run.compiled.stats.regions) == 1  # type: ignore[attr-defined]


@BACKENDS
def test_backwards_under_vmap(backend: str) -> None:
    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        return f(x), x * x

    run = torchjit.compile(two, backend=backend)
    x = torch.randn(3, requires_grad=True)
    wanted = torch.autograd.functional.jacobian(two, x)
    found = torch.autograd.functional.jacobian(run, x, vectorize=True)
    torch.testing.assert_close(found, wanted)
    y = run(x)
    (batched,) = torch.autograd.grad(y[0], x, torch.eye(3), is_grads_batched=True, retain_graph=True)
    torch.testing.assert_close(batched, wanted[0])
    mapped = torch.func.vmap(lambda t: torch.autograd.grad(y[1], x, t, retain_graph=True)[0])(torch.eye(3))
    torch.testing.assert_close(mapped, wanted[1])


@BACKENDS
@pytest.mark.parametrize("reentrant", [False, True])
def test_compiled_code_in_a_checkpoint_outside(backend: str, reentrant: bool) -> None:
    """It is compiled below the checkpoint's hooks, which count what is saved."""
    x = torch.randn(3, requires_grad=True)
    run = torchjit.compile(f, backend=backend)
    for _ in range(2):
        (found,) = torch.autograd.grad(f(x).sum(), x)
        checkpoint(run, x, use_reentrant=reentrant).sum().backward()
        torch.testing.assert_close(x.grad, found)
        x.grad = None


@BACKENDS
def test_anomaly_mode_sees_the_run_and_not_the_trace(backend: str) -> None:
    run = torchjit.compile(lambda x: (x.sqrt() * 0).sum(), backend=backend)
    with warnings.catch_warnings(record=True) as said, torch.autograd.detect_anomaly():
        warnings.simplefilter("always")
        run(torch.ones(3, requires_grad=True)).backward()
        assert not [w for w in said if "Error detected" in str(w.message)]
        with pytest.raises(RuntimeError, match="returned nan values"):
            run(torch.zeros(3, requires_grad=True)).backward()
