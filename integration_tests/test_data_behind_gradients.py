"""`.data` assigned or written between what a forward used and its backward: which values the gradients are made of.

Eager PyTorch remembers tensors: of a tensor itself a backward pass reads what its `data` is by then, of a view the memory
that there was, and of all what was written to that memory since.
"""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import torchjit


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.buf = torch.randn(4, 4)


def vmapped(m, a, b):
    y = torch.func.vmap(m.linear)(a)
    m.linear.weight.data = m.linear.weight.data * 2
    return y


def itself_and_a_view(m, a, b):
    y = a * m.linear.weight, m.linear(a)
    m.linear.weight.data = m.linear.weight.data * 2
    return (*y, m.linear(a))


def what_was_computed(m, a, b):
    t = functional.linear(a, a)
    y = m.linear.weight * t
    t.data = t.data * 2
    return y


def the_maker_of_what_was_assigned(m, a, b):
    t = (a * m.buf).exp()
    y = t * m.linear.weight
    t.data = t.data * 2
    return y, t


def written_and_forgotten(m, a, b):
    t = a.sin()
    y = t.data * m.linear.weight
    t.data.zero_()
    return y


def written_in_part(m, a, b):
    t = m.linear.weight * a[0]
    y = a.cumsum(0) * t
    t.data[0] = 3.0
    return y


def written_twice(m, a, b):
    t = functional.gelu(a)
    t.data.mul_(2)
    y = t * m.linear.weight
    t.data.clamp_(-0.5, 0.5)
    return y


def written_with_a_version(m, a, b):
    t = m.linear.weight * a[0]
    y = a.cumsum(0) * t
    with torch.no_grad():
        t.mul_(2)
    return y


def other_strides(m, a, b):
    y = a * m.linear.weight
    m.linear.weight.data = m.linear.weight.data.t()
    return y


def other_sizes(m, a, b):
    y = a @ b
    b.data = b.data[:2]
    return y


def merged(m, a, b):
    low, high = b[:, :1] * 1, b[:1] * 1
    m.linear.weight.data += low @ high
    y = m.linear(a)
    m.linear.weight.data -= low @ high
    return y, m.linear.weight * a


def normalized(m, a, b):
    y = functional.layer_norm(a, (4,), m.linear.bias)
    a.data.mul_(3.0).add_(1.0)
    return y * y, m.linear(a)


def no_history(m, a, b):
    y = m.linear(b)
    m.linear.weight.data = m.linear.weight.data * 2
    return y.detach(), m.linear(a)


PROGRAMS = [
    vmapped, itself_and_a_view, what_was_computed, the_maker_of_what_was_assigned, written_and_forgotten, written_in_part,
    written_twice, written_with_a_version, other_strides, other_sizes, merged, normalized, no_history,
]  # fmt: skip


def _outcome(f):
    torch.manual_seed(0)
    m, a, b = Model(), torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    found = []
    for _ in range(2):
        results = f(m, a, b)
        results = results if isinstance(results, tuple) else (results,)
        found.append([y.detach().clone() for y in results])
        try:
            sum((y * (y.detach() + 2)).sum() for y in results if y.requires_grad).backward()
        except RuntimeError as error:
            return found, error, b
    return found, [p.grad for p in (a, *m.parameters())], [p.detach() for p in (a, *m.parameters())], b, m.buf


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients(f, backend):
    compiled = torchjit.compile(f, backend=backend, on_error="raise")
    (got, *got_after), (want, *want_after) = _outcome(compiled), _outcome(f)
    if isinstance(want_after[0], RuntimeError):
        assert str(got_after.pop(0))[:50] == str(want_after.pop(0))[:50]
    torch.testing.assert_close((got, got_after), (want, want_after))


def exponential(a, b):
    return a.sin().exp()


def two_results(a, b):
    y = a.tanh()
    return y, y * b


def half_of_a_rectified_one(a, b):
    return a.relu()[:2]


def transposed(a, b):
    t = a.sin()
    return t.t(), t * b


def a_copy_for_a_product(a, b):
    t = b.detach().clone()
    return t, torch.matmul(t.to(a.dtype), a[0])


def of_integers(a, b):
    t = (a * 3).long()
    return t, a.sin() * t


def only_data(a, b):
    t = a.exp()
    return t.data, t * t


def only_data_of_a_product(a, b):
    t = a @ a
    return t.data, t * t


def a_root(a, b):
    return (a * a).sqrt()


def a_squashed_input(a, b):
    return torch.sigmoid(a)


