"""Training programs about the backward: tangents, hooks, custom functions and operators, random numbers, modules."""

# mypy: allow-untyped-calls, allow-untyped-decorators, no-warn-return-any

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from training_programs import PROGRAMS, Program, Run, call_and_backward, describe, leaf, loss_of, program

# ------------------------------------------------------------------------- tangents


def tangent(make: Callable[[Tensor], Tensor]) -> Callable[[Run, list[Any]], Any]:
    def use(run: Run, args: list[Any]) -> Any:
        out = run(*args)
        out.backward(make(out))
        return describe([a.grad for a in args], [])

    return use


def cube(x: Tensor) -> Any:
    return x.sin() * x


for name, made in {
    "expanded": lambda out: torch.tensor(2.0).expand(out.shape),
    "transposed": lambda out: torch.arange(6.0).view(3, 2).t(),
    "with_gaps": lambda out: torch.arange(12.0).view(2, 6)[:, ::2],
    "with_an_offset": lambda out: torch.arange(8.0)[2:].view(2, 3),
    "negated": lambda out: torch.complex(torch.zeros(2, 3), torch.arange(6.0).view(2, 3)).conj().imag,
    "of_zeros": lambda out: torch._efficientzerotensor((2, 3)),
    "that_requires_grad": lambda out: torch.ones(2, 3, requires_grad=True),
}.items():
    PROGRAMS[f"a_tangent_{name}"] = Program(cube, lambda: [leaf(2, 3)], tangent(made))


def conjugated_tangent(run: Run, args: list[Any]) -> Any:
    out = run(*args)
    weight = torch.complex(torch.arange(3.0), torch.ones(3))
    (out * weight).conj().real.sum().backward()
    out = run(*args)
    out.backward(weight.conj())
    return describe(args[0].grad, [])


@program(lambda: [leaf(3, dtype=torch.complex64)], conjugated_tangent, exact=False)
def a_conjugated_tangent(x: Tensor) -> Any:
    return x * x


# ------------------------------------------------------------------------- backwards


def backward_twice(run: Run, args: list[Any]) -> Any:
    loss = run(*args).sum()
    loss.backward()
    loss.backward()
    return args[0].grad


@program(lambda: [leaf(3)], backward_twice)
def backward_twice_without_retaining(x: Tensor) -> Any:
    return x.sin() * x


def backward_retained(run: Run, args: list[Any]) -> Any:
    loss = run(*args).sum()
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)
    loss.backward()
    return args[0].grad


@program(lambda: [leaf(3)], backward_retained)
def backward_of_a_retained_graph(x: Tensor) -> Any:
    return F.dropout(x.sin(), 0.5) * x


def one_result_only(run: Run, args: list[Any]) -> Any:
    _, b, _ = run(*args)
    return torch.autograd.grad(b.sum(), args, allow_unused=True)


@program(lambda: [leaf(3), leaf(3)], one_result_only)
def the_gradient_of_one_result(x: Tensor, y: Tensor) -> Any:
    return x * y, x.sin(), y.cos()


def interleaved(run: Run, args: list[Any]) -> Any:
    first, second = run(*args), run(*args)
    second.sum().backward()
    first.sum().backward()
    return args[0].grad


@program(lambda: [leaf(3)], interleaved)
def two_calls_before_their_backwards(x: Tensor) -> Any:
    return F.dropout(x, 0.5) * x


def with_hooks(run: Run, args: list[Any]) -> Any:
    seen: list[Any] = []
    args[0].register_hook(lambda g: seen.append(g.clone()) or g * 2)
    out = run(*args)
    out.register_hook(lambda g: seen.append(g.clone()) or g + 1)
    out.sum().backward()
    return seen, args[0].grad


@program(lambda: [leaf(3)], with_hooks)
def hooks_outside(x: Tensor) -> Any:
    return x.sin()


@program(lambda: [leaf(3)])
def a_hook_inside(x: Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sin()


def saved_tensors_hooks(run: Run, args: list[Any]) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        out = run(*args)
    out.sum().backward()
    return args[0].grad


@program(lambda: [leaf(3)], saved_tensors_hooks)
def hooks_of_saved_tensors_outside(x: Tensor) -> Any:
    return x.sin() * x


# ------------------------------------------------------------------------- custom functions and operators


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, n: int) -> Any:
        ctx.save_for_backward(x)
        ctx.n = n
        sign = (x > 0).float()
        ctx.mark_non_differentiable(sign)
        return x**n, sign

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * ctx.n * x ** (ctx.n - 1) * 10, None


@program(lambda: [leaf(3)])
def an_autograd_function(x: Tensor) -> Any:
    y, sign = Cube.apply(x, 3)  # type: ignore[no-untyped-call]
    return y * 2, sign


