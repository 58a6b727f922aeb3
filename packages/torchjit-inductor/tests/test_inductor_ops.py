"""Every lowering against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import check, compiled, sample

aten = torch.ops.aten
SPECIAL = torch.tensor(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        float("inf"),
        float("-inf"),
        float("nan"),
        1e-40,
        -1e-40,
        88.0,
        -88.0,
        1e30,
        0.3,
        2.5,
        -2.5,
        0.5,
        1.5,
    ]
)

UNARY = """exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma
sqrt rsqrt reciprocal sigmoid floor ceil trunc round neg abs sign sgn relu silu square isnan isinf signbit logical_not
hardsigmoid hardswish softplus nan_to_num""".split()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_unary_floats(dtype: torch.dtype) -> None:
    """All unary ops in one graph, on ordinary and special values."""

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [getattr(aten, name)(x) for name in UNARY]

    special = SPECIAL.to(dtype)
    tol = {torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-5}, torch.float16: {"rtol": 2e-3, "atol": 1e-4}}.get(dtype)
    for x in (torch.cat([sample(1100, low=-6, high=6).to(dtype), special]), special):
        check(fn, (x,), tol=tol)


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "log", "sigmoid", "expm1"])
def test_accuracy_in_ulps(name: str) -> None:
    """Vector polynomials against float64, within 4 units in the last place of the exact result."""
    op = getattr(aten, name)
    x = torch.cat(
        [
            torch.linspace(-20, 20, 40001),
            torch.linspace(-1, 1, 20001),
            torch.logspace(-38, 1.5, 5000),
            -torch.logspace(-38, 1.5, 5000),
        ]
    )
    x = x[x > 0] if name == "log" else x
    graph = check(op, (x,))
    got, exact = graph(x)[0].double(), op(x.double())
    spacing = torch.maximum(exact.abs() * 2.0**-23, torch.tensor(1.5e-45, dtype=torch.float64))
    assert ((got - exact).abs() / spacing).max() < 4


INTS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]


def _limiting(low: int | None, high: int | None) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    return lambda x: [x.clamp(low, high)]


def test_limits_that_the_dtype_cannot_hold_are_eagers() -> None:
    x = torch.arange(0, 256, 5, dtype=torch.uint8)
    for limits in ((-5, 40), (3, 300), (-5, None), (None, 260)):
        limit = _limiting(*limits)
        try:
            limit(x)
        except RuntimeError:  # as in torch 2.11
            with pytest.raises(RuntimeError, match="without overflow"):
                compiled(limit, (x,))(x)
        else:
            check(limit, (x,), aten=None)


@pytest.mark.parametrize("name", ["round", "floor", "ceil", "trunc"])
def test_rounded_integers_have_memory_of_their_own(name: str) -> None:
    x = torch.arange(4)

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        made = x + 1
        return [getattr(aten, name)(x), made, getattr(aten, name)(made)]

    check(fn, [x])


@pytest.mark.parametrize("dtype", [*INTS, torch.bool], ids=str)
def test_integers_and_bool(dtype: torch.dtype) -> None:
    x, y = sample(4, 19, dtype=dtype, low=-100, high=100), sample(4, 19, dtype=dtype, low=-100, high=100, seed=1)
    arithmetic = dtype != torch.bool

    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        out = [
            x & y,
            x | y,
            x ^ y,
            ~x,
            x == y,
            x != y,
            x < y,
            x <= y,
            x > y,
            x >= y,
            x.float(),
            x.to(torch.int64),
            x.bool(),
            torch.maximum(x, y),
            torch.minimum(x, y),
            torch.where(x > y, x, y),
            torch.exp(x),
            x / 2,
            x * 2.5,
            x + y,
            x * y,
        ]
        if arithmetic:
            out += [
                x - y,
                x * 7,
                x + 300,
                x.abs(),
                x.sign(),
                x.clamp(-3, 50) if dtype != torch.uint8 else x.clamp(3, 50),
                x.float().to(torch.int32),
                x**2,
                x.to(torch.int8),
                x.to(torch.uint8),
            ]
            out += [-x]
        return out

    check(fn, (x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_binary_floats(dtype: torch.dtype) -> None:
    x = torch.cat([sample(300).to(dtype), SPECIAL.to(dtype)])
    y = torch.cat([sample(300, seed=3).to(dtype), SPECIAL.flip(0).to(dtype)])

    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            x + y,
            x - y,
            x * y,
            x / y,
            torch.maximum(x, y),
            torch.minimum(x, y),
            torch.fmax(x, y),
            torch.fmin(x, y),
            torch.atan2(x, y),
            torch.copysign(x, y),
            torch.hypot(x, y),
            x == y,
            x < y,
            x >= y,
            torch.add(x, y, alpha=2.5),
            torch.sub(x, y, alpha=3),
            torch.rsub(x, 2.0),
            torch.pow(x, y),
            x**2,
            x**3,
            x**0.5,
            x**-1,
            x**-0.5,
            2.0**x,
            torch.where(x > y, x, 0.5),
            torch.lerp(x, y, 0.3),
            torch.addcdiv(x, y, x, value=2),
            torch.logical_and(x, y),
            torch.logical_or(x, y),
            x.clamp(-1, 1),
            x.clamp(min=y),
            x.masked_fill(y > 0, -1.0),
        ]

    tol = {"rtol": 1.6e-2, "atol": 1e-2} if dtype == torch.bfloat16 else None
    check(fn, (x, y), tol=tol)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("divisor", [1, 3, 16, 127])
def test_integers_divided_by_a_positive_number(dtype: torch.dtype, divisor: int) -> None:
    info = torch.iinfo(dtype)
    edges = torch.tensor([info.min, info.min + 1, info.max - 1, info.max], dtype=dtype)
    x = torch.cat([sample(203, low=0 if info.min == 0 else -120, high=120).to(dtype), edges])

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x // divisor,
            x % divisor,
            torch.div(x, divisor, rounding_mode="trunc"),
            torch.fmod(x, divisor),
            x[3] // divisor,
            x[-4] % divisor,
        ]

    check(fn, (x,))


def test_remainders_and_fused_products() -> None:
    """Values that overflow or are denormal are left out: there eager's own scalar and vector code disagree."""
    x, y = sample(400, low=-50, high=50), sample(400, seed=3, low=-5, high=5)
    x[:4], y[:4] = torch.tensor([float("inf"), 1.0, -0.0, 7.0]), torch.tensor([1.0, float("inf"), 3.0, 0.0])

    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        modes = [torch.div(x, y, rounding_mode=m) for m in ("floor", "trunc")]
        return [
            torch.remainder(x, y),
            torch.fmod(x, y),
            torch.remainder(x, 3.0),
            torch.addcmul(x, y, y, value=0.5),
            *modes,
        ]

    check(fn, (x, y))


