"""Symbolic sizes: graphs that stay right for other sizes, and guards that say for which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from torchjit_core.expr import eq, symbol
from torchjit_fx.symbols.numbers import SymbolicNumbers
from torchjit_fx.testing import Captured, SimpleSizes, capture_by_proxy

Check = Callable[..., Captured]


def r(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_(grad)


def only(*paths: str) -> SimpleSizes:
    """The sizes at these paths, and every stride that follows from them, are symbols."""
    return SimpleSizes(lambda path: str(path) in paths)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "elementwise": (lambda x, y: (x + y).relu() * 2, lambda n: (r(n, 4), r(n, 4, grad=True))),
    "shape_arithmetic": (
        lambda x: (x.view(x.shape[0] * 4), x.reshape(-1, 2), x.shape[0] // 2, x.size(0) % 3, x.numel()),
        lambda n: (r(n, 4, grad=True),),
    ),
    "sizes_in_math": (lambda x: x.sum() / x.shape[0] + x.shape[0] ** 2 - (1.0 / x.shape[0]), lambda n: (r(n, 4),)),
    "slices": (lambda x: (x[: x.shape[0] // 2], x[1:], x[-1], x[:, 1:3]), lambda n: (r(n, 4, grad=True),)),
    "cat_and_sizes": (
        lambda x: (torch.cat([x, x]).shape[0], torch.cat([x, x, x]).view(3, x.shape[0], 4)),
        lambda n: (r(n, 4),),
    ),
    "batch_of_attention": (
        lambda x, w: F.scaled_dot_product_attention(*(x @ w).view(x.shape[0], 6, 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)),
        lambda n: (r(n, 6, 4), r(4, 12, grad=True)),
    ),
    "convolution": (
        lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2).flatten(1).mean(0),
        lambda n: (r(n, 3, 8, 8), r(2, 3, 3, 3, grad=True)),
    ),
    "new_tensors": (lambda x: x.new_zeros(x.shape[0], 2) + x.new_ones(x.size()).sum(1, keepdim=True), lambda n: (r(n, 4),)),
    "in_place": (lambda x: x.mul_(2).add_(x.shape[0]), lambda n: (r(n, 4),)),
    "transposed": (lambda x: (x.t() @ x, x.t().contiguous(), x.unsqueeze(1).expand(-1, 3, -1)), lambda n: (r(n, 4),)),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), lambda n: (r(n, 4, grad=True), torch.arange(n) % 4)),
    "norms": (lambda x, w: F.layer_norm(x, (4,), w).softmax(0), lambda n: (r(n, 4), r(4, grad=True))),
    "embedding": (lambda i, w: F.embedding(i, w).sum(1), lambda n: (torch.arange(n * 3).view(n, 3) % 5, r(5, 4, grad=True))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_batch_size_is_free(name: str, check: Check) -> None:
    fn, make = PROGRAMS[name]
    sizes = only("x.size(0)", "y.size(0)", "i.size(0)", "t.size(0)")
    check(fn, *make(6), sizes=sizes, calls=[make(9), make(14), make(5)])


def test_every_dimension_free(check: Check) -> None:
    check(
        lambda x, y: F.gelu(x @ y.transpose(-1, -2)).view(-1).sum() + x.shape[-1],
        r(2, 3, 4), r(2, 5, 4), sizes=SimpleSizes(), calls=[(r(4, 7, 6), r(4, 2, 6))],
    )  # fmt: skip


def test_branch_on_size_is_guarded(check: Check) -> None:
    captured = check(lambda x: x * 2 if x.shape[0] > 4 else x - 1, r(6, 2), sizes=only("x.size(0)"), calls=[(r(5, 2),)])
    assert not captured.check(r(4, 2))
    assert not captured.check(r(6, 3))


def test_layout_of_a_symbolic_input_is_guarded(check: Check) -> None:
    captured = check(lambda x: x + 1, r(6, 4), sizes=SimpleSizes(), calls=[(r(3, 5),)])
    assert not captured.check(r(4, 6).t())


def test_transposed_symbolic_input(check: Check) -> None:
    fn: Callable[[Any], Any] = lambda x: (x + 1, x.contiguous(), x.t().view(-1))
    captured = capture_by_proxy(fn, r(4, 6).t(), sizes=SimpleSizes())
    x = r(3, 5).t()
    assert captured.check(x)
    for got, want in zip(captured(x), fn(x), strict=True):
        assert got.stride() == want.stride() and torch.equal(got, want)
    assert not captured.check(r(5, 3))


def test_int_arguments_are_graph_inputs(check: Check) -> None:
    captured = check(lambda x, n: x * n + n // 2, r(3), 7, sizes=only("n"), calls=[(r(3), 12)])
    assert captured.gm is not None
    assert "s0" in [node.name for node in captured.gm.graph.nodes if node.op == "placeholder"]


def test_symbol_placeholders_carry_their_value(check: Check) -> None:
    captured = check(lambda x: x.view(x.shape[0] * 2, 2), r(6, 4), sizes=only("x.size(0)"))
    assert captured.gm is not None
    number, tensor = (node for node in captured.gm.graph.nodes if node.op == "placeholder")
    assert isinstance(number.meta["val"], torch.SymInt) and str(number.meta["path"]) == "x.size(0)"
    seen: Any = number.meta["val"].node
    assert tensor.meta["val"].shape[0].node.expression is seen.expression


def test_concrete_fixes_the_value() -> None:
    def fn(x: Any) -> Any:
        return x.repeat(x.tracer.domain.concrete(x.shape[0].leaf, x.tracer.context))

    captured = capture_by_proxy(fn, r(6), sizes=only("x.size(0)"))
    assert captured.check(r(6)) and not captured.check(r(7))


@given(
    st.lists(st.sampled_from(["+", "-", "*", "//", "%", "max", "min"]), min_size=1, max_size=5),
    st.lists(st.integers(1, 7), min_size=5, max_size=5),
    st.integers(2, 40),
    st.integers(2, 40),
)
@settings(max_examples=60, deadline=None)
def test_symint_arithmetic_is_python_arithmetic(ops: list[str], numbers: list[int], first: int, second: int) -> None:
    """A SymInt program evaluated at other values equals the program over ints."""
    sizes = SimpleSizes()
    a, b = symbol("a"), symbol("b")
    sizes.values.update({s: 12 for s in (*a.symbols, *b.symbols)})
    known = SymbolicNumbers(sizes, lambda env: None)

    def run(x: Any, y: Any) -> Any:
        steps: dict[str, Callable[[Any, int], Any]] = {
            "+": lambda x, k: x + y, "-": lambda x, k: x - k, "*": lambda x, k: x * k, "//": lambda x, k: x // k,
            "%": lambda x, k: x % k + y, "max": lambda x, k: torch.sym_max(x, y), "min": lambda x, k: torch.sym_min(x, k),
        }  # fmt: skip
        for op, k in zip(ops, numbers, strict=False):
            x = steps[op](x, k)
        return x

    value = run(known.sym_int(a), known.sym_int(b))
    env = {next(iter(a.symbols)): first, next(iter(b.symbols)): second}
    expression = known.expression(value) if isinstance(value, torch.SymInt) else value
    got = expression if isinstance(expression, int) else expression.evaluate(env)
    assert got == run(first, second)


def test_symbol_conditions_and_views() -> None:
    sizes = SimpleSizes()
    n = symbol("n")
    sizes.values[next(iter(n.symbols))] = 6
    sizes._sources[next(iter(n.symbols))] = None  # type: ignore[assignment]
    known = SymbolicNumbers(sizes, lambda env: None)
    value = known.sym_int(n)
    assert str(value.node.expr) == "n" and value.node.hint == 6
    assert (value > 1) is True  # by the symbol's own lower bound: no guard
    assert not sizes._conditions
    assert bool(value == 6) and sizes._conditions == [(eq(n, 6), None)]
    assert isinstance(value / 4, torch.SymFloat)
    assert str((value // 4 + value % 4).node) in ("n//4 + n%4", "(n//4) + (n%4)", "n//4 + (n % 4)", str(n // 4 + n % 4))