RESULTS = [
    exponential, two_results, half_of_a_rectified_one, transposed, a_copy_for_a_product, of_integers, only_data,
    only_data_of_a_product, a_root, a_squashed_input,
]  # fmt: skip
WRITES = {
    "the data of a result": lambda a, y: y.data.mul_(-3),
    "an argument's data": lambda a, y: a.data.mul_(-3),
    "a result": lambda a, y: y.mul_(-3),
    "nothing": lambda a, y: None,
}
CASES = [(f, write) for f in RESULTS for write in WRITES if (f, write) != (half_of_a_rectified_one, "a result")]
"""Not a write to a result that is a view of what eager PyTorch has saved: for autograd it is a tensor of its own."""


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(("f", "write"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_what_the_caller_writes_before_the_backward(f, write, backend, dynamic):
    seen = []
    for run in (torchjit.compile(f, backend=backend, dynamic=dynamic, on_error="raise"), f):
        torch.manual_seed(0)
        a, b = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
        results = run(a, b)
        results = results if isinstance(results, tuple) else (results,)
        WRITES[write](a, results[0])
        try:
            sum(y.cos().sum() for y in results if y.requires_grad).backward()
            seen.append(a.grad)
        except RuntimeError as error:
            seen.append(str(error)[:60])
    assert type(seen[0]) is type(seen[1])
    if isinstance(seen[0], str):
        assert seen[0] == seen[1]
    else:
        torch.testing.assert_close(*seen)


def product(a, b):
    return a @ b


def elementwise(a, b):
    return a * b, b.sin()


OTHERS = {
    "transposed": lambda b: b.t(),
    "other strides": lambda b: torch.randn(8, 4)[::2],
    "fewer": lambda b: b[:1],
    "more": lambda b: torch.randn(6, 4),
    "none": lambda b: b.new_empty(0),
    "other sizes": lambda b: b.reshape(8, 2),
    "double": lambda b: b.double(),
    "the same layout": lambda b: b * 2,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("f", [product, elementwise], ids=lambda f: f.__name__)
def test_an_argument_is_given_other_memory_before_the_backward(f, other, backend, dynamic):
    """Of another layout, which compiled code does not expect: it would read beyond the end."""
    compiled = torchjit.compile(f, backend=backend, dynamic=dynamic, on_error="raise")
    for _ in range(2):
        seen = []
        for run in (compiled, f):
            torch.manual_seed(0)
            a, b = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
            result = run(a, b)
            b.data = OTHERS[other](b.data)
            try:
                (result if isinstance(result, torch.Tensor) else result[0]).cos().sum().backward()
                seen.append(a.grad)
            except RuntimeError as error:
                seen.append(str(error))
        assert type(seen[0]) is type(seen[1]), seen
        if isinstance(seen[0], torch.Tensor):
            torch.testing.assert_close(*seen)


def through_another_dtype(a):
    view = a.unflatten(0, (-1, 1))
    a.view(torch.int32).bitwise_and_(0x7FFFFFFF)
    return view, view * 2, a


def without_history(a):
    view, scaled = a.unflatten(0, (-1, 1)), a * 1
    with torch.no_grad():
        a.mul_(2)
    return view, view * 2, a, scaled


LEAVES = {
    "a view": lambda base: base[:4].requires_grad_(),
    "a detached view": lambda base: base[:4].detach().requires_grad_(),
    "no view": lambda base: base.requires_grad_(),
    "a view of a leaf": lambda base: base.requires_grad_()[:4],
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "order", [("a view", "no view"), ("no view", "a view"), ("a detached view", "a view of a leaf")]
)
@pytest.mark.parametrize("f", [through_another_dtype, without_history], ids=lambda f: f.__name__)
def test_a_leaf_that_is_a_view_is_written_without_a_history(f, order, backend):
    """Its other views are then views of the base, in eager, and no longer give it gradients."""
    compiled = torchjit.compile(f, backend=backend)
    for leaf in order:
        seen = []
        for run in (f, compiled):
            torch.manual_seed(0)
            base = torch.randn(8, 4)
            a = LEAVES[leaf](base)
            results = run(a)
            sum(t.sum() for t in results).backward()
            seen.append(
                (a.grad if a.is_leaf else base.grad, [(t.detach(), t._version, t.requires_grad) for t in results])
            )
        torch.testing.assert_close(*seen)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "used",
    [
        lambda x, q: x * q.clone(),
        lambda x, q: x @ q.clone().detach(),
        lambda x, q: x * torch.nn.functional.silu(q.t().clone()).t(),
        lambda x, q: x * (q.detach().clone() + 1).exp(),
    ],
)
def test_a_copy_of_what_is_written_later(used: Any, backend: Any) -> None:
    """As a queue of keys is, that is copied before the new keys are put in."""
    found = []
    for compiled in (used, torchjit.compile(used, backend=backend, fullgraph=True)):
        queue = torch.arange(9.0).view(3, 3) / 9
        x = torch.full((3, 3), 0.5, requires_grad=True)
        y = compiled(x, queue)
        queue.add_(1)
        y.sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])