def test_mixed_dtypes_promote() -> None:
    def fn(
        f: torch.Tensor, d: torch.Tensor, i: torch.Tensor, b: torch.Tensor, h: torch.Tensor, s: torch.Tensor
    ) -> list[torch.Tensor]:
        return [
            f + d,
            f * i,
            i + b,
            b * f,
            h + f,
            h * i,
            f + s,
            i * s,
            i > 2.5,
            f > i,
            i == f,
            h * 2.5,
            b + 1,
            b + 1.5,
            i / 3,
            torch.where(b, f, d),
            h + s,
            torch.maximum(f, d),
        ]

    check(
        fn,
        (
            sample(33),
            sample(33, dtype=torch.float64),
            sample(33, dtype=torch.int32),
            sample(33, dtype=torch.bool),
            sample(33, dtype=torch.bfloat16),
            torch.tensor(2.5, dtype=torch.float64),
        ),
    )


ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "gelu": lambda x, g: [
        F.gelu(x),
        F.gelu(x, approximate="tanh"),
        aten.gelu_backward(g, x),
        aten.gelu_backward(g, x, approximate="tanh"),
    ],
    "silu": lambda x, g: [F.silu(x), aten.silu_backward(g, x)],
    "relu": lambda x, g: [F.relu(x), aten.threshold_backward(g, x, 0), aten.threshold(x, 0.5, 7.0)],
    "leaky": lambda x, g: [F.leaky_relu(x, 0.1), aten.leaky_relu_backward(g, x, 0.1, False)],
    "elu": lambda x, g: [F.elu(x), F.elu(x, 0.7), F.selu(x)],
    "hard": lambda x, g: [
        F.hardtanh(x),
        aten.hardtanh_backward(g, x, -1.0, 1.0),
        F.relu6(x),
        F.hardswish(x),
        F.hardsigmoid(x),
    ],
    "saved": lambda x, g: [aten.tanh_backward(g, x), aten.sigmoid_backward(g, x)],
    "softplus": lambda x, g: [F.softplus(x), F.softplus(x, 2, 5)],
    "mse": lambda x, g: [
        aten.mse_loss(x, g, 0),
        aten.mse_loss_backward(g, x, g, 0),
        aten.mse_loss_backward(g[0, 0], x, g, 1),
    ],
    "dropout": lambda x, g: [aten.native_dropout_backward(g, x > 0, 1.25)],
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_activations(name: str, dtype: torch.dtype) -> None:
    x, g = sample(17, 37).to(dtype), sample(17, 37, seed=5).to(dtype)
    tol = {"rtol": 1.6e-2, "atol": 1e-2} if dtype == torch.bfloat16 else None
    check(ACTIVATIONS[name], (x, g), tol=tol, aten=None if name in ("mse", "elu") else 0)


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "reshape": lambda x: [x.exp().reshape(6, 10), x.reshape(-1), (x + 1).reshape(2, 3, 2, 5), x.view(2, 30) * 2],
    "permute": lambda x: [
        x.permute(2, 0, 1) + 1,
        x.exp().permute(1, 2, 0),
        x.transpose(0, 1).contiguous(),
        (x * 2).transpose(1, 2),
    ],
    "permute_reshape": lambda x: [
        x.permute(2, 0, 1).reshape(5, 12) + 1,
        (x + 1).permute(1, 0, 2).reshape(4, 15),
        x.transpose(0, 2).reshape(-1),
    ],
    "expand": lambda x: [
        x[:, :1].expand(-1, 7, -1) * 2,
        x.exp().unsqueeze(0).expand(3, -1, -1, -1) + 0,
        x.sum(-1, keepdim=True).expand_as(x),
    ],
    "squeeze": lambda x: [
        x[:, :1].squeeze(1) + 1,
        x.unsqueeze(-1).squeeze() + 1,
        x.unsqueeze(1) + 1,
        x.exp().unsqueeze(-2),
    ],
    "slice": lambda x: [
        x[1:],
        x[:, 1:3] + 1,
        x[..., ::2] * 2,
        x[:, -2:],
        x.exp()[1:, :, 3:],
        x[:, 5:],
        x[0],
        x[:, -1] + x[:, 0],
        x.exp()[..., 2],
    ],
    "split": lambda x: (
        [a + 1 for a in torch.split_with_sizes(x, [2, 2, 1], 2)]
        + [a * 2 for a in x.exp().chunk(2, 1)]
        + [a + 0 for a in x.unbind(0)]
        + list(torch.split_with_sizes(x, [1, 3], 1))
    ),
    "cat": lambda x: [
        torch.cat([x, x.exp(), x[:1]], 0),
        torch.cat([x[..., 2:], x[..., :2].neg()], -1),
        torch.cat([x.int(), x]),
        torch.stack([x, x + 1], 1),
        torch.cat([x, torch.ones(0)]),
    ],
    "pad": lambda x: [
        F.pad(x, (1, 2)),
        F.pad(x + 1, (0, 0, 2, 1), value=3.5),
        F.pad(x, (-1, -1)),
        F.pad(x.exp(), (1, 0, -1, 2, 1, 1)) + 1,
    ],
    "tri": lambda x: [x.tril(), x.exp().triu(1), x.tril(-1) + x.triu(2)],
    "flip": lambda x: [x.flip(0, 2), x.flip(-1) + 1, x.diagonal(dim1=1, dim2=2) + 1, x.repeat(2, 1, 3)],
    "scatters": lambda x: [
        aten.slice_backward(x, [3, 9, 5], 1, 2, 6, 1),
        aten.select_backward(x, [3, 4, 7, 5], 2, 3),
        aten.select_scatter(x, x[:, 0] * 9, 1, 2),
        aten.slice_scatter(x, x[:, :2].exp(), 1, 1, 3),
        aten.select_backward(x, [3, 4, 2, 5], 2, -1),
    ],
    "clone": lambda x: [
        x.clone(),
        x.permute(2, 1, 0).clone(),
        x.transpose(0, 1).clone(memory_format=torch.contiguous_format),
        x.detach() + 1,
    ],
    "as_strided": lambda x: [x.as_strided((3, 5), (20, 1)) + 1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    check(VIEWS[name], (sample(3 if name != "tri" else 3, 4, 5),), aten=None if name == "as_strided" else 0)


@pytest.mark.parametrize("name", ["reshape", "permute", "slice", "split", "cat", "expand", "pad"])
def test_views_of_bool_and_half(name: str) -> None:
    def no_exp(x: torch.Tensor) -> Any:
        return VIEWS[name](x)

    check(no_exp, (sample(3, 4, 5, dtype=torch.float16),), tol={"rtol": 2e-3, "atol": 2e-3})


NONCONTIGUOUS: dict[str, Callable[[], torch.Tensor]] = {
    "transposed": lambda: sample(37, 23).t(),
    "strided": lambda: sample(23, 74)[:, ::2],
    "offset": lambda: sample(24, 40)[1:, 3:],
    "expanded": lambda: sample(23, 1).expand(23, 37),
    "channels_last": lambda: sample(2, 8, 5, 7).to(memory_format=torch.channels_last),
    "permuted": lambda: sample(3, 5, 7).permute(1, 2, 0),
}


@pytest.mark.parametrize("name", NONCONTIGUOUS)
def test_noncontiguous_inputs(name: str) -> None:
    x = NONCONTIGUOUS[name]()

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x + 1,
            x.exp(),
            x.sum(-1),
            x.sum(0),
            x.amax(),
            x.softmax(-1),
            x * x.sum(1, keepdim=True),
            x.mean((0, 1)),
        ]

    check(fn, (x,))


