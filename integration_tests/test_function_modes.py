"""Torch function modes: entered inside they are interpreted; around compiled code they see what they see in eager mode."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import torchjit


class TimesTwo(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func in (torch.sin, torch.Tensor.add) else result


class Negated(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return -result if isinstance(result, torch.Tensor) else result


class Names(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


LINEAR = torch.nn.Linear(3, 3)
KEPT = Names()


def _block(x):
    with TimesTwo():
        y = torch.sin(x) + 1
    return y + torch.sin(x)


def _every_kind_of_call(x):
    with Names() as names:
        y = F.softmax(x + 1, 0) + x[0] * x.shape[0] + torch.zeros(3) + F.linear(x, x)
        y += 1
        y[0] = 3
        z = 1 - y
        shapes = len(x), x.T.shape, x.size(), x.dim()
        w = torch.add(x, 1, alpha=2).mean() + F.gelu(x) + F.dropout(x, 0.0) + LINEAR(x)
        loss = F.cross_entropy(x, torch.tensor([0, 1, 2])) + (x == x).sum() + torch.ops.aten.cos.default(x)
    return y, z, w, loss, shapes, names.seen


def _nested(x):
    with Negated():
        with TimesTwo():
            y = torch.sin(x) * x
        z = torch.cos(y)
    return y, z


def _of_the_program(x):
    with KEPT:
        y = x.sin()
    return y


def _under_vmap(x):
    with TimesTwo():
        return torch.vmap(lambda r: torch.sin(r) + r)(x)


def _with_grad_mode(x):
    with TimesTwo(), torch.no_grad():
        y = torch.sin(x)
    return y


def _left_by_an_exception(x):
    try:
        with TimesTwo():
            y = torch.sin(x)
            raise ValueError
    except ValueError:
        return y + torch.sin(x)


def _device(x):
    with torch.device("meta"):
        y = torch.zeros(3)
        z = torch.ones(2, device="cpu")
    return x + 1, str(y.device), z


WHOLE = (
    _block, _every_kind_of_call, _nested, _of_the_program, _under_vmap, _with_grad_mode, _left_by_an_exception, _device,
)  # fmt: skip


def _branch(x):
    with TimesTwo():
        y = torch.sin(x)
        if y.sum() > 100:
            y = y + 1
        return y + 1


def _rows(x):
    with Names() as names:
        for row in x:
            x = x + row
    return x, names.seen


def _stays(x):
    TimesTwo().__enter__()
    return torch.sin(x)


def _raises(x):
    with TimesTwo():
        raise ValueError(float(torch.sin(x).sum()))


def _outcome(function):
    KEPT.seen.clear()
    x = torch.linspace(0, 2, 9).reshape(3, 3)
    try:
        result = function(x)
    except Exception as error:
        result = type(error).__name__, str(error)
    left = torch._C._len_torch_function_stack()
    for _ in range(left):
        torch._C._pop_torch_function_stack()
    return result, left, list(KEPT.seen)


def _assert_equal(got, want):
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want)
    elif isinstance(want, (tuple, list)):
        assert type(got) is type(want) and len(got) == len(want), (got, want)
        for a, b in zip(got, want, strict=True):
            _assert_equal(a, b)
    else:
        assert got == want


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("f", [*WHOLE, _branch, _rows, _stays, _raises], ids=lambda f: f.__name__)
def test_does_what_eager_does(f, backend):
    compiled = torchjit.compile(f, backend=backend, fullgraph=f in WHOLE)
    want = _outcome(f)
    for _ in range(2):
        _assert_equal(_outcome(compiled), want)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_mode_around_compiled_code_sees_what_it_sees_in_eager_mode(backend):
    def f(x):
        return (x.sin() + 1).cos()

    def seen(function):
        with Names() as names:
            function(torch.ones(3))
        return names.seen

    compiled: Any = torchjit.compile(f, backend=backend)
    assert seen(compiled) == seen(compiled) == seen(f)
    compiled(torch.ones(3))
    assert seen(compiled) == seen(f) and len(compiled.compiled.specializations) == 1


def test_a_default_device_does_not_keep_from_compiling():
    compiled: Any = torchjit.compile(lambda x: x + torch.ones(3), backend="eager", fullgraph=True)
    with torch.device("cpu"):
        compiled(torch.ones(3))
    assert len(compiled.compiled.specializations) == 1


def test_the_mode_of_mask_functions_is_interpreted():
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # where torch keeps it

    def masks(x):
        def mask(batch, q, k):
            return (q >= k) & (k <= batch + 2) & q.new_ones((), dtype=torch.bool)

        over_keys = torch.vmap(mask, in_dims=(None, None, 0))
        with TransformGetItemToIndex():
            made = torch.vmap(torch.vmap(over_keys, in_dims=(None, 0, None)), in_dims=(0, None, None))(
                torch.arange(2), torch.arange(4), torch.arange(4)
            )
        return x.masked_fill(~made, -1.0)

    x = torch.randn(2, 4, 4)
    compiled: Any = torchjit.compile(masks, backend="eager")
    assert torch.equal(compiled(x), masks(x))
    assert [record for made in compiled.compiled.specializations for record in made.breaks] == []
