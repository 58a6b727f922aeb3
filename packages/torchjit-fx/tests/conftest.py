"""Fixtures of the tensor domain's tests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from torchjit_fx.testing import Captured, capture_by_proxy

Check = Callable[..., Captured]


def _twins(args: Any) -> Any:
    """An independent copy of the arguments, with the same tensor shared where it was shared."""
    memo: dict[int, Any] = {}

    def twin(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in memo:
            memo[id(x)] = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad)
        return memo[id(x)]

    return pytree.tree_map(twin, args)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _same(got: Any, want: Any) -> None:
    got_leaves, got_spec = pytree.tree_flatten(got)
    want_leaves, want_spec = pytree.tree_flatten(want)
    assert len(got_leaves) == len(want_leaves), (got_spec, want_spec)
    for a, b in zip(got_leaves, want_leaves, strict=True):
        if isinstance(b, torch.Tensor):
            assert isinstance(a, torch.Tensor)
            assert (a.dtype, a.device, a.requires_grad, a.stride()) == (b.dtype, b.device, b.requires_grad, b.stride())
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        else:
            assert type(a) is type(b) and a == b


def _backward(roots: list[torch.Tensor]) -> None:
    sums = [(t.abs() if t.is_complex() else t).sum() for t in roots]
    torch.autograd.backward(torch.stack([s.double() for s in sums]).sum())


def check_program(fn: Callable[..., Any], *args: Any, calls: Any = (), **options: Any) -> Captured:
    """Capture `fn(*args)` and compare the graph with eager: results, gradients, written inputs, random state.

    Args:
        calls: further argument tuples, for which the guards must hold and the graph must agree too.
    """
    captured = capture_by_proxy(fn, *_twins(args), **options)
    for arguments in (args, *calls):
        mine, theirs = _twins(arguments), _twins(arguments)
        assert captured.check(*mine) or options.get("static_paths"), "a guard does not hold"
        torch.manual_seed(0)
        got = captured(*mine)
        torch.manual_seed(0)
        want = fn(*theirs)
        _same(got, want)
        roots = [t for t in _tensors(want) if t.requires_grad and t.grad_fn is not None]
        if roots:
            _backward(roots)
            _backward([t for t in _tensors(got) if t.requires_grad and t.grad_fn is not None])
        for a, b in zip(_tensors(mine), _tensors(theirs), strict=True):
            _same(a.detach(), b.detach())
            assert (a.grad is None) == (b.grad is None)
            if b.grad is not None:
                torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=0, equal_nan=True)
    return captured


@pytest.fixture
def check() -> Check:
    """See `check_program`."""
    return check_program


@pytest.fixture
def twin() -> Callable[[Any], Any]:
    """Deep copy of a module."""
    return copy.deepcopy


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1234)
