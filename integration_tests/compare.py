"""Compare a compiled callable with eager: outputs, gradients, mutated inputs, exceptions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def _fresh(args: Any) -> Any:
    """A copy whose tensors are leaves with the same requires_grad."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone().requires_grad_(t.requires_grad), args)


def run(f: Callable[..., Any], args: tuple[Any, ...], backward: bool) -> dict[str, Any]:
    """Outputs, input gradients and inputs afterwards."""
    args = _fresh(args)
    out = f(*args)
    leaves = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    result: dict[str, Any] = {"out": pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), out)}
    if backward:
        torch.autograd.backward([t.float().pow(2).sum() for t in leaves if t.requires_grad])
        result["grads"] = [t.grad for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
    result["inputs"] = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), args)
    return result


def assert_same(got: Any, want: Any, **tolerances: float) -> None:
    """Same structure, same types of leaves, close tensors."""
    got_leaves, got_spec = pytree.tree_flatten(got)
    want_leaves, want_spec = pytree.tree_flatten(want)
    assert got_spec == want_spec
    for g, w in zip(got_leaves, want_leaves, strict=True):
        assert type(g) is type(w), (g, w)
        if isinstance(w, torch.Tensor):
            torch.testing.assert_close(g, w, **tolerances)
        else:
            assert g == w


def check(
    compiled: Callable[..., Any], eager: Callable[..., Any], *args: Any, backward: bool = False, **tol: float
) -> None:
    """Run both on copies of `args` and compare everything."""
    torch.manual_seed(7)
    want = run(eager, args, backward)
    torch.manual_seed(7)
    got = run(compiled, args, backward)
    assert_same(got, want, **tol)


def twin(module: torch.nn.Module) -> torch.nn.Module:
    """An independent copy with the same state."""
    return copy.deepcopy(module)
