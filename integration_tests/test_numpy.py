"""NumPy beside torch in compiled code: what is captured whole, and what breaks and is right; arrays: `test_numpy_arrays`."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from compare import check, run

import torchjit


def breaks_of(compiled):
    return [record for s in compiled.compiled.specializations for record in s.breaks]


WHOLE = {
    "ufunc": lambda x: x * np.sqrt(4.0),
    "ufunc of a size": lambda x: x / np.sqrt(x.shape[-1]),
    "float64 on the left": lambda x: np.float64(2) * x,
    "float32": lambda x: x * np.float32(2),
    "int32 of integers": lambda x: x.long() + np.int32(3),
    "reshape": lambda x: x.reshape(np.int64(4), 3),
    "negated": lambda x: x.clone().uniform_(-np.log(2.0), np.log(2.0)),
    "prod of a shape": lambda x: x.reshape(np.prod(x.shape)),
    "branch": lambda x: x * 2 if np.isclose(1.0, 1.0) and np.float64(2) > 1 else x,
    "item": lambda x: x * np.float64(2.5).item(),
    "max": lambda x: x * max(np.float64(2), 3),
    "finfo": lambda x: x.masked_fill(x > 0, np.finfo(np.float32).min),
    "finfo of a name, kept": lambda x: (x + float(np.finfo("float16").max), np.finfo(np.float64)),
    "finfo of an array": lambda x: x.clamp(min=float(np.finfo(x.numpy().dtype).eps)),
    "iinfo": lambda x: (x.long() + int(np.iinfo(np.int16).max), np.iinfo("uint8").bits),
    "dtype": lambda x: (x * np.dtype("int64").itemsize, np.dtype(float) == np.float64),
    "tensor of a scalar": lambda x: x + torch.tensor(np.float64(2)).to(x.dtype),
    "dtype of a tensor of a scalar": lambda x: (torch.tensor(np.float32(2)), torch.as_tensor(np.int16(2))),
    "index": lambda x: x[np.int64(1)],
    "assigned": lambda x: x.clone().index_put_((torch.tensor(0),), torch.tensor(1.0)) * np.float64(3),
    "array": lambda x: x + torch.from_numpy(np.arange(4.0)),
    "tensor of an array": lambda x: x + torch.tensor(np.ones(4)),
    "index by an array": lambda x: x[np.array([0, 2])],
    "array of a tensor": lambda x: x + torch.from_numpy(np.sin(x.numpy())),
    "returned": lambda x: (x + 1, np.log(2.0), np.int32(3)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_captured_whole(name):
    f = WHOLE[name]
    compiled = torchjit.compile(f, backend="eager", fullgraph=True)
    for _ in range(2):
        check(compiled, f, torch.randn(3, 4))


@pytest.fixture(autouse=True)
def limits_are_not_known(monkeypatch):
    """NumPy keeps the limits of a dtype's numbers in a table; the first who asks for them fills it."""
    monkeypatch.setattr(np.finfo, "_finfo_cache", {})


def test_limits_of_what_has_none_are_the_programs_error():
    def program(x):
        try:
            return x, np.finfo(np.int32)
        except ValueError as error:
            return x.sin(), str(error)

    compiled = torchjit.compile(program, backend="eager", fullgraph=True)
    check(compiled, program, torch.randn(3))


BREAKS = {
    "bool is a float to torch": lambda x: x.long() * np.bool_(True),
    "float32 cannot be assigned": lambda x: x.clone().__setitem__(0, np.float32(2)),
    "sum of an array": lambda x: x + float(np.sum(x.numpy())),
    "random": lambda x: x * float(np.random.rand()) + float(np.random.normal()),
    "choice": lambda x: x[np.random.choice(3, 2)],
    "warning": lambda x: x + float(np.log(-1.0)),
}


def _outcome(f, x):
    np.random.seed(3)
    random.seed(3)
    try:
        return run(f, (x,), backward=False)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", BREAKS)
def test_breaks_and_is_right(name):
    f = BREAKS[name]
    compiled = torchjit.compile(f, backend="eager")
    x = torch.randn(3, 4)
    for _ in range(2):
        got, want = _outcome(compiled, x), _outcome(f, x)
        if isinstance(want, tuple):
            assert got == want
        else:
            torch.testing.assert_close(got, want, equal_nan=True)
    assert breaks_of(compiled)


