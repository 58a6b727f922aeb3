"""16-bit types: which roundings of eager PyTorch a kernel keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import compiled, flat, sample
from test_inductor_triton_machine import code_of

SMALL = [torch.bfloat16, torch.float16]


def _operands(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randn(60, 50, generator=g) * 5).to(dtype), torch.randn(50, generator=g).to(dtype)
    b[0], b[1], a[1, 2], a[2], a[3] = 0, float("inf"), float("nan"), float("inf"), 0
    return a, b


def _same_bits(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], **settings: Any) -> None:
    graph = compiled(function, inputs, **settings)
    assert graph.kernels
    assert "aten." not in graph.source
    for have, want in zip(graph(*inputs), flat(function(*inputs)), strict=True):
        torch.testing.assert_close(have, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_quotients_are_rounded_before_they_become_whole(mode: str, dtype: torch.dtype) -> None:
    _same_bits(lambda a, b: torch.div(a, b, rounding_mode=mode), _operands(dtype))
    _same_bits(lambda a, b: torch.div(a, 0.3, rounding_mode=mode), _operands(dtype))


def test_the_steps_of_a_rounded_quotient_are_machine_code() -> None:
    inputs = (((60, 50), torch.bfloat16), ((50,), torch.bfloat16))
    assert code_of(lambda a, b: torch.div(a, b, rounding_mode="trunc"), *inputs)


@pytest.mark.parametrize("dtype", SMALL)
def test_numbers_are_compared_and_divided_by_in_the_type_of_the_tensor(dtype: torch.dtype) -> None:
    a, b = _operands(dtype)
    a[5:9] = 0.3
    _same_bits(lambda a, b: (a == 0.3, a < 0.3, torch.remainder(a, 0.3), torch.fmod(a, 0.7), b >= 0.3), (a, b))


@pytest.mark.parametrize("dtype", SMALL)
def test_each_result_is_rounded_where_that_is_asked_for(dtype: torch.dtype) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        return ((a / b).floor() + (a * b).round() - a.exp().sigmoid() * b).sin(), (a * a - b).sum(1)

    inputs = _operands(dtype)
    _same_bits(function, inputs, emulate_precision_casts=True)
    fast = compiled(function, inputs)(*inputs)[0]
    assert not torch.equal(fast.nan_to_num(), function(*inputs)[0].nan_to_num())  # float32 between the operations


@pytest.mark.parametrize("dtype", SMALL)
def test_sums_are_rounded_before_the_same_kernel_reads_them(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> Any:
        running = x.cumsum(1)
        return running.argmin(1), running * 3, x - x.sum(1, keepdim=True)

    x = torch.randint(-300, 200, (20, 40), generator=torch.Generator().manual_seed(0)).to(dtype)
    _same_bits(function, (x,), emulate_precision_casts=True)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_scattered_sums_are_wide(dtype: torch.dtype) -> None:
    """Eager's kernels add up in float32; one by one in bfloat16, 600 ones are 256."""
    places, ones = torch.zeros(600, dtype=torch.int64), torch.ones(600, 3, dtype=dtype)

    def function(places: torch.Tensor, ones: torch.Tensor) -> Any:
        base = torch.zeros(2, 3, dtype=dtype)
        rows = places[:, None].expand(600, 3)
        return (
            base.scatter_add(0, rows, ones),
            base.index_add(0, places, ones),
            (base + 1).scatter_reduce(0, rows, ones, "sum"),
        )

    _same_bits(function, (places, ones))
    (gradient,) = compiled(lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 2, -1, False), (ones, places))(
        ones, places
    )
    assert gradient[0].tolist() == [600.0] * 3


_PLAIN: dict[str, Any] = {
    "numbers": lambda x: [x + 0.1, 0.1 - x, x - 1001, x + 1 / 3],
    "tensors of one element": lambda x: [x + torch.tensor(0.1), x - torch.tensor(1.7), x * torch.tensor(0.1), x > torch.tensor(0.1)],
    "integers": lambda x: [x * (torch.arange(128) * 17), x + torch.arange(128) * 17],
    "powers": lambda x: [x**2, x**3, x**-2, x.abs() ** 1.7, 0.3**x, x.abs() ** 0.5],
    "products": lambda x: [x * 0.1, x / 1.7, 1.7 / x],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_numbers_are_rounded_where_eager_rounds_them(dtype: torch.dtype) -> None:
    """Additions and powers take a number in the type of the result, products and quotients take it in float32."""
    x = sample(16, 128, low=-9, high=9).to(dtype)

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [made for make in _PLAIN.values() for made in make(x)]

    # Quotients of numbers are two operations: rounded between them.
    _same_bits(fn, (x,), emulate_precision_casts=True)


@pytest.mark.parametrize("alpha", [0.1, -1.7])
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_products_with_alpha_are_rounded_once_or_twice(dtype: torch.dtype, alpha: float) -> None:
    """Eager's kernels without vectors round the product, those with vectors do not."""
    x = sample(16, 128, low=-9, high=9).to(dtype)
    y, number = x.flip(0), torch.tensor(alpha).to(dtype).double()
    (have,) = compiled(lambda x, y: torch.add(x, y, alpha=alpha), (x, y))(x, y)
    exact, step = x.double() + number * y.double(), torch.finfo(dtype).eps / 2
    assert ((have.double() - exact).abs() <= step * (exact.abs() + (number * y.double()).abs()) * 1.01).all()


@pytest.mark.parametrize("other", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_tensors_of_one_element_are_rounded_where_eager_rounds_them(dtype: torch.dtype, other: torch.dtype) -> None:
    """A tensor with dimensions decides the type; only the second operand of a product or quotient keeps its own."""
    y = torch.tensor(4099.3).to(other)
    near = y.to(dtype).reshape(1)
    x = torch.cat([near, near + 32, near - 32, sample(61, low=-9, high=9).to(dtype)])

    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        made = [x == y, y != x, x <= y, y < x, x >= y, y > x, x + y, y - x, x * y, y * x, x / y, y / x]
        made += [
            torch.fmod(x, y),
            torch.fmod(y, x),
            torch.remainder(x, y),
            torch.maximum(x, y),
            torch.where(x > 0, x, y),
        ]
        return [*made, torch.hypot(x, y), torch.atan2(y, x)]

    _same_bits(fn, (x, y), emulate_precision_casts=True)


@pytest.mark.parametrize("count", [3, 64])
def test_zero_keeps_its_sign_at_a_limit(count: int) -> None:
    x = torch.tensor([0.0, -0.0, float("nan"), -1.0] * count)

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [F.relu(x), x.clamp_min(0), x.clamp_max(0), F.relu6(x), x.clamp(-0.0, 1), F.hardtanh(x, 0, 6)]

    for have, want in zip(compiled(fn, (x,))(x), fn(x), strict=True):
        assert torch.equal(have.signbit() & (have == 0), want.signbit() & (want == 0))
        torch.testing.assert_close(have, want, rtol=0, atol=0, equal_nan=True)
