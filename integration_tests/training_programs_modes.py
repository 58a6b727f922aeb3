"""Training programs about autocast, grad modes, tensor subclasses and kinds of numbers."""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor
from training_programs import Run, call_and_backward, describe, leaf, program

import torchjit

# ------------------------------------------------------------------------- autocast


@program(lambda: [leaf(4, 4), leaf(4, 4)], tolerance=0.05)
def autocast_casts_a_weight_once(x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = F.linear(F.linear(x, w), w)
    return y, F.linear(x, w)


@program(lambda: [leaf(4, 4), leaf(4, 4)], tolerance=0.05)
def autocast_without_its_cache(x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        return F.linear(F.linear(x, w), w)


@program(lambda: [leaf(4, 4), leaf(4, 4)], tolerance=0.05)
def autocast_cache_filled_without_grad(x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            a = F.linear(x, w)
        return F.linear(x, w) + a


@program(lambda: [leaf(4, 4), leaf(4, 4)], tolerance=0.05)
def nested_autocast(x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ w
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ w
        return z + y, torch.is_autocast_enabled("cpu")


def under_autocast(run: Run, args: list[Any]) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return call_and_backward(run, args)


@program(lambda: [leaf(4, 4), leaf(4, 4)], under_autocast, tolerance=0.05)
def autocast_around(x: Tensor, w: Tensor) -> Any:
    return F.softmax(x @ w, -1) @ w


def backward_outside_autocast(run: Run, args: list[Any]) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        out = run(*args)
    out.sum().backward()
    return describe(out, []), describe([a.grad for a in args], [])


@program(lambda: [leaf(4, 4), leaf(4, 4)], backward_outside_autocast, tolerance=0.05)
def autocast_around_the_forward(x: Tensor, w: Tensor) -> Any:
    h = F.layer_norm(F.gelu(x @ w), (4,)) + x
    with torch.autocast("cpu", enabled=False):
        y = h.float() @ w
    return y * torch.einsum("ij->j", h) + h.norm() + (h @ h.t()).pow(2).sum(-1, keepdim=True)


# ------------------------------------------------------------------------- grad modes


@program(lambda: [leaf(3)])
def inference_mode_inside(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
        z = y.sum()
    return y, z, x.sin()


@program(lambda: [leaf(3)])
def an_inference_tensor_in_the_backward(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    return x * y


@program(lambda: [leaf(3)])
def a_clone_of_an_inference_tensor(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    return x * y.clone(), y


@program(lambda: [leaf(3)])
def write_to_a_view_of_an_inference_tensor(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    v = y.view(-1)[1:]
    v.add_(1)
    return v


@program(lambda: [leaf(3)])
def a_view_of_an_inference_tensor_in_the_backward(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    return x * y.view(-1), y


@program(lambda: [leaf(3)])
def a_view_made_in_inference_mode(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x[1:]
    return y, x + 1


def under_inference_mode(run: Run, args: list[Any]) -> Any:
    with torch.inference_mode():
        return call_and_backward(run, args)


@program(lambda: [leaf(3), torch.randn(3)], under_inference_mode)
def inference_mode_around(x: Tensor, b: Tensor) -> Any:
    return x * 2, x.view(-1)


@program(lambda: [leaf(3)])
def grad_modes_inside(x: Tensor) -> Any:
    a = x * 2
    with torch.no_grad():
        b = a.sin()
        with torch.enable_grad():
            c = b * x
    with torch.set_grad_enabled(False):
        d = c * 2
    return a, b, c, d, a.detach()


@program(lambda: [leaf(3, 3)])
def a_break_without_grad(x: Tensor) -> Any:
    with torch.no_grad():
        y = x * 2
        torchjit.graph_break()
        z = y + 1
    return x * z, z, x.view(-1)


def without_grad(run: Run, args: list[Any]) -> Any:
    with torch.no_grad():
        a, b, c = run(*args)
    return describe([a, b, c], [*args, a, b, c]), torch.autograd.grad(b.sum() + c.sum(), args)


@program(lambda: [leaf(3)], without_grad)
def grad_enabled_inside(x: Tensor) -> Any:
    a = x * 2
    with torch.enable_grad():
        b = a * x
        c = b[1:]
    return a, b, c


@program(lambda: [leaf(3)])
def detach_in_place(x: Tensor) -> Any:
    y = x * 2
    y.detach_()
    return y * x, y


@program(lambda: [leaf(3)])
def requires_grad_inside(x: Tensor) -> Any:
    y = x.detach().clone().requires_grad_()
    return y * x, y


@program(lambda: [leaf(3)])
def backward_inside(x: Tensor) -> Any:
    (x * x).sum().backward()
    return x.grad


# ------------------------------------------------------------------------- subclasses


def two(*shape: int, grad: bool = True) -> Tensor:
    return TwoTensor(torch.randn(*shape), torch.randn(*shape)).requires_grad_(grad)


def backward_of_subclasses(run: Run, args: list[Any]) -> Any:
    out = run(*args)
    out.sum().backward()
    return describe(out, []), describe([a.grad for a in args if isinstance(a, Tensor) and a.is_leaf], [])


@program(lambda: [two(3), leaf(3)], backward_of_subclasses)
def a_subclass_as_input(x: Tensor, y: Tensor) -> Any:
    return x.sin() * y


@program(lambda: [two(3, grad=False), leaf(3)], backward_of_subclasses)
def a_subclass_without_grad(x: Tensor, y: Tensor) -> Any:
    return (x + 1) * y


def tangent_is_a_subclass(run: Run, args: list[Any]) -> Any:
    out = run(*args)
    (out * TwoTensor(torch.arange(3.0), torch.ones(3))).sum().backward()
    return describe(args[0].grad, [])


@program(lambda: [leaf(3)], tangent_is_a_subclass)
def a_tangent_that_is_a_subclass(x: Tensor) -> Any:
    return x.sin()


def plain_then_subclass(run: Run, args: list[Any]) -> Any:
    return describe(run(args[0]), []), describe(run(args[1]), []), describe(run(args[0]), [])


@program(lambda: [torch.randn(3), two(3)], plain_then_subclass)
def a_subclass_after_a_plain_tensor(x: Tensor) -> Any:
    return x.sin() + 1


# ------------------------------------------------------------------------- kinds of numbers


@program(lambda: [leaf(5, 3), torch.tensor([0, 2, 2])])
def sparse_gradient_of_an_embedding(w: Tensor, i: Tensor) -> Any:
    return F.embedding(i, w, sparse=True).sin()


@program(lambda: [leaf(5, 3), torch.tensor([0, 2, 2])])
def padding_of_an_embedding(w: Tensor, i: Tensor) -> Any:
    return F.embedding(i, w, padding_idx=2) * 2, F.embedding_bag(i.view(1, 3), w, mode="mean")


@program(lambda: [leaf(5, 3), torch.tensor([[0, 2, 2]])])
def an_embedding_that_renormalizes(w: Tensor, i: Tensor) -> Any:
    return F.embedding(i, w.detach().clone(), max_norm=0.5) * 2, w * 1


@program(lambda: [leaf(3, dtype=torch.complex64), leaf(3)], exact=False)
def complex_arithmetic(z: Tensor, x: Tensor) -> Any:
    return z * x, z.abs(), torch.view_as_real(z) * 2, z.real * x, z.imag.sin()


@program(lambda: [leaf(3, dtype=torch.complex64)], exact=False)
def lazily_conjugated_results(z: Tensor) -> Any:
    return z.conj(), (z * 2).conj(), (z * 2).conj().imag


@program(lambda: [torch.randn(3, dtype=torch.complex64).conj(), leaf(3)], exact=False)
def a_lazily_conjugated_input(z: Tensor, x: Tensor) -> Any:
    return z * x, z.imag * x


@program(lambda: [leaf(2, 3), torch.tensor([1, 2])])
def integers_and_booleans(x: Tensor, n: Tensor) -> Any:
    return x.argmax(1), x > 0, x.int(), n + 1, x.sort(1), x.topk(2), (x * n[0], None, 3)


@program(lambda: [leaf(2, 3), torch.randint(0, 9, (2, 3)), torch.zeros(2, dtype=torch.bool)])
def writes_to_integers_and_booleans(x: Tensor, n: Tensor, b: Tensor) -> Any:
    n.add_(x.detach().long())
    b.logical_or_(x.detach()[:, 0] > 0)
    return x * n


@program(lambda: [leaf(0, 3), leaf(())])
def empty_tensors_and_scalars(x: Tensor, s: Tensor) -> Any:
    return x * s, x.sum() + s, s.expand(2)


@program(
    lambda: [
        torch.randn(3, dtype=torch.float64, requires_grad=True),
        leaf(3),
        torch.randn(3).bfloat16().requires_grad_(),
    ]
)
def mixed_precisions(a: Tensor, b: Tensor, c: Tensor) -> Any:
    return a * b, b * c, (a.float() + c).half()
