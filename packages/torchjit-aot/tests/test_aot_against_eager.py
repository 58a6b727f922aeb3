"""Hand-written programs against eager PyTorch: outputs, aliasing, gradients, mutations, versions, random state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from aot_harness import run_both
from torch import Tensor

CASES: list[Any] = []


def leaf(*shape: int) -> torch.Tensor:
    """A leaf that requires grad."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape))).requires_grad_()


def nonleaf(*shape: int) -> torch.Tensor:
    """Requires grad and is no leaf, so it may be written to."""
    return leaf(*shape) * 1.0


def plain(*shape: int) -> torch.Tensor:
    """Does not require grad."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(7 * sum(shape) + len(shape)))


def case(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a program with its arguments."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(pytest.param(f, args, id=f.__name__))
        return f

    return register


# ------------------------------------------------------------------------------------------------------ plain graphs


@case(leaf(4, 5))
def two_cosines(x: Tensor) -> Any:
    return x.cos().cos()


@case(leaf(4, 5), leaf(3, 5), leaf(3))
def linear_relu(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.linear(x, w, b).relu()


@case(leaf(4, 5), leaf(4, 5), plain(4, 5))
def mixed_requires_grad(x: Tensor, y: Tensor, z: Tensor) -> Any:
    return x * y + z, y * z, z + 1


@case(plain(4, 5))
def nothing_requires_grad(x: Tensor) -> Any:
    return (x * 2).sum(), x.argmax()


@case(leaf(4, 5), leaf(3))
def unused_input(x: Tensor, y: Tensor) -> Any:
    return x * 2


@case(leaf(4, 5))
def unused_result(x: Tensor) -> Any:
    x.exp()
    return x * 2


@case(leaf(3, 4))
def dictionary_output(x: Tensor) -> Any:
    return {"a": x * 2, "b": [x + 1, None, 3, "text"], "c": (x.sum(),)}


@case(leaf(3, 4))
def list_output(x: Tensor) -> Any:
    return [x * 2]


@case(leaf(3, 4))
def no_tensor_output(x: Tensor) -> Any:
    return None, 4


@case(leaf(3, 4))
def integer_outputs(x: Tensor) -> Any:
    values, indices = x.max(dim=1)
    return values, indices, (x > 0)


@case(leaf(6, 4))
def only_integer_output_has_no_gradient(x: Tensor) -> Any:
    return x.argmax(dim=1)


@case(leaf(3, 4))
def detached_branch(x: Tensor) -> Any:
    return x * x.detach(), x.detach() * 3


@case(leaf(3, 4))
def a_written_copy_with_other_sizes_and_its_memory(x: Tensor) -> Any:
    y = x.t().reshape(-1)
    y[0] = 2.0
    return y, y.detach(), y[1:]


@case(leaf(3, 4), 3, 2.5)
def python_numbers(x: Tensor, n: int, s: float) -> Any:
    return x * n + s, n


@case(leaf(5, 4), plain(5).argsort())
def index_select(x: Tensor, i: Tensor) -> Any:
    return x[i], x.index_select(0, i)


@case(leaf(5, 4), torch.tensor([1, 1, 0, 4]))
def embedding(w: Tensor, i: Tensor) -> Any:
    return F.embedding(i, w)


@case(leaf(5, 4), torch.tensor([1, 2, 0, 3, 3]))
def cross_entropy(x: Tensor, y: Tensor) -> Any:
    return F.cross_entropy(x, y)


@case(leaf(2, 3, 8, 8), leaf(4, 3, 3, 3), leaf(4))
def convolution(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.max_pool2d(F.conv2d(x, w, b).relu(), 2)


@case(leaf(2, 5, 8), leaf(8), leaf(8))
def layer_norm_gelu(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.gelu(F.layer_norm(x, (8,), w, b))


@case(leaf(1, 2, 5, 4), leaf(1, 2, 5, 4), leaf(1, 2, 5, 4))
def attention(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@case(leaf(4, 6))
def softmaxes(x: Tensor) -> Any:
    return x.softmax(-1), x.log_softmax(0)


@case(leaf(4, 6))
def split_and_cat(x: Tensor) -> Any:
    a, b, c = x.split(2, dim=1)  # type: ignore[no-untyped-call]
    return torch.cat([c, a * 2, b], 1)


@case(leaf(3, 4))
def constants_inside(x: Tensor) -> Any:
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.tensor(0.5) + torch.ones(4)


CONSTANT = torch.arange(4.0)


@case(leaf(3, 4))
def global_constant(x: Tensor) -> Any:
    return x * CONSTANT


@case(leaf(3, 4))
def double_use(x: Tensor) -> Any:
    y = x.sin()
    return y * y + y.exp() * x


@case(leaf(3, 4), leaf(4, 3))
def matmul_chain(a: Tensor, b: Tensor) -> Any:
    return ((a @ b).tanh() @ a).sum()


@case(torch.randn(3, 4, dtype=torch.complex64).requires_grad_())
def complex_numbers(x: Tensor) -> Any:
    return (x * x.conj()).real, x.abs()


@case(leaf(3, 4))
def half_precision(x: Tensor) -> Any:
    return (x.to(torch.bfloat16) * 2).float()


@case(leaf(3, 4), leaf(4, 4))
def autocast_region(x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
    return y.float() * 2, y


@case(leaf(7))
def scalar_output(x: Tensor) -> Any:
    return x.sum(), x.mean(), x.var()


@case(leaf(0, 4))
def empty_tensor(x: Tensor) -> Any:
    return x * 2, x.sum()


@case(leaf(3, 4))
def zero_gradients(x: Tensor) -> Any:
    return (x > 0).float() * 1.0, x.round()


# ------------------------------------------------------------------------------------------- outputs and their aliases


@case(leaf(3, 4))
def output_is_input(x: Tensor) -> Any:
    return x, x * 2


@case(leaf(3, 4))
def output_twice(x: Tensor) -> Any:
    y = x * 2
    return y, y


@case(leaf(3, 4))
def output_view_of_input(x: Tensor) -> Any:
    return x.t(), x[1], x.view(-1)


@case(leaf(3, 4))
def output_view_chain_of_input(x: Tensor) -> Any:
    return x.t().unsqueeze(0)[:, 1:], x * 1


@case(leaf(4, 6))
def output_pieces_of_input(x: Tensor) -> Any:
    a, b = x.chunk(2, 1)
    return a, b, x.unbind(0)[2]


@case(leaf(3, 4))
def output_view_of_output(x: Tensor) -> Any:
    y = x * 2
    return y, y.t(), y[0]


@case(leaf(3, 4))
def output_views_of_hidden_base(x: Tensor) -> Any:
    y = x * 2
    return y.t(), y[0]


@case(leaf(3, 4))
def output_single_view(x: Tensor) -> Any:
    return (x * 2).t()


@case(leaf(3, 4))
def output_detached(x: Tensor) -> Any:
    y = x * 2
    return y, y.detach(), x.detach()


@case(leaf(3, 4))
def output_views_of_written_base(x: Tensor) -> Any:
    y = torch.zeros(5, 4)
    y[1:-1] = x
    return y.view(-1), y, y.detach()[1], y.detach()


@case(plain(3, 4), leaf(3, 4))
def output_view_whose_alias_got_history(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    detached = y.detach()
    row = y[1]
    detached.mul_(w)
    return detached, row


@case(leaf(3, 4))
def output_expanded(x: Tensor) -> Any:
    return (x.sum(0) * 2).expand(5, 4)


@case(leaf(3, 4))
def output_no_grad_view(x: Tensor) -> Any:
    with torch.no_grad():
        v = x[0]
    return v, x * 2


@case(leaf(3, 4))
def output_view_of_plain_result(x: Tensor) -> Any:
    y = torch.zeros(3, 4)
    return y, y[0], x * y


@case(nonleaf(3, 4))
def nonleaf_passthrough(x: Tensor) -> Any:
    return x, x.view(-1), x + 1


# ---------------------------------------------------------------------------------------------------------- grad mode


@case(leaf(3, 4))
def no_grad_region(x: Tensor) -> Any:
    with torch.no_grad():
        y = x * 2
    return y, x * y


@case(leaf(3, 4))
def everything_no_grad(x: Tensor) -> Any:
    with torch.no_grad():
        return x * 2, x.t()


@case(leaf(3, 4))
def enable_grad_inside(x: Tensor) -> Any:
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x.sin()
    return a, b


# ----------------------------------------------------------------------------------------------------------- mutation


@case(plain(3, 4))
def add_to_input(x: Tensor) -> Any:
    x.add_(1)
    return x * 2


@case(plain(3, 4))
def mutate_and_return_input(x: Tensor) -> Any:
    x.mul_(2)
    return x


@case(plain(3, 4))
def mutate_view_of_input(x: Tensor) -> Any:
    x[0].fill_(3.0)
    x[:, 1:3].mul_(2)
    return x + 1


@case(plain(3, 4), leaf(3, 4))
def buffer_with_gradient_elsewhere(b: Tensor, x: Tensor) -> Any:
    b.copy_(b * 0.9 + x.detach() * 0.1)
    return x * b


@case(nonleaf(3, 4))
def mutate_nonleaf_under_grad(x: Tensor) -> Any:
    x.mul_(2)
    return x.sin()


@case(nonleaf(3, 4), leaf(4))
def mutate_row_under_grad(x: Tensor, w: Tensor) -> Any:
    x[1] = w * 2
    return x * x


@case(plain(3, 4), leaf(3, 4))
def plain_input_gets_history(a: Tensor, x: Tensor) -> Any:
    a.mul_(x)
    return a + 1


@case(plain(3, 4), leaf(3, 4))
def plain_input_gets_history_and_is_returned(a: Tensor, x: Tensor) -> Any:
    a.mul_(x)
    return a, a.t()


@case(plain(3, 4), leaf(3, 4))
def saved_value_of_mutated_input(a: Tensor, x: Tensor) -> Any:
    y = a * x
    with torch.no_grad():
        z = a.clone()
    a2 = a + 1
    return y, z, a2


@case(leaf(3, 4))
def inplace_on_intermediate(x: Tensor) -> Any:
    y = x * 2
    y.add_(1).mul_(x)
    return y


@case(leaf(3, 4))
def inplace_on_view_of_intermediate(x: Tensor) -> Any:
    y = x.clone()
    y[0].mul_(3)
    y.t()[1].add_(x[:, 0])
    return y, y.view(-1)[2:5]


@case(leaf(3, 4))
def stale_view_is_read(x: Tensor) -> Any:
    y = x * 1
    v = y[1:]
    y.add_(10)
    return v * 2


@case(leaf(3, 4))
def write_through_chain(x: Tensor) -> Any:
    y = x * 1
    y.view(2, 6).t()[2:4].unsqueeze(0).mul_(5)
    return y


@case(plain(4, 6))
def write_through_pieces(x: Tensor) -> Any:
    y = x * 1
    a, b = y.split(3, dim=1)  # type: ignore[no-untyped-call]
    a.add_(b)
    y.unbind(0)[1].zero_()
    return y, b


@case(leaf(4, 4))
def write_diagonal_and_permuted(x: Tensor) -> Any:
    y = x * 1
    y.diagonal().fill_(2.0)
    y.view(2, 2, 4).permute(2, 0, 1)[1].mul_(3)
    return y


@case(leaf(3, 4))
def setitem_with_mask(x: Tensor) -> Any:
    y = x.clone()
    y[y > 0] = 0.0
    y[:, 0] = 5
    return y


@case(leaf(5, 4), torch.tensor([0, 2, 2]), leaf(3, 4))
def index_put_and_scatter(x: Tensor, i: Tensor, v: Tensor) -> Any:
    y = x.clone()
    y[i] = v
    y.index_add_(0, i, v)
    return y


@case(leaf(3, 4))
def copy_into_empty(x: Tensor) -> Any:
    y = torch.empty(3, 4)
    y.copy_(x)
    return y


@case(leaf(3, 4))
def copy_input_twice(x: Tensor) -> Any:
    a, b = torch.empty(3, 4), torch.empty(3, 4)
    a.copy_(x)
    b.copy_(x)
    return a, b


@case(plain(3, 4), plain(3, 4))
def swap_inputs(a: Tensor, b: Tensor) -> Any:
    t = a.clone()
    a.copy_(b)
    b.copy_(t)
    return a + b


@case(plain(3, 4), plain(3, 4))
def rotate_inputs_without_clone(a: Tensor, b: Tensor) -> Any:
    a.copy_(b)
    b.add_(1)
    return a * b


@case(plain(3, 4))
def copy_with_broadcast_and_cast(x: Tensor) -> Any:
    x.copy_(torch.arange(4))
    x[0] = torch.ones((), dtype=torch.float64)
    return x


@case(plain(3, 4))
def out_variant(x: Tensor) -> Any:
    y = torch.empty(3, 4)
    torch.add(x, 1, out=y)
    return y, x


@case(leaf(3, 4))
def metadata_change_of_intermediate(x: Tensor) -> Any:
    y = x * 2
    y.t_()
    y.unsqueeze_(0)
    return y


@case(leaf(3, 4))
def metadata_change_then_write(x: Tensor) -> Any:
    y = x * 2
    y.t_()
    z = y[0]
    y[1].add_(1)
    y[0].mul_(3)
    return y * 1, z * 2


@case(leaf(3, 4))
def inplace_relu(x: Tensor) -> Any:
    return F.relu(x * 2, inplace=True)


@case(leaf(3, 4), leaf(5, 4), leaf(5))
def inplace_on_linear(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.linear(x, w, b).add_(1).relu_()


@case(leaf(2, 3, 4), leaf(5, 4))
def inplace_on_linear_3d(x: Tensor, w: Tensor) -> Any:
    y = F.linear(x, w)
    y[0].mul_(2)
    return y


@case(plain(2, 3, 4, 4).to(memory_format=torch.channels_last))
def mutate_channels_last(x: Tensor) -> Any:
    x.add_(1)
    return x * 2


@case(leaf(3, 4))
def assign_expanded(x: Tensor) -> Any:
    y = torch.zeros(5, 3, 4)
    y[:] = x
    y[1:3] += x
    return y


@case(leaf(6))
def loop_of_writes(x: Tensor) -> Any:
    y = torch.zeros(6)
    for i in range(6):
        y[i] = x[i] * i + y[i - 1]
    return y


@case(leaf(3, 4))
def inplace_under_no_grad_on_intermediate(x: Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
    return y


@case(leaf(3, 4))
def foreach_ops(x: Tensor) -> Any:
    a, b = x * 1, x * 2
    torch._foreach_add_([a, b], 1.0)
    return a * b


# ------------------------------------------------------------------------------------------------------------- random


@case(leaf(8, 8))
def dropout(x: Tensor) -> Any:
    return F.dropout(x, 0.4, training=True) * 2


@case(leaf(8, 8))
def two_dropouts(x: Tensor) -> Any:
    return F.dropout(F.dropout(x, 0.3).relu(), 0.5)


@case(leaf(8, 8))
def dropout_whose_result_is_dropped(x: Tensor) -> Any:
    F.dropout(x, 0.3)
    return torch.rand(4), x * torch.randn(8)


@case(leaf(8, 8))
def inplace_random(x: Tensor) -> Any:
    mask = torch.empty(8, 8).bernoulli_(0.5)
    noise = torch.empty(8, 8).uniform_(-1, 1)
    return x * mask + noise.normal_()


@case(leaf(8, 8))
def random_like(x: Tensor) -> Any:
    return x * torch.rand_like(x) + torch.randint(0, 5, (8,))


@case(leaf(8, 8))
def random_relu(x: Tensor) -> Any:
    return F.rrelu(x, 0.1, 0.9, training=True)


@case(leaf(6, 5))
def random_leaky_relu_written_to(x: Tensor) -> Any:
    y = F.rrelu(x, 0.1, 0.9, training=True)
    y.copy_(y.flip(0))
    y[1] *= 2
    return y, y.sin()


@case(leaf(8, 8))
def bernoulli_of_probabilities(x: Tensor) -> Any:
    return torch.bernoulli(x.sigmoid()) * x


# ---------------------------------------------------------------------------------------------------------- batch norm


@case(leaf(4, 3, 5, 5), plain(3), plain(3).abs(), leaf(3), leaf(3))
def batch_norm_training(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.batch_norm(x, mean, var, w, b, training=True)


@case(leaf(4, 3, 5, 5), plain(3), plain(3).abs(), leaf(3), leaf(3))
def batch_norm_evaluation(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.batch_norm(x, mean, var, w, b, training=False)


@case(leaf(4, 3), leaf(3), leaf(3))
def batch_norm_without_statistics(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.batch_norm(x, None, None, w, b, training=True)


@case(plain(4, 3, 5, 5), plain(3), plain(3).abs())
def batch_norm_training_without_gradients(x: Tensor, mean: Tensor, var: Tensor) -> Any:
    return F.batch_norm(x, mean, var, training=True)


@pytest.mark.parametrize(("f", "args"), CASES)
def test_equals_eager(f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    run_both(f, args)
