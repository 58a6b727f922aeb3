"""Random programs over several dtypes: views, indexing, scatters, scans, integer and boolean arithmetic, special values.

    python packages/torchjit-inductor/tests/inductor_random.py --count 20000 --first 0

compares that many with eager: floats with eager in float64, everything else exactly. It prints each seed that differs.
`--device cuda` does so on a GPU.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor import Inductor, InductorSettings

Tensor = torch.Tensor
Step = Callable[[Tensor, random.Random], Tensor]
SIZES = (1, 2, 3, 4, 5, 8, 16, 17, 31, 40)
MOST = 6000


def _tensor(made: Any) -> Tensor:
    assert isinstance(made, Tensor)
    return made


def _dim(x: Tensor, rng: random.Random) -> int:
    return rng.randrange(-x.dim(), x.dim()) if x.dim() else 0


def _choice(*steps: Step) -> Step:
    return lambda x, rng: rng.choice(steps)(x, rng)


# ---------------------------------------------------------------------- shape
def _view(x: Tensor, rng: random.Random) -> Tensor:
    if x.dim() == 0:
        return x.reshape(1).expand(rng.choice((1, 3)))
    d, n = _dim(x, rng), 0
    n = x.shape[d]
    kind = rng.randrange(14)
    if kind == 0:
        order = list(range(x.dim()))
        rng.shuffle(order)
        return x.permute(order)
    if kind == 1:
        return x.reshape(-1)
    if kind == 2 and n > 2:
        return x.narrow(d, 1, n - 2)
    if kind == 3 and n > 1:
        return _tensor(
            torch.ops.aten.slice.Tensor(x, d, rng.randrange(-n, n), rng.choice((n, -1, 10**9)), rng.choice((1, 2, 3)))
        )
    if kind == 4:
        return x.flip(d)
    if kind == 5 and x.numel() < MOST:
        return torch.cat([x, x.flip(d), x.narrow(d, 0, n // 2)], d)
    if kind == 6 and x.numel() < MOST:
        return torch.nn.functional.pad(x, (rng.randrange(3), rng.randrange(3)) * min(x.dim(), 2), value=1)
    if kind == 7:
        return x.select(d, rng.randrange(-n, n)) if n else x
    if kind == 8 and x.numel() < MOST and x.dim() < 4:
        return (
            x.unsqueeze(d).expand(*(x.shape[: d % x.dim()]), 2, *x.shape[d % x.dim() :]) if d >= 0 else x.unsqueeze(0)
        )
    if kind == 9:
        return x.roll(rng.randrange(-3, 4), d)
    if kind == 10 and n % 2 == 0 and n and x.dim() < 4:
        at = d % x.dim()
        return x.reshape(*x.shape[:at], n // 2, 2, *x.shape[at + 1 :])
    if kind == 11 and x.dim() > 1 and x.numel() < MOST:
        return x.repeat(*(rng.choice((1, 2)) for _ in range(x.dim())))
    if kind == 12 and x.dim() > 1:
        return x.diagonal(rng.choice((0, 1)), 0, 1) if min(x.shape[:2]) > 1 else x
    return x.transpose(0, d).contiguous()


def _positions(x: Tensor, d: int, rng: random.Random, wrap: bool, *shape: int) -> Tensor:
    n, shape = x.shape[d], shape or (rng.choice((1, 3, 17)),)
    count = math.prod(shape)
    # A pattern of its own, not a random tensor: that would be a node of the graph.
    first, step = rng.randrange(n), rng.randrange(1, 7)
    held = [(first + k * step + k * k // 3) % n - (n if wrap and k % 3 == 0 else 0) for k in range(count)]
    return torch.tensor(held).reshape(shape)


def _indexing(x: Tensor, rng: random.Random) -> Tensor:
    if x.dim() == 0 or x.numel() == 0 or x.numel() > MOST:
        return x.clone()
    d = rng.randrange(x.dim())
    kind = rng.randrange(9)
    if kind == 0:
        return x.index_select(d, _positions(x, d, rng, False))
    if kind == 1:
        return _tensor(torch.ops.aten.index.Tensor(x, [None] * d + [_positions(x, d, rng, True)]))
    if kind == 2:
        return x.gather(d, _positions(x, d, rng, False, *x.shape))
    if kind == 3 and x.dim() > 1:
        return _tensor(
            torch.ops.aten.index.Tensor(x, [_positions(x, 0, rng, True, 5), _positions(x, 1, rng, True, 3, 1)])
        )
    if kind == 4:
        shape = list(x.shape)
        shape[d] = 1
        return x.scatter(d, _positions(x, d, rng, False, *shape), x.narrow(d, 0, 1))
    if x.dtype == torch.bool:
        return _tensor(torch.ops.aten.index_put(x, [None] * d + [_positions(x, d, rng, True, 1)], torch.tensor(True)))
    if kind == 5:
        return x.scatter_add(d, _positions(x, d, rng, False, *x.shape), x)
    if kind == 6:
        at = _positions(x, d, rng, True)
        values = torch.ones(at.shape + (1,) * (x.dim() - d - 1), dtype=x.dtype)
        return _tensor(torch.ops.aten.index_put(x, [None] * d + [at], values, True))
    at = _positions(x, d, rng, False)
    return x.index_add(d, at, x.index_select(d, at))


# ---------------------------------------------------------------------- arithmetic
_FLOAT: list[Step] = [
    lambda x, r: torch.tanh(x), lambda x, r: torch.sigmoid(x), lambda x, r: x.relu(), lambda x, r: x.abs() - 0.5,
    lambda x, r: torch.sin(x), lambda x, r: x * 1.5 + 0.25, lambda x, r: x.clamp(-1, 1), lambda x, r: torch.exp(-x * x),
    lambda x, r: torch.sqrt(x * x + 1), lambda x, r: torch.nn.functional.gelu(x), lambda x, r: torch.erf(x), lambda x, r: -x,
    lambda x, r: torch.log1p(x * x), lambda x, r: torch.atan(x), lambda x, r: torch.nn.functional.silu(x),
    lambda x, r: torch.expm1(x.clamp(-2, 2)), lambda x, r: x.square(), lambda x, r: torch.rsqrt(x * x + 0.5),
    lambda x, r: torch.nn.functional.softplus(x), lambda x, r: torch.nn.functional.leaky_relu(x, 0.1),
]  # fmt: skip
_INT: list[Step] = [
    lambda x, r: x + r.randrange(-9, 9), lambda x, r: x * r.randrange(-9, 9), lambda x, r: -x, lambda x, r: x.abs(),
    lambda x, r: x & 13, lambda x, r: x | 6, lambda x, r: x ^ 21, lambda x, r: ~x, lambda x, r: x.clamp(-5, 40),
    lambda x, r: x.sign(), lambda x, r: torch.where(x > 3, x, -x), lambda x, r: x.square(), lambda x, r: 7 - x,
]  # fmt: skip
_BOOL: list[Step] = [lambda x, r: ~x, lambda x, r: x.logical_not(), lambda x, r: x ^ x.flip(0) if x.dim() else x]


def _pointwise(x: Tensor, rng: random.Random) -> Tensor:
    return rng.choice(_FLOAT if x.is_floating_point() else _BOOL if x.dtype == torch.bool else _INT)(x, rng)


def _binary(x: Tensor, y: Tensor, rng: random.Random) -> Tensor:
    if x.dtype == torch.bool and y.dtype == torch.bool:
        return rng.choice((torch.logical_and, torch.logical_or, torch.logical_xor))(x, y)
    if x.dtype == torch.bool:
        return torch.where(x, y, y * 2)
    if y.dtype == torch.bool:
        return x.masked_fill(y, 2)
    if x.is_floating_point() or y.is_floating_point():
        return rng.choice((torch.add, torch.sub, torch.mul, lambda a, b: a / (b * b + 1)))(x, y)
    return rng.choice((torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.bitwise_and))(x, y)


def _reduction(x: Tensor, rng: random.Random) -> Tensor:
    d, keep = _dim(x, rng), rng.random() < 0.6
    if not x.dim() or not x.numel():
        return x.sum()
    if x.dtype == torch.bool:
        return rng.choice((x.any(d, keep), x.all(d, keep), x.sum(d), x.cumsum(d)))
    if not x.is_floating_point():
        return rng.choice(
            (
                x.sum(d, keep),
                x.amax(d, keep),
                x.argmin(d, keep),
                x.cumsum(d),
                x.max(d, keep)[1],
                x.prod(d) % 7,
                x.amin(),
            )
        )
    # Not `norm(dim=d)`: torch 2.11 traces that with a wrong shape where d is negative and of size 1.
    return rng.choice((
        x.sum(d, keep) * 0.1, x.mean(d, keep), x.amax(d, keep), x.softmax(d), x.var(d, correction=0, keepdim=keep),
        x.log_softmax(d), torch.nn.functional.layer_norm(x, x.shape[-1:]), x.mean(), x.cumsum(d) * 0.1,
        torch.logsumexp(x, d, keep), x.norm(dim=d % x.dim()), x.clamp(-1, 1).cumprod(d),
    ))  # fmt: skip


def _broadcastable(a: Tensor, b: Tensor) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a.shape), reversed(b.shape)))


def random_program(seed: int) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
    """A function and its inputs. The function makes the same choices whatever the dtype of its floats."""
    rng, g = random.Random(seed), torch.Generator().manual_seed(seed)
    inputs = []
    for dtype in (
        torch.float32,
        rng.choice((torch.int64, torch.int32, torch.int8, torch.uint8)),
        torch.float32,
        torch.bool,
    ):
        shape = [rng.choice((*SIZES, 0) if rng.random() < 0.05 else SIZES) for _ in range(rng.randrange(0, 4))]
        made = torch.randn(shape, generator=g)
        made = made if dtype == torch.float32 else (made > 0) if dtype == torch.bool else (made * 20).to(dtype)
        layout = rng.randrange(4)
        if layout == 1:
            made = made.transpose(0, -1).contiguous().transpose(0, -1) if made.dim() else made
        elif layout == 2 and made.dim():
            made = torch.stack([made, made], -1)[..., 1]
        elif layout == 3 and made.dim() and made.shape[0] > 1:
            made = made.narrow(0, 1, made.shape[0] - 1)
        inputs.append(made)
    length = rng.randrange(4, 20)

    def fn(*tensors: Tensor) -> list[Tensor]:
        rng = random.Random(seed + 1)
        live = list(tensors)
        for _ in range(length):
            x, y, kind = rng.choice(live[-6:]), rng.choice(live), rng.random()
            if kind < 0.25:
                made = _pointwise(x, rng)
            elif kind < 0.45:
                fits = _broadcastable(x, y) and max(x.numel(), y.numel()) < MOST
                made = _binary(x, y, rng) if fits else _pointwise(x, rng)
            elif kind < 0.65:
                made = _view(x, rng)
            elif kind < 0.8:
                made = _indexing(x, rng)
            else:
                made = _reduction(x, rng)
            live.append(made)
        return [t.clone() for t in live[-4:]]

    return fn, inputs


def difference(seed: int, inductor: Inductor, mode: str = "fake", device: str = "cpu") -> str | None:
    """How the compiled program's results differ from eager's, or None."""
    fn, inputs = random_program(seed)
    with torch.device(device):  # for the tensors that the program makes
        return _difference(seed, fn, [t.to(device) for t in inputs], inductor, mode)


def _difference(
    seed: int, fn: Callable[..., list[Tensor]], inputs: list[Tensor], inductor: Inductor, mode: str
) -> str | None:
    exact = fn(*(t.double() if t.is_floating_point() else t for t in inputs))
    if any(t.is_floating_point() and t.numel() and not t.abs().max().item() < 1e6 for t in exact):
        return None  # float32 itself is far from float64
    gm = make_fx(torch.func.functionalize(fn, remove="mutations"), tracing_mode=mode)(*inputs)  # type: ignore[arg-type]
    graph = inductor(gm, inputs)
    if not graph.source:
        return f"seed {seed}: interpreted: {graph.reason_not_recordable}"
    for k, (got, want) in enumerate(zip(graph(*inputs), exact, strict=True)):
        if got.shape != want.shape or (got.dtype != want.dtype and not want.is_floating_point()):
            return (
                f"seed {seed}, output {k}: {got.dtype} {tuple(got.shape)} instead of {want.dtype} {tuple(want.shape)}"
            )
        if want.is_floating_point():
            scale = max(1.0, want.abs().max().item()) if want.numel() else 1.0
            same = torch.allclose(got.double(), want, rtol=1e-3, atol=1e-3 * scale, equal_nan=True)
        else:
            same = torch.equal(got, want)
        # Where float32 eager is as far away the program is ill-conditioned, not the compiler wrong.
        if not same and not torch.allclose(got, fn(*inputs)[k], rtol=1e-3, atol=1e-3):
            return f"seed {seed}, output {k} differs"
    return None


def main() -> None:
    """Compare many programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    start, failed = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as folder:
        inductor = Inductor(InductorSettings(cache_dir=folder, race_matmuls=False))
        for seed in range(options.first, options.first + options.count):
            try:
                found: Any = difference(seed, inductor, device=options.device)
            except Exception as error:  # noqa: BLE001  # the sweep goes on
                last = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{last.filename.rsplit('/', 1)[-1]}:{last.lineno}"
                found = f"seed {seed}: {type(error).__name__}: {str(error)[:300]} ({place})"
            if found:
                failed.append(found)
                print(found, flush=True)
            if seed % 100 == 99:
                done = seed + 1 - options.first
                print(f"{done} graphs, {len(failed)} differ, {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{options.count} graphs, {len(failed)} differ, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
