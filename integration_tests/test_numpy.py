"""NumPy beside torch in compiled code: what is captured whole, and what breaks and is right; arrays: `test_numpy_arrays`."""

from __future__ import annotations

import random

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

    compiled = torchjit.compile(f, backend="eager")
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
    compiled = torchjit.compile(lambda x, s: x / (x * s), backend="eager", fullgraph=True)
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
    assert len(compiled.compiled.specializations) == 4
