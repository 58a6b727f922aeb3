"""Training programs about memory: inputs and results that share it, writes, sizes changed in place."""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from training_programs import Run, call_and_backward, describe, leaf, loss_of, program, tensors

# ------------------------------------------------------------------------- inputs that share memory


def overlapping() -> list[Any]:
    base = torch.randn(8)
    return [base[:5], base[3:]]


@program(overlapping)
def write_to_overlapping_inputs(a: Tensor, b: Tensor) -> Any:
    a.mul_(2)
    b.add_(a)
    return a + b, a[:2]


@program(lambda: (lambda t: [t, t.t()])(torch.randn(3, 3)))
def write_to_a_tensor_and_its_transpose(a: Tensor, b: Tensor) -> Any:
    a.add_(1)
    b[0].mul_(3)
    return a * b


def views_of_a_nonleaf() -> list[Any]:
    x = leaf(2, 4)
    base = x * 2
    return [base[0], base[1], x]


@program(views_of_a_nonleaf)
def write_under_grad_to_disjoint_views(a: Tensor, b: Tensor, x: Tensor) -> Any:
    a.mul_(b)
    return a.sin() + b


@program(lambda: (lambda x: (lambda y: [y, y.view(-1), x])(x * 2))(leaf(2, 4)))
def write_under_grad_to_a_tensor_and_its_view(a: Tensor, b: Tensor, x: Tensor) -> Any:
    a.mul_(3)
    return a.sum() + b.sin().sum()


def caches() -> list[Any]:
    cache = torch.zeros(2, 4, 3)
    return [cache[0], cache[1], leaf(3, 3), torch.tensor([1])]


@program(caches)
def write_to_two_caches_of_one_tensor(keys: Tensor, values: Tensor, x: Tensor, at: Tensor) -> Any:
    with torch.no_grad():
        keys.index_copy_(0, at, x[:1])
        values[2:].copy_(x[1:])
    return (x @ keys.clone().t()) @ values.clone(), keys[1:]


def slices_in_turn(run: Run, args: list[Any]) -> Any:
    (buffer,) = args
    seen = []
    for at in (0, 4, 0, 2):
        seen.append(describe(run(buffer[at : at + 4], buffer[6:10]), [buffer]))
    seen.append(describe(run(torch.ones(4), buffer[6:10]), [buffer]))
    return seen, describe(buffer, [])


@program(lambda: [[torch.randn(3), torch.randn(4)], [torch.randn(3), torch.randn(4)]])
def write_to_a_list_of_inputs(weights: list[Tensor], steps: list[Tensor]) -> Any:
    torch._foreach_add_(weights, steps, alpha=-0.1)


@program(lambda: [torch.randn(10)], slices_in_turn)
def write_to_slices_that_move(a: Tensor, b: Tensor) -> Any:
    a.mul_(2)
    return b + 1, a[1:]


@program(lambda: (lambda t: [t, t])(torch.randn(4)))
def write_to_the_same_tensor_twice(a: Tensor, b: Tensor) -> Any:
    a.add_(1)
    b.mul_(2)
    return a + b


@program(lambda: (lambda t: [t, t])(leaf(4)), exact=False)  # the sum of its gradients has another order
def the_same_leaf_twice(a: Tensor, b: Tensor) -> Any:
    return a.sin() * b, a


@program(lambda: [torch.randn(1, 4).expand(3, 4)])
def read_an_expanded_input(a: Tensor) -> Any:
    return a + 1, a[0]


@program(lambda: [torch.randn(1, 4).expand(3, 4)])
def write_to_an_expanded_input(a: Tensor) -> Any:
    return a.add_(1)


@program(lambda: [torch.randn(10)[::2], leaf(5)])
def write_to_an_input_with_gaps(a: Tensor, x: Tensor) -> Any:
    a.mul_(2)
    return a * x


@program(lambda: [torch.randn(6, 10)[1:5, 1::2].t(), torch.randn(4, 5).t(), leaf(5)])
def write_to_views_of_an_input_with_gaps(a: Tensor, b: Tensor, x: Tensor) -> Any:
    before = a[1:]
    a[0].mul_(2)
    a.copy_(b)
    before.t()[0].add_(1)
    return a * x.unsqueeze(1), before, a.reshape(-1), (a + 1).stride()


# ------------------------------------------------------------------------- results that are views


@program(lambda: [leaf(2, 3)])
def views_of_an_input(x: Tensor) -> Any:
    return x.view(-1), x[0], x.t(), x.unsqueeze(0)[..., 1:]


def write_to_results(run: Run, args: list[Any]) -> Any:
    results = tensors(run(*args))
    results[-1].mul_(3)
    seen = [describe(results, [*args, *results])]
    loss = loss_of(results)
    if loss is not None:
        loss.backward()  # type: ignore[no-untyped-call]
    return seen, describe([a.grad for a in args if a.is_leaf], [])


@program(lambda: [leaf(2, 3)], write_to_results)
def a_result_and_its_view(x: Tensor) -> Any:
    y = x * 2
    return y, y[0]


@program(lambda: [leaf(2, 3)], write_to_results)
def a_view_of_what_is_not_returned(x: Tensor) -> Any:
    return (x * 2)[0].t()


@program(lambda: [leaf(2, 3)], write_to_results)
def pieces_of_a_result(x: Tensor) -> Any:
    y = x * 2
    return y.split(1)


@program(lambda: [leaf(2, 3)], write_to_results)
def pieces_of_an_input(x: Tensor) -> Any:
    return x.unbind(0)


@program(lambda: [torch.randn(2, 3)], write_to_results)
def a_view_of_a_plain_input(x: Tensor) -> Any:
    return x + 1, x.view(-1)[1:]