@pytest.mark.parametrize(
    "shape",
    [(), (0,), (3, 0), (0, 4), (1,), (1, 1), (1, 17), (17, 1), (15,), (16,), (17,), (5000,), (3, 5000)],
    ids=str,
)
def test_edge_shapes(shape: tuple[int, ...]) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        out = [x + 1, x.exp() * 2, x.sum(), x > 0]
        if x.dim():
            out += [x.sum(0), x.sum(-1, keepdim=True), x.softmax(-1), x.mean(-1), x.any(), x.all(0)]
            if x.numel():
                out += [x.amax(-1), x.max(0)[0], x.argmax(0), x.var(-1, correction=0)]
        return out

    check(fn, (sample(*shape),), aten=None, tol={"rtol": 1e-5, "atol": 5e-4})  # sums of both signs cancel


REDUCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: [
        x.sum(),
        x.sum(0),
        x.sum(1),
        x.sum(2),
        x.sum((0, 2)),
        x.sum((0, 1), keepdim=True),
        x.sum(-1, dtype=torch.float64),
    ],
    "mean": lambda x: [x.mean(), x.mean(0), x.mean((1, 2)), x.mean((0, 2), keepdim=True)],
    "extremes": lambda x: [
        x.amax(),
        x.amax(0),
        x.amin((1, 2)),
        x.max(),
        x.min(),
        *x.max(1),
        *x.min(-1),
        *x.max(0, keepdim=True),
    ],
    "arg": lambda x: [x.argmax(), x.argmax(0), x.argmin(1), x.argmax(-1, keepdim=True), x.argmin()],
    "logic": lambda x: [(x > 1).any(), (x > 1).any(0), (x > -2).all(1), (x < 9).all()],
    "prod": lambda x: [x.prod(), x.prod(1), x.prod(0, keepdim=True)],
    "var": lambda x: [
        x.var(),
        x.var(0),
        x.var((1, 2), correction=0),
        x.std(-1),
        *torch.var_mean(x, (0, 2)),
        *torch.var_mean(x, -1, correction=0, keepdim=True),
    ],
    "softmax": lambda x: [x.softmax(-1), x.softmax(0), x.softmax(1), x.log_softmax(-1), x.log_softmax(0)],
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", [(3, 4, 5), (7, 33, 64), (2, 70, 19)], ids=str)
def test_reductions(name: str, shape: tuple[int, ...]) -> None:
    check(REDUCTIONS[name], (sample(*shape),))


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.bool, torch.uint8], ids=str
)
def test_reduction_dtypes(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        out = [x.sum(), x.sum(0), x.sum(1), x.any() if dtype != torch.uint8 else x.sum(), x.amax(1), x.amin(0)]
        if dtype != torch.bool:
            out += [x.argmax(1), *x.max(0)]
        if dtype.is_floating_point:
            out += [x.mean(0), x.softmax(1), x.var(1), x.log_softmax(0)]
        return out

    tol = {"rtol": 1.6e-2, "atol": 2e-2} if dtype in (torch.bfloat16, torch.float16) else None
    check(fn, (sample(19, 45, dtype=dtype),), tol=tol)


def test_extremes_propagate_nan_and_break_ties_first() -> None:
    x = sample(6, 40)
    x[1, 7] = x[1, 30] = float("nan")
    x[2, 3] = x[2, 33] = 9.0
    x[3, :] = 1.0
    x[4, 0] = float("-inf")
    x[5, :] = float("inf")
    check(
        lambda x: [
            x.amax(1),
            x.amin(1),
            x.argmax(1),
            x.argmin(1),
            *x.max(1),
            *x.min(1),
            *x.max(0),
            x.argmax(),
            torch.relu(x),
            x.clamp(-1, 1),
        ],
        (x,),
    )


def test_long_sums_are_accurate() -> None:
    x = torch.rand(3_000_001, generator=torch.Generator().manual_seed(1))
    graph = check(lambda x: [x.sum(), x.mean(), (x * x).sum()], (x,))
    exact = x.double().sum()
    assert abs(graph(x)[0].double() - exact) / exact < 1e-6


def test_softmax_backward() -> None:
    x, g = sample(9, 50), sample(9, 50, seed=2)
    check(
        lambda x, g: [
            aten._softmax_backward_data(g, x.softmax(1), 1, torch.float32),
            aten._log_softmax_backward_data(g, x.log_softmax(0), 0, torch.float32),
        ],
        (x, g),
    )


def test_layer_norm_and_backward() -> None:
    x, w, b, g = sample(6, 7, 40), sample(40, seed=1), sample(40, seed=2), sample(6, 7, 40, seed=3)

    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, g: torch.Tensor) -> list[torch.Tensor]:
        y, mean, rstd = aten.native_layer_norm(x, [40], w, b, 1e-5)
        return [y, mean, rstd, *aten.native_layer_norm_backward(g, x, [40], mean, rstd, w, b, [True, True, True])]

    check(fn, (x, w, b, g))
    check(
        lambda x: [F.layer_norm(x, (7, 40)), F.layer_norm(x.bfloat16(), (40,))], (x,), tol={"rtol": 2e-2, "atol": 2e-2}
    )


