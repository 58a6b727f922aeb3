"""torch's own operator database: every function's graph and metadata against eager."""

from __future__ import annotations

import importlib
import itertools
import sys
import types
import unittest
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx.testing import Captured, SimpleSizes

Check = Callable[..., Captured]

# Results without defined contents, and functions that set the random seed inside.
_UNDEFINED = frozenset(
    {
        "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "randn", "randn_like",
        "rand_like", "randint", "randint_like", "multinomial", "normal", "bernoulli", "nn.functional.rrelu",
        "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
        "nn.functional.multi_head_attention_forward", "cauchy", "exponential", "geometric", "log_normal", "uniform",
    }
)  # fmt: skip

# The database calls these in a form that does not accept a stand-in for a tensor, so the proxies cannot follow.
_NEEDS_TENSORS = frozenset(
    {
        "item", "svd_lowrank", "pca_lowrank", "nn.functional.triplet_margin_with_distance_loss", "__getitem__", "cdouble",
        "cfloat", "__radd__", "__rmul__", "__rand__", "__ror__", "__rxor__", "__rsub__", "__rmod__", "__rdiv__",
    }
)  # fmt: skip

_BREAKS_EXPECTED = {
    "allclose": "TJ-FX-001", "argwhere": "TJ-FX-002", "bincount": "TJ-FX-002", "corrcoef": "TJ-FX-001", "cov": "TJ-FX-001",
    "combinations": "TJ-FX-002", "quantile": "TJ-FX-001", "nanquantile": "TJ-FX-001",
    "equal": "TJ-FX-001", "istft": "TJ-FX-001", "linalg.lstsq": "TJ-FX-002", "masked_select": "TJ-FX-002",
    "narrow": "TJ-FX-001", "nn.functional.ctc_loss": "TJ-FX-002", "nn.functional.gaussian_nll_loss": "TJ-FX-001",
    "nn.functional.linear_cross_entropy": "TJ-FX-005", "nn.functional.one_hot": "TJ-FX-001", "nonzero": "TJ-FX-002",
    "resize_": "TJ-FX-008", "resize_as_": "TJ-FX-008", "tensor_split": "TJ-FX-003", "to_sparse": "TJ-FX-004",
    "torch._scaled_mm_v2": "TJ-FX-005", "unique": "TJ-FX-002", "unique_consecutive": "TJ-FX-002",
}  # fmt: skip

# With every size symbolic the bounds of core's expressions take seconds to compute.
_SLOW_SYMBOLIC = frozenset({"nn.functional.conv_transpose3d", "nn.functional.conv_transpose2d", "nn.functional.conv3d"})


def _database() -> list[Any]:
    if "expecttest" not in sys.modules:
        stand_in: Any = types.ModuleType("expecttest")  # the database's module imports it for its own tests only
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    found = importlib.import_module("torch.testing._internal.common_methods_invocations")
    return [op for op in found.op_db if op.dtypes]


def _samples(op: Any, dtype: torch.dtype, count: int) -> Iterator[Any]:
    try:
        yield from itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd), count)
    except Exception:  # the database itself cannot make samples here
        return


def _sweep(
    check: Check, dtype: torch.dtype, count: int, only: Callable[[str], bool], **options: Any
) -> tuple[int, list[str]]:
    """Check samples of every operator. Returns how many agreed, and what went wrong."""
    agreed, wrong = 0, []
    for op in _database():
        if (
            op.name in _UNDEFINED | _NEEDS_TENSORS
            or op.name.startswith(("jiterator", "sparse."))
            or dtype not in op.dtypes
            or not only(op.name)
        ):
            continue
        for sample in _samples(op, dtype, count):
            fn = lambda input, args, kwargs, op=op: op.op(input, *args, **kwargs)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    made = {name: make() for name, make in options.items()}
                    check(fn, sample.input, tuple(sample.args), dict(sample.kwargs), **made)
                agreed += 1
            except GraphBreak as why:
                if _BREAKS_EXPECTED.get(op.name) != why.reason.id and not options:
                    wrong.append(f"{op.name}: {why.reason.id} {why.detail}")
            except Exception as error:
                wrong.append(f"{op.name}: {type(error).__name__} {str(error).splitlines()[:1]}")
    return agreed, wrong


def test_a_sixteenth_of_the_functions(check: Check) -> None:
    agreed, wrong = _sweep(check, torch.float32, 1, lambda name: zlib.crc32(name.encode()) % 16 == 0)
    assert not wrong, "\n".join(wrong)
    assert agreed > 20


@pytest.mark.slow
def test_every_function_float32(check: Check) -> None:
    agreed, wrong = _sweep(check, torch.float32, 1, lambda name: True)
    assert not wrong, "\n".join(wrong)
    assert agreed > 480


def test_functions_with_symbolic_sizes(check: Check) -> None:
    names = {
        "add", "addmm", "bmm", "cat", "clamp", "cumsum", "einsum", "expand", "flatten", "gather", "index_select", "matmul",
        "mean", "narrow", "nn.functional.layer_norm", "nn.functional.conv2d", "nn.functional.max_pool2d", "permute", "repeat",
        "reshape", "roll", "scatter", "softmax", "split", "stack", "sum", "transpose", "tril", "unfold", "view", "where",
        "nn.functional.interpolate", "nn.functional.scaled_dot_product_attention", "nn.functional.pad", "var", "amax", "masked_fill",
    }  # fmt: skip
    agreed, wrong = _sweep(check, torch.float32, 1, names.__contains__, sizes=SimpleSizes)
    assert not wrong, "\n".join(wrong)
    assert agreed > 30


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.bfloat16])
def test_every_function_many_samples(check: Check, dtype: torch.dtype) -> None:
    agreed, wrong = _sweep(check, dtype, 4, lambda name: True)
    assert not wrong, "\n".join(wrong)
    assert agreed > 300


@pytest.mark.slow
def test_every_function_symbolic(check: Check) -> None:
    agreed, wrong = _sweep(check, torch.float32, 1, lambda name: name not in _SLOW_SYMBOLIC, sizes=SimpleSizes)
    assert not wrong, "\n".join(wrong)
    assert agreed > 450
