"""Grad mode and autocast inside a region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchjit_core.paths import Arg
from torchjit_fx import FxSettings, TensorDomain
from torchjit_fx.modes import autocast_nesting
from torchjit_fx.testing import Captured, StaticSizes, _Context, capture_by_proxy

Check = Callable[..., Captured]


def r(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_(grad)


def _domain(seen: list[Any]) -> TensorDomain:
    def compile_graph(gm: Any, examples: Any) -> Any:
        seen.append(gm)
        return gm

    return TensorDomain(compile_graph, StaticSizes(), FxSettings())


def _mode_calls(captured: Captured) -> list[Any]:
    assert captured.gm is not None
    return [n.args[0] for n in captured.gm.graph.nodes if n.target is torch._C._set_grad_enabled]


def test_no_grad_block_is_in_the_graph(check: Check) -> None:
    def fn(x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        return y, x * 3, y.requires_grad

    assert _mode_calls(check(fn, r(3, grad=True))) == [False, True]


def test_blocks_without_operations_leave_no_nodes(check: Check) -> None:
    def fn(x: Any) -> Any:
        with torch.no_grad():
            shape = x.shape
        return x + shape[0]

    assert _mode_calls(check(fn, r(3, grad=True))) == []


def test_the_mode_is_restored_after_the_last_operation(check: Check) -> None:
    def fn(x: Any) -> Any:
        with torch.no_grad():
            return x * 2

    assert _mode_calls(check(fn, r(3, grad=True))) == [False, True]
    assert torch.is_grad_enabled()


def test_nested_blocks(check: Check) -> None:
    def fn(x: Any) -> Any:
        with torch.no_grad():
            with torch.enable_grad():
                with torch.no_grad():
                    a = x * 2
                b = x * 3
        return a, b, x * 4

    assert _mode_calls(check(fn, r(3, grad=True))) == [False, True]


def test_capture_under_no_grad(check: Check) -> None:
    with torch.no_grad():
        captured = check(lambda x: x * 2, r(3, grad=True))
    assert _mode_calls(captured) == []


def test_region_that_ends_in_another_mode() -> None:
    """The epilogue leaves the process as the program did."""

    def fn(x: Any) -> Any:
        torch._C._set_grad_enabled(False)
        return x * 2

    captured = capture_by_proxy(fn, r(3, grad=True))
    assert torch.is_grad_enabled()
    try:
        assert not captured(r(3, grad=True)).requires_grad
        assert not torch.is_grad_enabled()
    finally:
        torch._C._set_grad_enabled(True)


def test_a_graph_that_raises_restores_the_mode() -> None:
    def fn(x: Any, i: Any) -> Any:
        with torch.no_grad():
            y = x[i]
        return y * x

    captured = capture_by_proxy(fn, r(3), torch.tensor([0, 1, 2]))
    with pytest.raises(IndexError):
        captured(r(3), torch.tensor([0, 1, 7]))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("cache", [True, False])
def test_autocast_as_python_enters_it(cache: bool) -> None:
    """The calls that `torch.autocast.__enter__` and `__exit__` make."""
    seen: list[Any] = []
    domain, context = _domain(seen), _Context()
    call: Callable[..., Any] = lambda fn, *args: domain.call(fn, args, {}, context)
    x, w = r(4, 8), r(8, 8, grad=True)
    leaf, weight = (domain.input(t, Arg.of(i, "xw"[i]), context) for i, t in enumerate((x, w)))
    before = (
        call(torch.is_autocast_enabled, "cpu"),
        call(torch.get_autocast_dtype, "cpu"),
        torch.is_autocast_cache_enabled(),
    )
    nesting = autocast_nesting()
    call(torch.set_autocast_enabled, "cpu", True)
    call(torch.set_autocast_dtype, "cpu", torch.bfloat16)
    assert call(torch.autocast_increment_nesting) == nesting + 1
    call(torch.set_autocast_cache_enabled, cache)
    assert call(torch.is_autocast_enabled, "cpu") and not torch.is_autocast_enabled("cpu")
    half = call(torch.matmul, leaf, weight)
    assert domain.getattr(half, "dtype", context) is torch.bfloat16
    assert call(torch.autocast_decrement_nesting) == nesting
    call(torch.clear_autocast_cache)
    call(torch.set_autocast_enabled, "cpu", before[0])
    call(torch.set_autocast_dtype, "cpu", before[1])
    call(torch.set_autocast_cache_enabled, before[2])
    full = call(torch.matmul, leaf, weight)
    code = domain.compile_region([half, full], context)
    assert code.epilogue == () and code.target is not None
    got = code.target(*(path.resolve((x, w)) for path in code.inputs))
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=cache):
        want = x @ w
    assert got[0].dtype is torch.bfloat16 and torch.equal(got[0], want)
    assert torch.equal(got[1], x @ w)
    assert not torch.is_autocast_enabled("cpu")


def test_mode_is_part_of_the_metadata_key() -> None:
    for _ in range(2):
        assert capture_by_proxy(lambda x: x.cosh().requires_grad, r(3, grad=True))(r(3, grad=True)) is True
        with torch.no_grad():
            assert capture_by_proxy(lambda x: x.cosh().requires_grad, r(3, grad=True))(r(3, grad=True)) is False


def test_default_dtype_is_part_of_the_metadata_key() -> None:
    fn: Callable[[Any], Any] = lambda x: torch.ones(3).dtype
    assert capture_by_proxy(fn, r(3))(r(3)) is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert capture_by_proxy(fn, r(3))(r(3)) is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_inference_mode(check: Check) -> None:
    with torch.inference_mode():
        x = r(3)
        captured = capture_by_proxy(lambda x: (x * 2, x.view(-1).add_(1), torch.is_inference_mode_enabled()), x)
        got = captured(x)
        assert got[0].is_inference() and got[2] is True
    assert not captured.check(r(3))
