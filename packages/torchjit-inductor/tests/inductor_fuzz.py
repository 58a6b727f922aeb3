"""Random programs over the dtypes of the C backend, and their comparison with eager in float64.

A program makes its choices from shapes, dtypes and a seed only, so that it is the same program whatever it computes with.
Every tensor carries whether its values are exact (float64 has the same): only those are compared, become integers or
conditions, since elsewhere a rounding may turn the other way without anything being wrong.
`benchmarks/fuzz.py` runs many of them; `Tape` lets Hypothesis make the choices.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import attrs
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor import Inductor, InductorSettings

__all__ = ["UNENDING", "Chooser", "Tape", "check", "describe", "program"]

Tensor = torch.Tensor
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 24, 31, 32, 33, 40, 64, 65)
SMALL = 3000
FLOATS = (torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTS = (torch.int64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
PRECISION = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
LARGEST = 1e4
"""Programs with larger results are left out: their errors would be those of the program."""

SECONDS_OF_A_TRACE = 60
"""Of the processor: more than any trace takes that ends. Torch's reasoning about symbolic sizes may not."""

UNENDING = "left out: torch's reasoning about sizes does not end"
"""Says `check` then. Its process is better left: the trace may have been in the middle of anything."""

Chooser = Callable[[int], random.Random]
"""What makes choice number n of a program: asked again, it makes the same ones."""


