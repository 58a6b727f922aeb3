"""Inputs with a history that only some results of a graph have to do with: a backward of the others does not get there."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import pytest
import torch

import torchjit

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])


def _outcome(use: Any, f: Any) -> Any:
    torch.manual_seed(0)
    try:
        return use(f)
    except Exception as error:
        return type(error).__name__, str(error)[:50]


def compare(f: Any, use: Any, backend: str, **options: Any) -> Any:
    """What `use` gives with the compiled function is what it gives with the plain one."""
    torchjit.reset()
    want, have = _outcome(use, f), _outcome(use, torchjit.compile(f, backend=backend, fullgraph=True, **options))
    assert [t for t in _flat(have) if not isinstance(t, torch.Tensor)] == [
        t for t in _flat(want) if not isinstance(t, torch.Tensor)
    ]
    for a, b in zip(_flat(have), _flat(want), strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
    return want


def _flat(value: Any) -> list[Any]:
    return [t for item in value for t in _flat(item)] if isinstance(value, list | tuple) else [value]


@BACKENDS
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_state_whose_history_was_freed(backend: str, dynamic: bool) -> None:
    def step(state, w, x):
        return state * 0.9 + x.mean(), (x @ w).square().mean()

    def use(f: Any) -> Any:
        w, seen = torch.randn(4, 4, requires_grad=True), []
        for rows in (3, 3, 5, 6):
            state = torch.ones(4, requires_grad=True).exp()
            state.sum().backward()
            state, loss = f(state, w, torch.randn(rows, 4))
            loss.backward()
            seen.append(w.grad.clone())
        return [*seen, state.detach()]

    assert len(compare(step, use, backend, dynamic=dynamic)) == 5


@BACKENDS
def test_an_operator_without_a_derivative(backend: str) -> None:
    def f(distinct, w):
        return distinct * 2, (w * 3).sum()

    def use(f: Any) -> Any:
        w = torch.randn(3, requires_grad=True)
        more, loss = f(w.unique(), w)
        loss.backward()
        seen = w.grad.clone()
        try:
            more.sum().backward()
        except NotImplementedError as error:
            return seen, str(error)
        return None

    assert "_unique2" in compare(f, use, backend)[1]


@BACKENDS
def test_hooks_of_what_is_not_behind_the_loss(backend: str) -> None:
    def f(h, w):
        return h.sin() * w.detach(), (w * 3).sum()

    def use(f: Any) -> Any:
        calls: list[Any] = []
        x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        h = x * 2
        h.register_hook(lambda g: calls.append(g is None))
        more, loss = f(h, w)
        loss.backward()
        before = list(calls)
        more.sum().backward()
        return before, calls, x.grad, w.grad

    assert compare(f, use, backend)[:2] == ([], [False])


def _three(h, k, w):
    shared = w.exp()
    return h.sin() * shared.detach(), (k.cos() * h.detach()).sum(), (shared * w).sum(), shared.detach() * 2


@BACKENDS
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("between", ["nothing", "a write to h", "a write to k", "again", "retained", "all at once"])
def test_backwards_of_three_parts(backend: str, order: tuple[int, ...], between: str) -> None:
    def use(f: Any) -> Any:
        x, y, w = (torch.randn(3, requires_grad=True) for _ in range(3))
        h, k = x * 2, y * 3
        results = f(h, k, w)
        if between == "all at once":
            sum(r.sum() for r in results if r.requires_grad).backward()
        for n, place in enumerate(order if between != "all at once" else ()):
            results[place].sum().backward(retain_graph=between == "retained" or (place < 2 and n == 0))
            if n == 0 and between.startswith("a write"):
                with torch.no_grad():
                    (h if between.endswith("h") else k).add_(1)
        if between in ("again", "retained"):
            results[order[1]].sum().backward()
        return [t.grad for t in (x, y, w)], [r.detach() for r in results], [r.requires_grad for r in results]

    compare(_three, use, backend)


@BACKENDS
def test_an_argument_that_gets_a_history(backend: str) -> None:
    def f(h, w, buffer):
        buffer.mul_(w.sum())
        return h.sin(), buffer * 2

    def use(f: Any) -> Any:
        x, w, buffer = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True), torch.ones(3)
        h = x * 2
        calls: list[Any] = []
        h.register_hook(lambda g: calls.append(g is None))
        first, second = f(h, w, buffer)
        version = buffer._version
        (buffer.sum() + second.sum()).backward()
        first.sum().backward()
        return x.grad, w.grad, buffer.detach(), version, calls

    compare(f, use, backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_saved_goes_with_its_backward(backend: str, dynamic: bool) -> None:
    def f(h, k):
        left, right = h.exp(), k.exp()
        return left, right, left.detach() * right, right.detach() * left

    compiled = torchjit.compile(f, backend=backend, dynamic=dynamic, fullgraph=True)
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    for _ in range(2):
        results = compiled(x * 2, y * 3)
        alive = [weakref.ref(t) for t in results]
        results[0].sum().backward(retain_graph=True)
        results[3].sum().backward()
        with pytest.raises(RuntimeError, match="freed"):
            results[0].sum().backward()
        results[1].sum().backward()
        del results
        assert not any(reference() is not None for reference in alive)
        results = compiled(x * 2, y * 3)  # no backward: no cycle may hold them
        alive = [weakref.ref(t) for t in results]
        gc.disable()
        try:
            del results
            assert not any(reference() is not None for reference in alive)
        finally:
            gc.enable()


@BACKENDS
def test_a_result_of_random_numbers_without_a_gradient_has_a_history(backend: str) -> None:
    def f(a, w):
        return torch.normal(w, 1.0), w * a

    def use(g: Any) -> Any:
        a, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        results = g(a * 1, w)
        flags = [t.requires_grad for t in results]
        sum(results).sum().backward()
        return [*flags, a.grad, w.grad]

    assert compare(f, use, backend)[:2] == [True, True]


@BACKENDS
def test_a_size_among_the_results(backend: str) -> None:
    def f(x, y):
        z = x.clone()
        z[..., 0] = y[..., 1]
        u = y.half() * 2
        return z, u, u.view_as(u)

    def use(g: Any) -> Any:
        seen: list[Any] = []
        for rows in (2, 5, 7):
            x = torch.ones(rows, 4, requires_grad=True)
            y = x.unsqueeze(0)
            sum(t.float().sum() for t in g(y, y.view(-1))).backward()
            seen.append(x.grad)
        return seen

    assert len(compare(f, use, backend, dynamic=True)) == 3