@pytest.mark.parametrize("shape", [(4, 6, 5, 5), (4, 6), (16, 64, 8, 8)], ids=str)
def test_batch_norm(shape: tuple[int, ...]) -> None:
    c = shape[1]
    x, g = sample(*shape), sample(*shape, seed=9)
    w, b, mean, var = sample(c, seed=1), sample(c, seed=2), sample(c, seed=3), sample(c, seed=4, low=0.5, high=2)

    def inference(x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        return [aten._native_batch_norm_legit_no_training(x, w, b, mean, var, 0.1, 1e-5)[0]]

    check(inference, (x, w, b, mean, var))

    def training(x: Any, w: Any, b: Any, mean: Any, var: Any, g: Any) -> Any:
        y, m, s, new_mean, new_var = aten._native_batch_norm_legit_functional(x, w, b, mean, var, True, 0.1, 1e-5)
        grads = aten.native_batch_norm_backward(g, x, w, mean, var, m, s, True, 1e-5, [True, True, True])
        frozen = aten.native_batch_norm_backward(g, x, w, mean, var, m, s, False, 1e-5, [True, True, True])
        return [y, m, s, new_mean, new_var, *grads, *frozen]

    check(training, (x, w, b, mean, var, g), tol={"rtol": 1e-4, "atol": 1e-4})


def test_group_norm() -> None:
    x, w, b = sample(3, 8, 5, 6), sample(8), sample(8, seed=1)
    check(lambda x, w, b: list(aten.native_group_norm(x, w, b, 3, 8, 30, 4, 1e-5)), (x, w, b))


def test_creation() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.full((3, 4), 2.5),
            torch.arange(10),
            torch.arange(2, 20, 3),
            torch.arange(0.5, 3.0, 0.25),
            torch.ones_like(x),
            torch.zeros(5, dtype=torch.int64),
            torch.full_like(x, 7),
            torch.eye(4),
            x + torch.arange(x.shape[-1]),
            torch.tril(torch.ones(5, 5, dtype=torch.bool)),
            x.new_full((2,), 3.0),
        ]

    check(fn, (sample(3, 5),))


