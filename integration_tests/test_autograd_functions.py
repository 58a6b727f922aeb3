"""Custom autograd functions and checkpoints inside compiled code: captured, with the user's gradients."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from compare import check
from torch.autograd.function import once_differentiable

import torchjit
from torchjit.inspection import explain

BACKENDS = ("eager", "aot_eager")


class Odd(torch.autograd.Function):
    """Its backward is not the derivative, so that a test sees which one ran."""

    @staticmethod
    def forward(ctx, x, y, k):
        ctx.save_for_backward(x, y)
        ctx.k = k
        return x * x * y * k

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        gx = 6 * g * x * y * ctx.k if ctx.needs_input_grad[0] else None
        return gx, g * x * x * ctx.k if ctx.needs_input_grad[1] else None, None


class Separate(torch.autograd.Function):
    @staticmethod
    def forward(x, n=3):
        return x * n, x.argmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.n = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)

    @staticmethod
    @once_differentiable
    def backward(ctx, g, unused):
        assert unused is None
        (x,) = ctx.saved_tensors
        return g * ctx.n + 5 * x, None


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -g


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 7


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(ctx.shape) * 2


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y, x * y, None, 5

    @staticmethod
    def backward(ctx, a, b, c, d):
        assert c is None and d is None
        return a + 1, None


class Mask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.bernoulli(torch.full_like(x, 0.5))
        ctx.mask = mask
        return x * mask

    @staticmethod
    def backward(ctx, g):
        return g * ctx.mask


class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = Odd.apply(x, x, 3.0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        return g * Identity.apply(ctx.saved_tensors[0])


def _several(x, y):
    a, b, none, five = Several.apply(x, y)
    assert none is None
    return a * five, b


def _dirty(x):
    y = x.sin()
    return Doubled.apply(y) + y


PROGRAMS = {
    "saved": lambda x, y: Odd.apply(x.sin(), y, 2.0).cos(),
    "no gradient of an argument": lambda x, y: Odd.apply(x.sin(), y.detach(), 2.0).cos(),
    "the same argument twice": lambda x, y: Odd.apply(x, x, 2) + y,
    "a Python number that is no tensor": lambda x, y: Odd.apply(x * 2, y.relu(), 0.5) * Odd.apply(y, x, 1.5),
    "setup_context": lambda x, y: Separate.apply(x * 2)[0] + Separate.apply(y, 2)[1].sum(),
    "identity": lambda x, y: Identity.apply(x.sin()).exp() + Identity.apply(y),
    "identity of an input": lambda x, y: Identity.apply(x),
    "dirty": lambda x, y: _dirty(x) + y,
    "view": lambda x, y: Flat.apply(x.sin()).exp().sum() + y,
    "several results": _several,
    "random": lambda x, y: Mask.apply(x) * 2 + torch.rand_like(y),
    "nested": lambda x, y: Outer.apply(x) * y,
    "without grad": lambda x, y: Odd.apply(x.detach(), y.detach(), 2.0) + Identity.apply(x.detach()),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_the_users(name, backend):
    f = PROGRAMS[name]
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    compiled = torchjit.compile(f, backend=backend, fullgraph=True)
    check(compiled, f, x, y, backward=name != "without grad")
    check(compiled, f, x, y, backward=name != "without grad")


def test_no_grad_around_it():
    def f(x):
        with torch.no_grad():
            return Identity.apply(x), Odd.apply(x, x, 2.0)

    x = torch.randn(3, requires_grad=True)
    a, b = torchjit.compile(f, backend="eager", fullgraph=True)(x)
    assert a is not x and not a.requires_grad and not b.requires_grad


def test_result_of_a_function_may_be_written_in_place():
    def f(x):
        y = Odd.apply(x, x, 2.0)
        y += 1
        return y.mul_(3)

    check(torchjit.compile(f, backend="eager", fullgraph=True), f, torch.randn(3, requires_grad=True), backward=True)


def test_saved_tensor_that_is_written_raises_in_the_backward():
    def f(x, y):
        y = y * 2
        z = Odd.apply(x, y, 2.0)
        return z, y.add_(1)

    for g in (f, torchjit.compile(f, backend="eager", fullgraph=True)):
        out, _ = g(torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


class Counting(torch.autograd.Function):
    calls: list[str] = []

    @staticmethod
    def forward(ctx, x):
        Counting.calls.append("forward")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Counting.calls.append("backward")
        return g * 3


def test_an_effect_of_the_backward_happens_in_each_backward():
    def f(x):
        return Counting.apply(x.sin())

    compiled = torchjit.compile(f, backend="eager")
    x = torch.randn(3, requires_grad=True)
    compiled(x).sum().backward()
    Counting.calls.clear()
    for _ in range(2):
        compiled(x).sum().backward()
    assert Counting.calls == ["forward", "backward"] * 2


class Reads(torch.autograd.Function):
    factor = 2.0

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * Reads.factor


def test_what_the_backward_reads_is_guarded():
    def f(x):
        return Reads.apply(x)

    compiled = torchjit.compile(f, backend="eager")
    for factor in (2.0, 3.0):
        Reads.factor = factor
        check(compiled, f, torch.randn(3, requires_grad=True), backward=True)


class Stores(torch.autograd.Function):
    kept = None

    @staticmethod
    def forward(ctx, x):
        Stores.kept = x.exp()
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_an_intermediate_that_escapes_is_eager():
    def f(x):
        y = Stores.apply(x)
        return y + Stores.kept

    check(torchjit.compile(f, backend="eager"), f, torch.randn(3, requires_grad=True), backward=True)


class Leaks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kept):
        kept.append(x.exp())
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


def test_an_intermediate_that_leaks_through_an_argument_is_eager():
    def f(x):
        kept: list[Any] = []
        y = Leaks.apply(x, kept)
        return y + kept[0]

    compiled: Any = torchjit.compile(f, backend="eager")
    check(compiled, f, torch.randn(3, requires_grad=True), backward=True)
    assert compiled.compiled.specializations[0].breaks[0].reason.id == "TJ-FX-018"


def test_double_backward():
    def f(x):
        return Odd.apply(x.sin(), x, 2.0)

    def second(g, x):
        (first,) = torch.autograd.grad(g(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), x)[0]

    x = torch.randn(3, requires_grad=True)
    torch.testing.assert_close(second(torchjit.compile(f, backend="eager", fullgraph=True), x), second(f, x))


class Block(torch.nn.Module):
    def __init__(self, reentrant, p=0.0):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.reentrant, self.p = reentrant, p

    def inner(self, x, k=2):
        return F.dropout(torch.sin(self.first(x)), self.p, self.training) * k + x

    def forward(self, x):
        keywords = {} if self.reentrant else {"k": 3}
        return self.last(torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=self.reentrant, **keywords))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant, backend):
    model = Block(reentrant, 0.5 if backend == "eager" else 0.0)
    compiled = torchjit.compile(model, backend=backend, fullgraph=True)
    check(compiled, model, torch.randn(3, 4, requires_grad=True), backward=True)


def test_checkpointed_nodes_are_tagged():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    torchjit.compile(Block(False), backend=backend)(torch.randn(3, 4, requires_grad=True))
    tags = {n.name: n.meta.get("ac_graph_id") for n in graphs[0].graph.nodes if n.op.startswith("call")}
    assert tags["sin"] == tags["mul"] == 1 and all(
        "recompute" not in n.meta for n in graphs[0].graph.nodes if n.name == "linear_1"
    )


def test_a_break_inside_a_checkpoint_is_one_break():
    def inner(x):
        return x.sin() * x.sum().item()

    def f(x):
        return torch.utils.checkpoint.checkpoint(inner, x.cos(), use_reentrant=False) + 1

    x = torch.randn(3, requires_grad=True)
    assert len(explain(f)(x).breaks) >= 1
    check(torchjit.compile(f, backend="eager"), f, x, backward=True)


class TooLong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.sum().expand(7)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nodes_and_errors_have_the_name_of_the_users_class(backend):
    def f(x):
        return TooLong.apply(x)

    results = []
    for run in (f, torchjit.compile(f, backend=backend)):
        out = run(torch.randn(4, requires_grad=True))
        with pytest.raises(RuntimeError, match="returned an invalid gradient") as caught:
            out.sum().backward()
        results.append((out.grad_fn.name(), str(caught.value)))
    assert results[0] == results[1]