@program(lambda: [leaf(2, 3)], write_to_results)
def a_detached_view(x: Tensor) -> Any:
    y = x * 2
    return y, y.detach()[0]


@program(lambda: [leaf(2, 3)], write_to_results)
def a_view_made_without_grad(x: Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        z = y[0]
    return y, z


@program(lambda: [leaf(2, 3)])
def an_expanded_result(x: Tensor) -> Any:
    return (x * 2).unsqueeze(0).expand(4, 2, 3), x.expand(2, 2, 3)


@program(lambda: [leaf(2, 3)])
def a_result_read_as_other_numbers(x: Tensor) -> Any:
    y = x.detach() * 2
    return y, y.view(torch.int32)


# ------------------------------------------------------------------------- sizes, strides and storages changed in place


@program(lambda: [torch.randn(2, 3)])
def transpose_an_input(x: Tensor) -> Any:
    x.transpose_(0, 1)
    return x * 2


@program(lambda: [leaf(2, 3)], lambda run, args: call_and_backward(lambda x: run(x * 1), args))
def transpose_a_nonleaf_input(x: Tensor) -> Any:
    x.transpose_(0, 1)
    return x * 2


@program(lambda: [torch.randn(6)])
def resize_an_input(x: Tensor) -> Any:
    x.resize_(2, 2)
    return x + 1


@program(lambda: [torch.randn(0), torch.randn(4)])
def resize_an_input_and_fill_it(x: Tensor, y: Tensor) -> Any:
    x.resize_(4)
    x.copy_(y)
    return x * 2


@program(lambda: [torch.randn(3), torch.randn(4)])
def set_an_input(x: Tensor, y: Tensor) -> Any:
    x.set_(y)
    return x + 1


@program(lambda: [torch.randn(3), torch.randn(3)])
def the_data_of_an_input(x: Tensor, y: Tensor) -> Any:
    x.data = y
    return x + 1


@program(lambda: [leaf(3)])
def write_through_data(x: Tensor) -> Any:
    x.data.mul_(2)
    return x.sin()


@program(lambda: [leaf(6)])
def resize_an_intermediate(x: Tensor) -> Any:
    y = x.detach() * 2
    y.resize_(3)
    return y * x[:3]


@program(lambda: [leaf(2, 3)])
def squeeze_and_transpose_an_intermediate(x: Tensor) -> Any:
    y = x * 2
    y.unsqueeze_(0).transpose_(1, 2).squeeze_(0)
    return y.sin(), y


@program(lambda: [leaf(2, 3)], exact=False)  # the sum of its gradients has another order
def a_view_of_what_was_transposed(x: Tensor) -> Any:
    y = (x * 2)[:, 1:]
    y.t_()
    y.mul_(3)
    return y[0], y.stride(), x + 1


@program(lambda: [torch.randn(2, 3)])
def a_view_from_before_the_transposition(x: Tensor) -> Any:
    row = x[0]
    x.t_()
    row.add_(1)
    return x * 2, row


@program(lambda: [leaf(2, 3)])
def as_strided_of_an_input(x: Tensor) -> Any:
    return x.as_strided((2, 2), (1, 2), 1) * 2


# ------------------------------------------------------------------------- writes that eager PyTorch refuses


@program(lambda: [leaf(3)])
def write_to_a_leaf(x: Tensor) -> Any:
    return x.add_(1)


@program(lambda: [leaf(2, 3)])
def write_to_a_view_of_a_leaf(x: Tensor) -> Any:
    x[0].mul_(2)
    return x.sin()


@program(lambda: [leaf(2, 3)])
def write_to_a_view_of_a_leaf_made_without_grad(x: Tensor) -> Any:
    with torch.no_grad():
        v = x[0]
    v.mul_(2)
    return x.sin()


@program(lambda: [leaf(2, 3)])
def write_to_a_leaf_without_grad(x: Tensor) -> Any:
    with torch.no_grad():
        x.add_(1)
    return x.sin()


@program(lambda: [leaf(2, 4)])
def write_to_one_of_several_views(x: Tensor) -> Any:
    a, b = (x * 2).split(2, 1)
    a.add_(1)
    return a + b


@program(lambda: [leaf(3)])
def write_to_what_the_backward_reads(x: Tensor) -> Any:
    y = x.exp()
    z = y * 2
    y.add_(1)
    return z + y


def write_to_the_input_before_the_backward(run: Run, args: list[Any]) -> Any:
    y = run(*args)
    with torch.no_grad():
        args[0].mul_(2)
    y.sum().backward()
    return args[0].grad


@program(lambda: [leaf(3)], write_to_the_input_before_the_backward)
def an_input_that_the_backward_reads(x: Tensor) -> Any:
    return x.sin() * x


# ------------------------------------------------------------------------- non-leaf inputs


@program(lambda: (lambda x: [x, x * 2])(leaf(3)))
def write_to_a_nonleaf(x: Tensor, y: Tensor) -> Any:
    y.mul_(x)
    return y.sin(), y


def retained(run: Run, args: list[Any]) -> Any:
    x = args[0]
    y = x * 2
    y.retain_grad()
    z = run(y)
    z.retain_grad()
    z.sum().backward()
    return y.grad, z.grad, x.grad


@program(lambda: [leaf(3)], retained)
def a_nonleaf_and_a_result_that_retain_grad(x: Tensor) -> Any:
    return x.sin()


@program(lambda: [leaf(3)])
def retain_grad_inside(x: Tensor) -> Any:
    y = x * 2
    y.retain_grad()
    return y.sin(), y


@program(lambda: (lambda x: [x, (x * 2)[1:]])(leaf(3)))
def write_to_a_view_that_is_an_input(x: Tensor, y: Tensor) -> Any:
    y.mul_(2)
    return y.sin()
