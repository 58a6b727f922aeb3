"""NumPy arrays made inside of compiled code: results, their types, layout of memory, what is written, exceptions."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy_programs import FAILING, PROGRAMS

import torchjit


def breaks_of(compiled):
    return [record for s in compiled.compiled.specializations for record in s.breaks]


def same(got, want):
    assert type(got) is type(want)
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    elif isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want)
    elif isinstance(want, np.ndarray | np.generic):
        assert got.dtype == want.dtype and got.shape == want.shape
        if isinstance(want, np.ndarray):
            assert got.flags.writeable == want.flags.writeable
        if want.dtype.kind in "fc":
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        else:
            assert (got == want).all()
    else:
        assert got == want


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, backend):
    f, allowed = PROGRAMS[name]
    compiled = torchjit.compile(f, backend=backend)
    for seed in range(2):
        torch.manual_seed(seed)
        x = torch.randn(3, 4)
        other = x.clone()
        want, got = f(x), compiled(other)
        same(got, want)
        torch.testing.assert_close(other, x)
    found = breaks_of(compiled)
    assert len(found) <= allowed, [f"{b.reason.id} {b.detail}" for b in found]


@pytest.mark.parametrize("name", FAILING)
def test_exception(name):
    f = FAILING[name]
    compiled = torchjit.compile(f, backend="eager")
    for _ in range(2):
        outcomes = []
        for g in (f, compiled):
            with pytest.raises(Exception) as caught:  # noqa: PT011  # which one, eager says
                g(torch.randn(3, 4))
            outcomes.append((caught.type, str(caught.value)))
        assert outcomes[0] == outcomes[1]


def test_every_call_has_arrays_of_its_own():
    compiled = torchjit.compile(lambda x: (np.zeros(3), x), backend="eager")
    first, _ = compiled(torch.ones(1))
    first += 5
    second, _ = compiled(torch.ones(1))
    assert second.sum() == 0 and not np.shares_memory(first, second)


def test_warnings_are_seen_each_time():
    def f(x):
        return x * float(np.log(np.zeros(2) - 1).sum())

    compiled = torchjit.compile(f, backend="eager")
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="invalid value"):
            compiled(torch.ones(1))


def test_sizes_that_change():
    def f(x):
        a = x.numpy()
        return np.sin(a) + 1, a.shape, a.sum(axis=0), torch.from_numpy(a.reshape(-1)) * 2

    compiled: Any = torchjit.compile(f, backend="eager")
    for n in (3, 4, 5, 6):
        x = torch.randn(n, 4)
        same(compiled(x), f(x))
    assert len(compiled.compiled.specializations) <= 2 and not breaks_of(compiled)


def test_no_array_under_autocast():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x.numpy() @ x.numpy().T

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(torchjit.compile(f, backend="eager")(torch.ones(2, 2)), f(torch.ones(2, 2)))


SCALED = np.linspace(0, 1, 4, dtype=np.float32)


def test_arrays_that_were_there_before():
    def f(a, x):
        b = np.sin(a) + SCALED
        return torch.from_numpy(b) * x, b.mean(), a.shape, a

    compiled: Any = torchjit.compile(f, backend="aot_eager", fullgraph=True)
    for n in (3, 4, 5):
        a, x = np.random.rand(n, 4).astype(np.float32), torch.randn(n, 4)
        got = compiled(a, x)
        same(got, f(a, x))
        assert got[-1] is a
    assert len(compiled.compiled.specializations) <= 2
    a = np.random.rand(3, 4)
    same(compiled(a, x[:3]), f(a, x[:3]))  # another type
    SCALED[0] = 3  # it is an input, not a constant
    same(compiled(a, x[:3]), f(a, x[:3]))


def test_an_argument_is_written():
    def f(a):
        a *= 2
        a[0] = 7
        return a

    compiled = torchjit.compile(f, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        a, b = np.arange(4.0), np.arange(4.0)
        assert compiled(a) is a
        same(a, f(b))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_memory_that_inputs_share(backend):
    def f(a, b, x):
        y = a.sum() + b.sum()
        a += 1
        x.add_(1)
        return y, a.sum() + b.sum(), x.sum()

    compiled = torchjit.compile(f, backend=backend)
    for shared in (False, True):
        outcomes = []
        for g in (f, compiled):
            memory = np.arange(8.0)
            a = memory[:4]
            b, x = (memory[2:], torch.from_numpy(memory)) if shared else (memory[4:].copy(), torch.ones(2).double())
            outcomes.append((*g(a, b, x), memory))
        same(outcomes[1], outcomes[0])


@pytest.mark.parametrize(
    "array", [np.arange(4.0)[::-1], np.array([1, 2], dtype=">i4"), np.array(["a"]), np.ma.array([1.0, 2])]
)
def test_arrays_that_a_graph_does_not_take(array):
    def f(a, x):
        return a == a, len(a), x + 1

    compiled = torchjit.compile(f, backend="eager")
    same(compiled(np.arange(4.0), torch.ones(1)), f(np.arange(4.0), torch.ones(1)))
    got, want = compiled(array, torch.ones(1)), f(array, torch.ones(1))
    assert (np.asarray(got[0]) == np.asarray(want[0])).all() and got[1] == want[1]


def test_a_read_only_array():
    a = np.arange(3.0)
    a.flags.writeable = False
    compiled = torchjit.compile(lambda a, x: (a + 1, x), backend="eager")
    same(compiled(a, torch.ones(1))[0], a + 1)
    same(compiled(a.copy(), torch.ones(1))[0], a + 1)
    same(compiled(a, torch.ones(1))[0], a + 1)