class Tape(random.Random):
    """Choices from given bytes. Behind their end, and for bytes that are 0, it is always the first of what there is."""

    def __init__(self, held: bytes) -> None:
        super().__init__()
        self._held = iter(held)

    def getrandbits(self, k: int, /) -> int:
        """The next bytes as a number of k bits."""
        return int.from_bytes(bytes(next(self._held, 0) for _ in range((k + 7) // 8)), "big") % (1 << k)

    def random(self) -> float:
        """A number from 0 to below 1."""
        return self.getrandbits(16) / 65536


@final
@attrs.frozen
class Made:
    """A tensor of a program.

    Attributes:
        value: the tensor.
        exact: float64 has the same values.
        precision: of the coarsest dtype that its values went through.
    """

    value: Tensor
    exact: bool
    precision: float


def _aten(op: Callable[..., Any], *args: Any) -> Tensor:
    made = op(*args)
    assert isinstance(made, Tensor)
    return made


# ---------------------------------------------------------------------- steps that move values
def _dim(x: Tensor, r: random.Random) -> int:
    return r.randrange(x.dim())


def _view(x: Tensor, r: random.Random) -> Tensor:
    d = _dim(x, r)
    n = x.shape[d]
    kind = r.randrange(17)
    if kind == 0:
        return x.permute(r.sample(range(x.dim()), x.dim()))
    if kind == 1:
        return x.reshape(-1)
    if kind == 2:
        length = r.randrange(max(n - 3, 0), n + 1)
        return x.narrow(d, r.randrange(n - length + 1), length)
    if kind == 3:
        return _aten(torch.ops.aten.slice.Tensor, x, d, r.randrange(-n - 1, n + 1), 1 << 40, r.choice((1, 2, 3)))
    if kind == 4 and n:
        return x.select(d, r.randrange(-n, n))
    if kind == 5 and x.dim() < 4:
        return x.unsqueeze(r.randrange(x.dim() + 1))
    if kind == 6:
        return x.squeeze(d)
    if kind == 7 and x.dim() > 1:
        return x.diagonal(r.choice((-1, 0, 1)), 0, -1) if min(x.shape[0], x.shape[-1]) > 1 else x.mT
    if kind == 8:
        return x.transpose(0, -1).contiguous()
    if kind == 9 and n % 2 == 0 and n and x.dim() < 4:
        return x.reshape(*x.shape[:d], *r.choice(((2, n // 2), (n // 2, 2))), *x.shape[d + 1 :])
    if kind == 10 and x.dim() > 1:
        return x.flatten(0, 1)
    if kind == 11 and x.numel() > 3:
        return x.contiguous().as_strided((x.numel() // 2, 2), (1, 1), 1)
    if kind == 12:
        return torch.chunk(x, 2, d)[-1]
    if kind == 13 and x.numel() < SMALL and x.dim() < 4 and n > 2:
        return x.unfold(d, 3, r.choice((1, 2)))
    if kind == 14 and x.numel() < SMALL and x.dim() < 4:
        return x.unsqueeze(d).expand(*x.shape[:d], r.choice((2, 3)), *x.shape[d:])
    if kind == 15:
        return x.t() if x.dim() == 2 else x.movedim(0, -1)
    return x.transpose(0, d)


def _copy(x: Tensor, r: random.Random) -> Tensor:
    """Concatenation, padding, shifts: results of their own."""
    d = _dim(x, r)
    n, kind = x.shape[d], r.randrange(9)
    if kind == 0:
        return x.flip(r.sample(range(x.dim()), r.randrange(1, x.dim() + 1)))
    if kind == 1:
        return x.roll(r.randrange(-3, 4), d)
    if kind == 2 and x.dim() > 1:
        return r.choice((torch.tril, torch.triu))(x, r.randrange(-1, 2))
    if x.numel() > SMALL:
        return x.clone()
    if kind == 3:
        return torch.cat([x, x.narrow(d, 0, n // 2), x.flip(d)], d)
    if kind == 4 and x.dim() < 4:
        return torch.stack([x, x.flip(0), x], r.randrange(x.dim() + 1))
    if kind == 5:
        return F.pad(x, [r.randrange(-1 if m > 2 else 0, 3) for m in x.shape[:-3:-1] for _ in "ab"], value=1)
    if kind == 6:
        return x.repeat(*(r.choice((1, 2)) for _ in range(x.dim())))
    if kind == 7 and n:
        return torch.slice_scatter(x, x.narrow(d, 0, n // 2 + 1), d, n - n // 2 - 1, n)
    return x.repeat_interleave(2, d)


def _positions(n: int, r: random.Random, shape: Sequence[int], negative: bool = False, once: bool = False) -> Tensor:
    """Indices below n, made from numbers: a constant of the graph. `once`: along the last axis none comes twice."""
    count = math.prod(shape)
    if once:
        step = next(s for s in (r.randrange(1, 9), 1) if math.gcd(s, n) == 1)
        held = [(k % shape[-1] * step) % n for k in range(count)]
    else:
        first, step = r.randrange(n), r.randrange(1, 7)
        held = [(first + k * step + k * k // 3) % n for k in range(count)]
    held = [h - n if negative and k % 3 == 0 else h for k, h in enumerate(held)]
    return torch.tensor(held, dtype=torch.int64).reshape(*shape)


def _index(x: Tensor, r: random.Random) -> Tensor:
    if not x.numel() or x.numel() > SMALL:
        return x.clone()
    d = _dim(x, r)
    n, kind = x.shape[d], r.randrange(7)
    every = [slice(None)] * d
    if kind == 0:
        return x.index_select(d, _positions(n, r, [r.choice((0, 1, 3, 17))]))
    if kind == 1:
        return _aten(torch.ops.aten.index.Tensor, x, [None] * d + [_positions(n, r, [r.choice((1, 3, 17))], True)])
    if kind == 2:
        return x.gather(d, _positions(n, r, x.shape))
    if kind == 3 and x.dim() > 1:
        return _aten(
            torch.ops.aten.index.Tensor,
            x,
            [_positions(x.shape[0], r, [5], True), *[None] * (x.dim() - 2), _positions(x.shape[-1], r, [3, 1], True)],
        )
    if kind == 4 and x.dim() == 2:
        return F.embedding(_positions(x.shape[0], r, [4, 3]), x)
    if kind == 5:
        return torch.take_along_dim(x, _positions(n, r, [*x.shape[:d], 2, *x.shape[d + 1 :]]), d)
    return _aten(torch.ops.aten.index.Tensor, x, [None] * len(every) + [_positions(n, r, [2, 3], True)])


def _scatter(x: Tensor, r: random.Random) -> Tensor:
    if not x.numel() or x.numel() > SMALL:
        return x.clone()
    d = _dim(x, r)
    n, kind = x.shape[d], r.randrange(7)
    if kind == 0:
        shape = [*x.shape]
        shape[d] = 1
        return x.scatter(d, _positions(n, r, shape), x.narrow(d, 0, 1))
    if kind == 1:
        return x.scatter(d, _positions(n, r, x.shape), 2)
    if kind == 2:
        values = x.narrow(d, 0, 1).narrow(d, 0, 1).squeeze(d)
        return _aten(torch.ops.aten.index_put, x, [None] * d + [_positions(n, r, [1], True)], values.unsqueeze(d))
    if kind == 3:
        at = _positions(n, r, [n], once=True)
        return x.index_copy(d, at, x.flip(d))
    if x.dtype == torch.bool:
        return x.masked_fill(x, False)
    if kind == 4:
        return x.scatter_add(d, _positions(n, r, x.shape), x)
    if kind == 5:
        at = _positions(n, r, [r.choice((2, 9))], True)
        values = torch.ones(at.shape + (1,) * (x.dim() - d - 1), dtype=x.dtype)
        return _aten(torch.ops.aten.index_put, x, [None] * d + [at], values, True)
    at = _positions(n, r, [r.choice((2, 9))])
    return x.index_add(d, at, x.index_select(d, at))


# ---------------------------------------------------------------------- steps that compute
EXACT: list[Callable[[Tensor], Tensor]] = [
    torch.relu, torch.abs, torch.neg, lambda x: x.clamp(-1, 1), lambda x: x.clamp(min=0.5), torch.sign, lambda x: F.hardtanh(x, -2, 2),
    lambda x: torch.where(x > 0.5, x, -x), lambda x: x.masked_fill(x < 0, 0.25), lambda x: F.threshold(x, 0.5, 0),
    lambda x: torch.maximum(x, x.flip(0)), lambda x: torch.copysign(x, x.flip(0)), lambda x: torch.nan_to_num(x), torch.floor, torch.trunc,
    torch.ceil, torch.round,
]  # fmt: skip
ROUNDED: list[Callable[[Tensor], Tensor]] = [
    torch.tanh, torch.sigmoid, torch.sin, torch.cos, torch.erf, torch.atan, torch.square, F.silu, F.softplus, F.gelu, F.mish, F.elu,
    lambda x: x * 1.5 + 0.25, lambda x: torch.exp(-x * x), lambda x: torch.sqrt(x * x + 1), lambda x: F.gelu(x, approximate="tanh"),
    lambda x: torch.log1p(x * x), lambda x: torch.expm1(x.clamp(-2, 2)), lambda x: torch.rsqrt(x * x + 0.5), lambda x: 1 - x,
    lambda x: F.leaky_relu(x, 0.1), lambda x: x / 3, lambda x: 2 / (x * x + 1), lambda x: (x.abs() + 0.5) ** 1.5, lambda x: x**3 * 0.1,
    lambda x: (x * x + 1).log(), lambda x: (x * x + 1).reciprocal(), lambda x: F.hardswish(x), lambda x: F.hardsigmoid(x), F.logsigmoid,
    lambda x: torch.lerp(x, x.flip(0), 0.3), lambda x: torch.addcmul(x, x, x.flip(0), value=0.1), lambda x: torch.exp2(x.clamp(-3, 3)),
    lambda x: torch.sinh(x.clamp(-3, 3)), lambda x: torch.log2(x * x + 1), lambda x: torch.hypot(x, x.flip(0)), lambda x: torch.asinh(x),
]  # fmt: skip
INTEGER: list[Callable[[Tensor], Tensor]] = [
    lambda x: x + 5, lambda x: x * -3, lambda x: -x, lambda x: x & 13, lambda x: x | 6, lambda x: x ^ 21, lambda x: ~x,
    lambda x: x.clamp(-5, 40), lambda x: x.sign(), lambda x: torch.where(x > 3, x, 7), lambda x: x.square(), lambda x: 7 - x,
    lambda x: x // 3, lambda x: x % 5, lambda x: torch.remainder(x, -4), lambda x: torch.fmod(x, 3), lambda x: torch.div(x, 4, rounding_mode="trunc"),
    lambda x: x << 1, lambda x: x >> 1, lambda x: torch.maximum(x, x.flip(0)), lambda x: x * x.flip(0) - x,
]  # fmt: skip


def _unary(x: Made, r: random.Random) -> Made:
    v = x.value
    if v.dtype == torch.bool:
        return attrs.evolve(x, value=r.choice((torch.logical_not, lambda t: t ^ t.flip(0), lambda t: t & True))(v))
    if not v.is_floating_point():
        return attrs.evolve(x, value=r.choice(INTEGER)(v))
    if x.exact and r.random() < 0.4:
        return attrs.evolve(x, value=r.choice(EXACT)(v))
    return attrs.evolve(x, value=r.choice(ROUNDED)(v), exact=False)


def _binary(x: Made, y: Made, r: random.Random) -> Made:
    a, b = x.value, y.value
    if b.dtype == torch.bool and a.dtype != torch.bool:
        made = r.choice(
            (
                lambda: torch.where(b, a, 2),
                lambda: a.masked_fill(b, 1),
                lambda: a * b,
                lambda: torch.where(b, a, a.flip(0)),
            )
        )()
        return attrs.evolve(x, value=made)
    if a.dtype == torch.bool:
        made = torch.logical_xor(a, b) if y.exact else torch.where(a, b, b * 2)
        return attrs.evolve(y, value=made)
    if x.exact and y.exact and r.random() < 0.4:
        made = r.choice((torch.maximum, torch.minimum, torch.gt, torch.le, torch.eq, torch.ne))(a, b)
        return Made(
            made,
            not a.is_floating_point() ^ b.is_floating_point() or made.dtype == torch.bool and _same(a, b),
            max(x.precision, y.precision),
        )
    whole = not (a.is_floating_point() or b.is_floating_point())
    ops: list[Callable[[Tensor, Tensor], Tensor]] = [torch.add, torch.sub, torch.mul]
    ops += [torch.bitwise_xor] if whole else [lambda s, t: s / (t * t + 1), lambda s, t: torch.atan2(s, t.abs() + 1), lambda s, t: torch.sub(s, t, alpha=0.5)]  # fmt: skip
    made = r.choice(ops)(a, b)
    return Made(made, whole, max(x.precision, y.precision, PRECISION.get(made.dtype, 0)))


def _same(a: Tensor, b: Tensor) -> bool:
    return a.is_floating_point() == b.is_floating_point()


def _reduce(x: Made, r: random.Random) -> Made:
    v, keep = x.value, r.random() < 0.6
    d = _dim(v, r)
    dims = sorted(r.sample(range(v.dim()), r.randrange(1, v.dim() + 1)))
    if not v.numel():
        return attrs.evolve(x, value=v.sum(d, keep))
    if v.dtype == torch.bool:
        return attrs.evolve(x, value=r.choice((torch.any, torch.all, torch.sum))(v, d, keep))
    if x.exact and r.random() < 0.5:
        picks: list[Callable[[], Tensor]] = [
            lambda: v.amax(dims, keep), lambda: v.amin(dims, keep), lambda: v.argmax(d, keep), lambda: v.argmin(d, keep), lambda: v.max(d, keep)[0],
            lambda: v.min(d, keep)[1], lambda: (v > 0).any(d), lambda: v.max(), lambda: v.argmax(), lambda: v.aminmax()[0],
            *_sorts(v, d, r),
        ]  # fmt: skip
        return attrs.evolve(x, value=r.choice(picks)())
    if not v.is_floating_point():
        return attrs.evolve(
            x,
            value=r.choice(
                (
                    lambda: v.sum(dims, keep),
                    lambda: v.cumsum(d),
                    lambda: v.prod(d, keep) % 7,
                    lambda: v.sum(),
                    *_sorts(v, d, r),
                )
            )(),
        )
    ops: list[Callable[[], Tensor]] = [
        lambda: v.sum(dims, keep) * 0.1, lambda: v.mean(dims, keep), lambda: v.softmax(d), lambda: v.log_softmax(d), lambda: v.mean(),
        lambda: v.var(dims, correction=0, keepdim=keep), lambda: v.std(d, correction=0), lambda: torch.logsumexp(v, dims, keep),
        lambda: F.layer_norm(v, v.shape[-1:]), lambda: v.cumsum(d) * 0.1, lambda: v.norm(dim=d), lambda: v.clamp(-1, 1).cumprod(d),
        lambda: torch.var_mean(v, dims, correction=0)[1], lambda: F.layer_norm(v, v.shape[-2:]), lambda: F.rms_norm(v, v.shape[-1:]),
        lambda: F.normalize(v, dim=d), lambda: (v * v).mean(d, keep), lambda: v - v.mean(d, True), lambda: v.amax(d, True) - v,
        lambda: F.batch_norm(v, None, None, training=True) if v.dim() > 1 and v.numel() // v.shape[1] > 1 else v.mean(),
    ]  # fmt: skip
    return attrs.evolve(x, value=r.choice(ops)(), exact=False)


def _sorts(v: Tensor, d: int, r: random.Random) -> list[Callable[[], Tensor]]:
    """Elements in order, their positions, and the largest few. Where gradients or positions tell equal elements apart, the order is the stable one."""
    down = r.random() < 0.5

    def stable() -> tuple[Tensor, Tensor]:
        elements, positions = torch.sort(v, dim=d, descending=down, stable=True)
        return elements, positions

    return [
        lambda: stable()[0], lambda: stable()[1], lambda: v.detach().sort(d, down)[0], lambda: v.detach().msort(),
        lambda: stable()[0].narrow(d, 0, (v.shape[d] + 1) // 2), lambda: stable()[0].cumsum(d),
    ]  # fmt: skip


def _product(x: Made, r: random.Random) -> Made:
    v = x.value
    if v.dim() < 2 or v.shape[-2] > 65 or v.numel() > SMALL:
        return attrs.evolve(x, value=v * 0.5, exact=False)
    v = v if v.is_floating_point() else v.to(torch.get_default_dtype()).clamp(-9, 9)
    kind, scale = r.randrange(4), 1 / max(v.shape[-1], 1)
    if kind == 0 and v.dim() == 4 and min(v.shape) > 0:
        made = F.avg_pool2d(v, 2, ceil_mode=r.random() < 0.5) if min(v.shape[-2:]) > 1 else v.mean((2, 3))
    elif kind == 1 and v.dim() == 2:
        made = F.linear(v, v * scale, v[:, 0]) if v.shape[1] else v * 2
    elif kind == 2 and v.dim() == 3 and v.shape[2]:
        made = torch.baddbmm(v[:, :, :1], v, v.mT, alpha=scale)
    else:
        made = (v * scale) @ v.mT
    return Made(made, False, max(x.precision, PRECISION[made.dtype]))


def _convert(x: Made, r: random.Random, floats: Callable[[torch.dtype], torch.dtype]) -> Made:
    v = x.value
    to = r.choice((*FLOATS, *INTS, torch.bool))
    if v.is_floating_point() and not to.is_floating_point:
        if not x.exact:
            return x
        return attrs.evolve(x, value=v.clamp(0 if to == torch.uint8 else -99, 99).to(to))
    if not to.is_floating_point:
        return attrs.evolve(x, value=v.to(to))
    # In the float64 run everything is float64; the tracked precision tells what the other run rounds to.
    held = x.exact and (
        v.dtype in (torch.bool, torch.int8, torch.uint8) or (PRECISION[to] <= x.precision and v.is_floating_point())
    )
    return Made(v.to(floats(to)), held, max(x.precision, PRECISION[to]))


def _broadcast(a: Tensor, b: Tensor) -> bool:
    shapes = list(itertools.zip_longest(reversed(a.shape), reversed(b.shape), fillvalue=1))
    fits = all(m == n or 1 in (m, n) for m, n in shapes)
    return fits and math.prod(max(pair) for pair in shapes) < 3 * SMALL


def program(number: int, chooser: Chooser = random.Random) -> tuple[Callable[..., list[Made]], list[Made]]:
    """A function of tensors, which returns its results with what is known about them, and its inputs."""
    r, g = chooser(number), torch.Generator().manual_seed(number)
    inputs = []
    for dtype in (
        r.choice(FLOATS),
        r.choice(FLOATS),
        r.choice(INTS),
        r.choice((torch.bool, torch.float32)),
        r.choice(FLOATS),
    )[: r.randrange(2, 6)]:
        sizes = (*SIZES, 0) if r.random() < 0.05 else (r.choice(SIZES),) * 2 + (1,) if r.random() < 0.4 else SIZES
        shape = [r.choice(sizes) for _ in range(r.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))]
        while math.prod(shape) > 2 * SMALL:
            shape.pop()
        made = torch.randn(shape, generator=g) * 1.5
        made = made > 0 if dtype == torch.bool else (made * 15).abs().to(dtype) if dtype == torch.uint8 else made.mul(1 if dtype.is_floating_point else 15).to(dtype)  # fmt: skip
        layout = r.randrange(6) if made.dim() else 0
        if layout == 1:
            made = made.transpose(0, -1).contiguous().transpose(0, -1)
        elif layout == 2:
            made = torch.stack([made, made], -1)[..., 1]
        elif layout == 3 and made.shape[0] > 1:
            made = made.narrow(0, 1, made.shape[0] - 1)
        elif layout == 4 and made.numel():
            made = made[:1].expand(made.shape)
        inputs.append(Made(made, True, PRECISION.get(dtype, 0)))
    length = r.randrange(2, 18)

    def run(*tensors: Tensor) -> list[Made]:
        r = chooser(number + 1)
        double = all(t.dtype == torch.float64 for t in tensors if t.is_floating_point()) and any(
            i.value.dtype != torch.float64 for i in inputs
        )
        live = [attrs.evolve(i, value=t) for i, t in zip(inputs, tensors, strict=True)]
        for _ in range(length):
            x, y, kind = r.choice(live[-5:]), r.choice(live), r.random()
            v = x.value
            if not v.dim() and kind >= 0.5:
                live.append(attrs.evolve(x, value=v.expand(r.choice((1, 2, 17)))))
            elif kind < 0.22:
                live.append(
                    _unary(x, r)
                    if v.dim()
                    else attrs.evolve(x, value=v + 0 if v.dtype != torch.bool else v.logical_not())
                )
            elif kind < 0.44:
                live.append(_binary(x, y, r) if v.dim() and _broadcast(v, y.value) else x)
            elif kind < 0.5:
                live.append(_convert(x, r, lambda to: torch.float64 if double else to))
            elif kind < 0.62:
                live.append(attrs.evolve(x, value=_view(v, r)))
            elif kind < 0.7:
                live.append(attrs.evolve(x, value=_copy(v, r)))
            elif kind < 0.77:
                live.append(attrs.evolve(x, value=_index(v, r)))
            elif kind < 0.83:
                live.append(attrs.evolve(x, value=_scatter(v, r), exact=x.exact and not v.is_floating_point()))
            elif kind < 0.86:
                live.append(_product(x, r))
            else:
                live.append(_reduce(x, r))
        return [attrs.evolve(m, value=m.value.clone()) for m in live[-4:]]

    return run, inputs


# ---------------------------------------------------------------------- comparison
@contextlib.contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _gradients(run: Callable[..., list[Made]]) -> Callable[..., list[Made]]:
    """The results, and the gradients of their sum."""

    def wrapped(*tensors: Tensor) -> list[Made]:
        leaves = [t.detach().requires_grad_() if t.is_floating_point() else t for t in tensors]
        with torch.enable_grad():
            made = run(*leaves)
            summed = [m.value.sum().to(torch.get_default_dtype()) for m in made if m.value.requires_grad]
            wanted = [t for t in leaves if t.requires_grad]
            if not summed or not wanted:
                return made
            loss = sum(summed[1:], summed[0])
            found = torch.autograd.grad(loss, wanted, allow_unused=True)
        coarse = max(m.precision for m in made)
        precision = [max(coarse, *(PRECISION.get(t.dtype, 0) for t in tensors), 0) for _ in found]
        return [attrs.evolve(m, value=m.value.detach()) for m in made] + [
            Made(g, False, p) for g, p in zip(found, precision) if g is not None
        ]

    return wrapped


@final
@attrs.frozen
class _Case:
    run: Callable[..., list[Made]]
    inputs: list[Tensor]
    mode: str
    settings: dict[str, Any]


def _case(number: int, chooser: Chooser) -> _Case:
    run, inputs = program(number, chooser)
    r = chooser(number + 2)
    settings: dict[str, Any] = {"race_matmuls": False}
    if r.random() < 0.25:
        settings["emulate_precision_casts"] = True
    if r.random() < 0.2:
        settings["vector_bytes"] = r.choice((16, 32))
    if r.random() < 0.04:
        settings["fusion"] = False
    mode = "symbolic" if r.random() < 0.15 else "fake"
    gradients = mode == "fake" and r.random() < 0.3
    return _Case(_gradients(run) if gradients else run, [i.value for i in inputs], mode, settings)


def _graph(case: _Case) -> torch.fx.GraphModule:
    def values(*tensors: Tensor) -> list[Tensor]:
        return [m.value for m in case.run(*tensors)]

    # Functorch's transform lets nothing require gradients: they are traced before it.
    traced = make_fx(values, tracing_mode="fake")(*case.inputs) if case.mode == "fake" else values
    made = make_fx(torch.func.functionalize(traced, remove="mutations"), tracing_mode=case.mode)(*case.inputs)  # type: ignore[arg-type]
    assert isinstance(made, torch.fx.GraphModule)
    return made


class _TooLong(BaseException):
    """Not an error that torch's code may catch."""


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Raises `_TooLong` in the main thread after this time of the processor."""

    def end(signal_number: int, frame: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def check(number: int, cache: str, chooser: Chooser = random.Random) -> str:
    """Run a program: "same", "left out: ...", "rounding: ..." or "wrong: ...".

    "rounding" is off, but equal to eager under `emulate_precision_casts`.

    Args:
        number: of the program.
        cache: folder for compiled kernels.
        chooser: makes the program's choices.
    """
    case = _case(number, chooser)
    try:
        with _default(torch.float64):
            exact = case.run(*(t.double() if t.is_floating_point() else t for t in case.inputs))
        eager = [m.value for m in case.run(*case.inputs)]
    except (
        RuntimeError
    ) as error:  # no derivative, memory that may not be written: this differs between versions of torch
        return f"left out: eager raises {error}"
    for e, m in zip(eager, exact, strict=True):
        if e.is_floating_point() and e.numel() and not (m.value.abs().max() < LARGEST and e.isfinite().all()):
            return "left out: large or not finite"
    try:
        with _at_most(SECONDS_OF_A_TRACE):
            traced = _graph(case)
    except _TooLong:
        return UNENDING
    graph = Inductor(InductorSettings(cache_dir=cache, **case.settings))(traced, case.inputs)
    if not graph.source:
        return f"wrong: interpreted: {graph.reason_not_recordable}"
    # The strides are those that the graph promises: the fakes of a few aten ops have others than eager.
    promised = [[int(s) for s in n.meta["val"].stride()] for n in next(iter(reversed(traced.graph.nodes))).args[0]]
    got = graph(*case.inputs)
    for k, (g, e, m, strides) in enumerate(zip(got, eager, exact, promised, strict=True)):
        if g.shape != e.shape or g.dtype != e.dtype:
            return f"wrong: output {k} is {g.dtype} {tuple(g.shape)} instead of {e.dtype} {tuple(e.shape)}"
        if g.numel() and any(a != b for a, b, n in zip(g.stride(), strides, g.shape, strict=True) if n > 1):
            return f"wrong: output {k} has strides {g.stride()} instead of {strides}"
        if not e.is_floating_point():
            if not torch.equal(g, e):
                return f"wrong: output {k} differs at {int((g != e).sum())} of {g.numel()}: {_first(g, e)}"
            continue
        if not g.numel():
            continue
        off, base = (g.double() - m.value).abs(), (e.double() - m.value).abs().max()
        precision = max(m.precision, PRECISION[e.dtype]) * (1 + m.value.abs().max())
        allowed = 8 * base + precision
        if not bool((off <= allowed).all()):
            allowed = 8 * max(base, _typical_error(case, k)) + precision
        if not bool((off <= allowed).all()):
            word = "rounding" if _rounded_as_eager(case, cache, k, precision) else "wrong"
            return f"{word}: output {k} off by {off.max():.3g}, eager by {base:.3g}, {e.dtype}: {_first(g, e, off > allowed)}"
    return "same"


def _rounded_as_eager(case: _Case, cache: str, output: int, precision: Tensor) -> bool:
    """Is the result eager's once kernels round where eager does? Then eager's error is small by luck: of 16-bit terms that cancel, say."""
    if case.settings.get("emulate_precision_casts"):
        return False
    settings = InductorSettings(cache_dir=cache, **case.settings | {"emulate_precision_casts": True})
    got = Inductor(settings)(_graph(case), case.inputs)(*case.inputs)[output]
    want = case.run(*case.inputs)[output].value
    return bool(((got.double() - want.double()).abs() <= precision).all())


def _typical_error(case: _Case, output: int) -> Tensor:
    """The largest error of eager for inputs that are a few roundings away: where terms cancel, one error can be small by luck."""
    g, errors = torch.Generator().manual_seed(0), [torch.tensor(0.0)]
    for _ in range(8):
        near = [
            t * (1 + torch.randint(-2, 3, t.shape, generator=g).to(t.dtype) * torch.finfo(t.dtype).eps / 2)
            if t.is_floating_point()
            else t
            for t in case.inputs
        ]
        with _default(torch.float64):
            exact = case.run(*(t.double() if t.is_floating_point() else t for t in near))[output].value
        errors.append((case.run(*near)[output].value.double() - exact).abs().max())
    return torch.stack([e.double() for e in errors]).max()


def _first(got: Tensor, want: Tensor, where: Tensor | None = None) -> str:
    at = (got != want if where is None else where | got.isnan()).flatten().nonzero()[0]
    return f"[{int(at)}] {got.flatten()[at].item()} instead of {want.flatten()[at].item()}"


def describe(number: int, cache: str, chooser: Chooser = random.Random) -> str:
    """The program's graph, inputs, host program and kernels, for finding a failure's cause."""
    case = _case(number, chooser)
    made = _graph(case)
    inputs = "\n".join(f"# {t.dtype} {tuple(t.shape)} {t.stride()}" for t in case.inputs)
    text = f"# {case.mode} {case.settings}\n{inputs}\n{made.print_readable(print_output=False)}"
    graph = Inductor(InductorSettings(cache_dir=cache, **case.settings))(made, case.inputs)
    return "\n".join((text, graph.source, *(k.source for k in graph.kernels)))