FALLBACKS: dict[str, Callable[..., Any]] = {
    "mm": lambda x: [
        x @ x.t(),
        F.linear(x, x),
        (x.unsqueeze(0) @ x.t().unsqueeze(0)) + 1,
        torch.addmm(x @ x.t(), x.exp(), x.t()),
    ],
    "sort": lambda x: [*x.sort(1), *x.topk(3, 1), x.cumsum(0), x.exp().cumsum(1)],
    "index": lambda x: [
        x[torch.tensor([0, 2, 1])],
        x.gather(1, torch.zeros(8, 2, dtype=torch.int64)),
        F.embedding(torch.tensor([1, 5]), x),
        x[x.sum(1).argsort()] + 1,
    ],
    "conv": lambda x: [
        F.conv1d(x.unsqueeze(0), torch.ones(4, 8, 3)),
        F.max_pool1d(x.unsqueeze(0), 2),
        F.avg_pool1d(x.unsqueeze(0), 2),
    ],
    "integer_division": lambda x: [x.int() // (x.int().abs() + 1), x.int() % -3],
    "linalg": lambda x: [torch.linalg.inv(x.t() @ x + 10 * torch.eye(8))],
    "complex": lambda x: [torch.view_as_real(torch.fft.fft(x)), torch.fft.rfft(x).abs()],
    "scatter": lambda x: [
        x.scatter(1, torch.zeros(8, 1, dtype=torch.int64), 5.0),
        x.index_add(0, torch.tensor([1, 1]), x[:2]),
        aten.embedding_dense_backward(x, torch.arange(8) % 3, 4, -1, False),
    ],
    "loss": lambda x: [F.cross_entropy(x, torch.arange(8)), F.nll_loss(x, torch.arange(8)), F.mse_loss(x, x.exp())],
}


@pytest.mark.parametrize("name", FALLBACKS)
def test_what_has_no_lowering_runs_by_aten(name: str) -> None:
    check(FALLBACKS[name], (sample(8, 8),), aten=None, tol={"rtol": 1e-4, "atol": 1e-4})


@pytest.mark.parametrize("dims", [1, (0, 1), (0, 2), -1], ids=str)
def test_log_sum_exp_of_infinite_rows(dims: Any) -> None:
    x = sample(3, 4, 5)
    x[0], x[1, 2], x[2, :, 3] = -torch.inf, torch.inf, torch.nan
    check(lambda x: [x.logsumexp(dims), torch.logsumexp(x.sin() * 9, dims, keepdim=True)], (x,))
    check(lambda x: x.round().long().logsumexp(dims), (sample(3, 4, 5),), aten=None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_dropout_draws_eagers_mask_and_multiplies_in_a_kernel(dtype: torch.dtype, transposed: bool) -> None:
    """Numbers are drawn in the order of memory: where that is another one the library does it all."""
    x = sample(31, 17, dtype=dtype)
    x = x.t() if transposed else x

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y, mask = aten.native_dropout(x, 0.25, True)
        return [y + 1, mask]

    graph = compiled(fn, (x,))
    assert ("aten_native_dropout" in graph.source) == transposed and len(graph.kernels) == 1
    torch.manual_seed(3)
    wanted = [*fn(x), torch.rand(2)]
    torch.manual_seed(3)
    found = [*graph(x), torch.rand(2)]
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