def test_scalars_are_guarded_by_type_and_value():
    compiled = torchjit.compile(lambda x, s: x * s, backend="eager", fullgraph=True)
    x = torch.arange(3)
    for s in (np.float64(2), np.float32(2), np.int64(2), 2, 2.0, np.float64(3), np.float64(2)):
        got, want = compiled(x, s), x * s
        assert got.dtype == want.dtype and torch.equal(got, want)


def _same(got, want):
    """Equal, and of the same types all the way down."""
    assert type(got) is type(want)
    if isinstance(want, torch.Tensor):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    elif isinstance(want, tuple | list):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            _same(a, b)
    else:
        assert got == want or got != got  # noqa: PLR0124  NaN


X = torch.arange(24.0).reshape(6, 4)
WITH_NUMBERS = {
    "factor": lambda i: (X * i, i * X, i),
    "addend": lambda i: (X + i, X - i, X.clone().add_(i, alpha=2)),
    "operand": lambda i: (X.long() // i, X % i, X > i, i < X, X == i),
    "function": lambda i: (torch.where(X > i, X, i), X.clamp(i, i + 3), torch.full_like(X, i)),
    "type": lambda i: (isinstance(i, np.integer), isinstance(i, float), type(i).__name__, X * i),
    "passed on": lambda i: [i, X * i, (i, [i])],
    "sum": lambda i: (X * (i + 1), 2 + i, i + X.shape[0]),
    "difference": lambda i: (X * (20 - i), i - 2),
    "product": lambda i: (X * (i * 2), i * i),
    "comparison": lambda i: (X * i if i > 1 else X, i >= 2, i != i),
    "text": lambda i: (X * i, f"{i:>6}", repr(i)),
}
WITH_WHOLE_NUMBERS = {
    "index": lambda i: (X[i], X[1, i - 2], X[i, 1:]),
    "slice": lambda i: (X[:i], X[i:, 1:]),
    "stored item": lambda i: [y := X.clone(), y.__setitem__(i, 3.0)],
    "stored number": lambda i: [y := X.clone(), y.__setitem__((0, 1), i)],
    "size": lambda i: (torch.zeros(i), torch.ones((i, 3)), X.new_zeros(i, 2), X[0].expand(i, 4)),
    "range": lambda i: (torch.arange(i), X.narrow(0, 1, i), X.roll(i, 0)),
    "Python's number": lambda i: (int(i), i.item(), X * int(i), float(i)),
    "negated": lambda i: (-i, X * -i),
    "divided": lambda i: (i // 2, X * (i % 4)),
}
WITH_FLOATS = {
    "half": lambda f: (X * (f / 2), f / 4, -f),
    "Python's float": lambda f: (X * float(f), f.item()),
}
VARYING = [
    *((name, f, t) for name, f in WITH_NUMBERS.items() for t in (np.int64, np.int32, np.uint8, np.float64)),
    *((name, f, t) for name, f in WITH_WHOLE_NUMBERS.items() for t in (np.int64, np.int16)),
    *((name, f, np.float64) for name, f in WITH_FLOATS.items()),
    *((name, WITH_NUMBERS[name], np.float32) for name in ("factor", "addend", "operand", "type", "passed on", "text")),
]


@pytest.mark.parametrize("name, f, cls", VARYING, ids=lambda v: getattr(v, "__name__", v))
def test_scalars_that_vary_are_symbols(name, f, cls):
    compiled = torchjit.compile(f, backend="eager", fullgraph=True)
    for value in (2, 3, 4, 5):
        _same(compiled(cls(value)), f(cls(value)))
    assert len(compiled.compiled.specializations) == 2


def test_loops_and_keys_have_each_number():
    def f(i, d):
        return sum((X * k for k in range(i)), X), {i: 1}, d.get(i)

    compiled = torchjit.compile(f, backend="eager", fullgraph=True)
    for value in (2, 3, 2, 4):
        got, want = (g(np.int64(value), {3: "a"}) for g in (compiled, f))
        _same(got[0], want[0])
        assert got[1:] == want[1:]
        assert type(next(iter(got[1]))) is np.int64


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize(
    "values",
    [
        [np.int8(n) for n in (1, 2, 3, 50, -128, 100)],
        [np.uint8(n) for n in (1, 2, 3, 0, 100, 255)],
        [np.int64(n) for n in (1, 2, 3, 2**61, 2**62 + 5, 2**63 - 2, -(2**63))],
        [np.float64(n) for n in (1, 2, 3, 1e308, float("inf"), float("nan"), -0.0)],
        [
            np.int64(2),
            np.int64(3),
            np.int32(4),
            4,
            np.float64(4),
            4.0,
            np.int64(5),
            np.float32(5),
            np.float64(0.1),
            True,
        ],
    ],
    ids=lambda values: type(values[0]).__name__,
)
def test_arithmetic_of_scalars_has_their_width(values):
    def f(x, n):
        return n * 3, n + 1, -n if n is not True else n, x * (n * 3), n < 5

    compiled = torchjit.compile(f, backend="eager", recompile_limit=32)
    for value in values:
        _same(compiled(X, value), f(X, value))


def test_scalars_beside_sizes_that_vary():
    def f(x, n):
        return x.shape[0] * n, n + x.shape[0], n < x.shape[0], n // x.shape[0], x * n

    compiled = torchjit.compile(f, backend="eager", recompile_limit=32)
    for size in (2, 3, 4):
        for n in (np.int64(3), np.int32(4), np.float64(0.5)):
            x = torch.ones(size, 2)
            _same(compiled(x, n), f(x, n))


def test_scalars_in_the_state_of_a_module():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step, self.rate = np.int64(0), np.float64(0.1)

        def forward(self, x):
            before = self.step
            self.step = self.step + 1
            self.rate *= 0.5
            return x * self.step + self.rate, before, self.step, self.rate

    module, plain = Counter(), Counter()
    compiled = torchjit.compile(module, backend="eager", fullgraph=True)
    for _ in range(6):
        _same(compiled(X), plain(X))
        _same((module.step, module.rate), (plain.step, plain.rate))


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
def test_scalars_that_vary_on_each_backend(backend):
    def f(x, i, s):
        return (x * s + i)[i:].sum() * (i + 1) + x[i].sum() * (s / 2), i, s * 3, torch.zeros(i, 2)

    compiled: Any = torchjit.compile(f, backend=backend, fullgraph=True)
    for value in range(6):
        numbers = np.int64(value), np.float64(value * 0.3)
        xs = [torch.arange(14.0).reshape(7, 2).requires_grad_() for _ in range(2)]
        got, want = compiled(xs[0], *numbers), f(xs[1], *numbers)
        got[0].backward()
        want[0].backward()
        torch.testing.assert_close((got[0], got[3], xs[0].grad), (want[0], want[3], xs[1].grad))
        _same(got[1:3], want[1:3])
    assert len(compiled.compiled.specializations) == 2


def test_scalars_survive_a_break():
    def f(x, n):
        k, text = n + 1, f"{n}"
        torchjit.graph_break()
        return x * k, k, text

    compiled = torchjit.compile(f, backend="eager")
    for value in range(4):
        _same(compiled(X, np.int32(value)), f(X, np.int32(value)))


def _spans(shape, length):
    mask = np.zeros(shape, dtype=bool)
    for row in mask:
        for start in np.random.choice(shape[1] - length, 2, replace=False):
            row[start : start + length] = True
    return np.concatenate([mask[:1], mask[1:]])


def test_a_function_of_numpy_runs_for_real_as_a_whole():
    def f(x):
        mask = torch.tensor(_spans((x.shape[0], x.shape[1]), 2))
        return torch.where(mask, x, 0.0) * 2

    compiled: Any = torchjit.compile(f, backend="eager")
    x = torch.randn(3, 8)
    for seed in range(3):
        np.random.seed(seed)
        want = f(x)
        np.random.seed(seed)
        assert torch.equal(compiled(x), want)
    assert [b.reason.id for b in breaks_of(compiled)].count("TJ-FX-020") == 1
    assert len(breaks_of(compiled)) == 1
    assert len(compiled.compiled.specializations) == 2


def test_a_whole_call_that_is_given_a_changed_object():
    class Settings:
        length = 1

    settings = Settings()

    def spans(n):
        return np.arange(n * settings.length)

    def f(x):
        settings.length = x.shape[0]
        return x * float(spans(2).sum())

    check(torchjit.compile(f, backend="eager"), f, torch.randn(3, 4))


def test_zeros_and_nans_of_scalar_arguments_are_told_apart():
    compiled: Any = torchjit.compile(lambda x, s: x / (x * s), backend="eager", fullgraph=True)
    x = torch.ones(2)
    for s in (
        np.float64(0.0),
        np.float64(-0.0),
        np.float32(-0.0),
        np.float64("nan"),
        np.float64("nan"),
        np.float64(0.0),
    ):
        torch.testing.assert_close(compiled(x, s), x / (x * s), equal_nan=True)
    assert len(compiled.compiled.specializations) == 3  # 0.0, float64 that varies, float32