class Fill(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * 5


@program(lambda: [leaf(3)])
def an_autograd_function_that_writes(x: Tensor) -> Any:
    y = x * 1
    Fill.apply(y)  # type: ignore[no-untyped-call]
    return y.sin()


LOG: list[float] = []


@torch.library.custom_op("torchjit_tests::note", mutates_args=())
def note(x: Tensor) -> None:
    LOG.append(float(x.sum()))


@note.register_fake
def _(x: Tensor) -> None:
    return None


@torch.library.custom_op("torchjit_tests::scale_", mutates_args={"x"})
def scale_(x: Tensor, by: float) -> None:
    x.mul_(by)


@torch.library.custom_op("torchjit_tests::seen", mutates_args=())
def seen_op(x: Tensor) -> Tensor:
    LOG.append(-float(x.sum()))
    return x.clone()


@seen_op.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def with_log(run: Run, args: list[Any]) -> Any:
    LOG.clear()
    seen = call_and_backward(run, args)
    return [seen, [round(value, 3) for value in LOG]]


@program(lambda: [leaf(3)], with_log)
def operators_with_effects(x: Tensor) -> Any:
    note(x)
    y = x * 2
    z = seen_op(y.detach())
    note(y)
    return y.sin(), z


class Loud(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        note(x)
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        note(g)
        seen_op(x)  # nobody reads the result
        return g * 2


@program(lambda: [leaf(3)], with_log)
def effects_in_forward_and_backward(x: Tensor) -> Any:
    y = Loud.apply(x.sin())  # type: ignore[no-untyped-call]
    note(y)
    seen_op(y)
    Loud.apply(y.detach())  # type: ignore[no-untyped-call]
    return Loud.apply(y).cos()  # type: ignore[no-untyped-call]


@torch.library.custom_op("torchjit_tests::square", mutates_args=())
def square(x: Tensor) -> Tensor:
    LOG.append(float(x.sum()))
    return x * x


@square.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def square_backward(ctx: Any, g: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    note(g)
    return 2 * x * g


square.register_autograd(square_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


@program(lambda: [leaf(3)], with_log)
def an_operator_whose_backward_has_effects(x: Tensor) -> Any:
    note(x)
    return square(square(x).sin())


@program(lambda: [leaf(3), torch.randn(3)])
def an_operator_that_writes(x: Tensor, b: Tensor) -> Any:
    y = (x * 2).detach()
    scale_(y, 3.0)
    scale_(b, 2.0)
    return y * x, b + 1


@program(lambda: [leaf(3), torch.randn(3)])
def effects_that_nobody_reads(x: Tensor, b: Tensor) -> Any:
    torch.rand(3)
    F.dropout(x, 0.5)
    b.add_(1)
    torch._assert(x.shape[0] == 3, "three")
    y = torch.zeros(3)
    y.copy_(x.detach())
    return x.sin()


# ------------------------------------------------------------------------- random numbers


@program(lambda: [leaf(4, 4)])
def random_numbers(x: Tensor) -> Any:
    a = F.dropout(x, 0.3)
    b = torch.rand_like(x) * x
    c = torch.bernoulli(torch.full_like(x, 0.5)) * F.alpha_dropout(x, 0.5)
    d = x.new_empty(4).uniform_(0, 2) + torch.randn(4) + torch.randperm(4)
    return a * b, c, d, F.rrelu(x, training=True), torch.normal(x.detach().abs())


@program(lambda: [leaf(4, 4)])
def dropout_used_twice(x: Tensor) -> Any:
    y = F.dropout(x.sin(), 0.5)
    return y * y + F.dropout(y, 0.2).exp()


@program(lambda: [leaf(4, 4)])
def feature_dropout(x: Tensor) -> Any:
    return F.dropout1d(x.unsqueeze(0)), F.dropout(x.sin(), 0.5, inplace=True)


@program(lambda: [leaf(4, 4)])
def a_checkpoint_with_dropout(x: Tensor) -> Any:
    return checkpoint(lambda t: F.dropout(t.sin(), 0.5).exp(), x, use_reentrant=False)


@program(lambda: [leaf(4, 4), leaf(4, 4)])
def a_checkpoint(x: Tensor, w: Tensor) -> Any:
    return checkpoint(lambda t: torch.relu(t @ w).sin(), x * 2, use_reentrant=False)


@program(lambda: [leaf(4, 4), leaf(4, 4)])
def a_reentrant_checkpoint(x: Tensor, w: Tensor) -> Any:
    return checkpoint(lambda t: torch.relu(t @ w).sin(), x * 2, use_reentrant=True)


@program(lambda: [leaf(4, 4)])
def attention_with_dropout(x: Tensor) -> Any:
    q = x.view(1, 1, 4, 4)
    return F.scaled_dot_product_attention(q, q * 2, q, dropout_p=0.5)


# ------------------------------------------------------------------------- modules


def of_module(make: Callable[[], torch.nn.Module], shape: tuple[int, ...]) -> Callable[[], list[Any]]:
    return lambda: [make(), leaf(*shape)]


def train(run: Run, args: list[Any]) -> Any:
    module, x = args
    seen = []
    for _ in range(2):
        module.zero_grad()
        x.grad = None
        loss_of([run(module, x)]).backward()  # type: ignore[union-attr]
        seen += [describe([p.grad for p in module.parameters()], []), describe(x.grad, [])]
        with torch.no_grad():
            for p in module.parameters():
                p.sub_(p.grad * 0.1)
    return seen, describe(list(module.buffers()), [])


def call_module(module: torch.nn.Module, x: Tensor) -> Any:
    return module(x)


for name, build, shape in [
    ("batch_norm", lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)), (8, 4)),
    ("cumulative_batch_norm", lambda: torch.nn.BatchNorm2d(3, momentum=None), (2, 3, 4, 4)),
    ("instance_norm", lambda: torch.nn.InstanceNorm1d(3, track_running_stats=True), (2, 3, 5)),
    ("spectral_norm", lambda: torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 4)), (3, 4)),
    ("weight_norm", lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4)), (3, 4)),
]:
    PROGRAMS[f"module_{name}"] = Program(call_module, of_module(build, shape), train)
