"""Programs that make, freeze, replace and reparametrize parameters inside of a region."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch_programs import program, stateful

__all__: list[str] = []


def _with_layer(most_breaks: int, make: Callable[[], nn.Module] = lambda: nn.Linear(4, 4)) -> Callable[[Any], Any]:
    """Register a function of a module and a tensor."""

    def register(f: Any) -> Any:
        @stateful(most_breaks, f.__name__)
        def program_of() -> Any:
            module = make()
            return (lambda x: f(module, x)), (torch.randn(4, 4, requires_grad=True),), (module,)

        return f

    return register


# ---------------------------------------------------------------------- parameters that the region makes
class _LowRank(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.zeros(2, base.in_features))
        self.b = nn.Parameter(torch.ones(base.out_features, 2))

    def forward(self, x: Any) -> Any:
        return self.base(x) + x @ self.a.t() @ self.b.t()


@_with_layer(0, lambda: nn.ModuleDict({"fc": nn.Linear(4, 4)}))
def low_rank_adapter(m, x):
    if not isinstance(m["fc"], _LowRank):
        m["fc"] = _LowRank(m["fc"])
    return m["fc"](x)


@_with_layer(0)
def parameters_made_one_by_one(m, x):
    for i in range(3):
        m.register_parameter(f"p{i}", nn.Parameter(torch.ones(4) * i))
        x = x * getattr(m, f"p{i}")
    return x


@program(0)
def new_parameters_are_leaves(x):
    p, q = nn.Parameter(torch.ones(4)), nn.Parameter(x.detach() * 2, requires_grad=False)
    p.tag = "a"
    found = (p.requires_grad, p.is_leaf, p.grad is None, p.tag, isinstance(p, nn.Parameter), hasattr(q, "tag"))
    return found, p, q, p * x + q


@program(0)
def new_parameter_shares_its_data(x):
    data = torch.zeros(4)
    p = nn.Parameter(data)
    with torch.no_grad():
        p.add_(1)
        data.add_(2)
    return p * x, data, p


@program(0)
def modules_made_inside(x):
    made = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ParameterList([nn.Parameter(torch.ones(4))]))
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    made[0].weight.grad = torch.ones(4, 4)
    optimizer.step()
    return made[1](made[0](x)), made[0].weight, made


@program(2)
def parameters_that_break(x):
    return nn.Parameter(x * 2), nn.Parameter(torch.zeros(2, 4)[0]) * x


# ---------------------------------------------------------------------- requires_grad
@_with_layer(0)
def freeze_and_thaw(m, x):
    for p in m.parameters():
        p.requires_grad_(False)
    m.weight.mul_(2)
    y = m(x)
    frozen = [p.requires_grad for p in m.parameters()], m.weight * 1
    for p in m.parameters():
        p.requires_grad = True
    return y + m(x), frozen


@_with_layer(0)
def freeze_for_good(m, x):
    m.weight.requires_grad_(not m.weight.requires_grad)
    return m(x), m.weight, m.weight * 2


@program(0, (3, 4), (3, 4), grad=False)
def gradients_switched_on(x, y):
    for t in (x, y):
        t.requires_grad_()
    (g,) = torch.autograd.grad((x * y).sum(), x)
    y.requires_grad_(False)
    return g, x.sin() * y


@program(1, grad=False)
def gradients_switched_on_late(x):
    y = x * 2
    x.requires_grad_()
    return y + x


@_with_layer(2)
def views_follow_a_thawed_tensor(m, x):
    m.weight.requires_grad_(False)
    row = m.weight[0]
    m.weight.requires_grad_(True)
    return row, x * row


@program(1)
def no_leaf_to_freeze(x):
    y = x * 2
    return y.requires_grad_(False)


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a.sin()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos() * 3


@_with_layer(0)
def frozen_in_a_custom_function(m, x):
    m.weight.requires_grad_(False)
    return _Scaled.apply(m.weight) * x


# ---------------------------------------------------------------------- data
@_with_layer(0)
def assigned_data_with_gradients(m, x):
    m.weight.data = m.weight.data.sin() + 1
    return (m(x) * m.weight).cos(), m.weight


@program(0)
def assigned_data_of_an_argument(x):
    x.data = x.data * 2
    return x.sin()


class _Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.ones(4) * 3)

    def forward(self, x: Any) -> Any:
        self.b.data = self.b.data * 2
        return (x * self.b).sin()


@_with_layer(0, _Doubling)
def a_backward_reads_the_assigned_data(m, x):
    return m(x)


@_with_layer(2)
def data_assigned_after_a_use(m, x):
    y = m.weight * x
    m.weight.data = m.weight.data * 2
    return y * m.weight


@_with_layer(1)
def data_assigned_then_written(m, x):
    m.weight.data = m.weight.data * 2
    return m.weight.mul_(x)


@_with_layer(0)
def data_changed_in_place_after_a_use(m, x):
    y = m(x)
    m.weight.data += 1  # which assigns what it has already
    m.bias.data = m.bias.data.mul_(2)
    return y, m(x)


@_with_layer(0)
def merged_for_a_while(m, x):
    low, high = m.weight[:2] * 1, m.weight[:, :2] * 1
    y = m(x)
    m.weight.data += high @ low  # which has a history; the weight keeps its own
    z = m(x)
    m.weight.data -= high @ low
    return y, z, m(x)


@_with_layer(0)
def data_of_a_gradient_changed_in_place(m, x):
    if m.weight.grad is not None:
        m.weight.grad.data *= 0.5
        m.weight.grad += m.weight * 0.1
        m.weight.grad.data *= 2
    return m(x)


@_with_layer(2)
def assigned_data_in_a_custom_function(m, x):
    m.weight.data = m.weight.data * 2
    return _Scaled.apply(m.weight) * x


# ---------------------------------------------------------------------- parametrizations
class _Halved(nn.Module):
    def forward(self, w: Any) -> Any:
        return w * 2

    def right_inverse(self, w: Any) -> Any:
        return w / 2


@_with_layer(3)
def parametrized_for_a_while(m, x):
    parametrize.register_parametrization(m, "weight", _Halved())
    y = m(x)
    parametrize.remove_parametrizations(m, "weight")
    return y + m(x)


@program(1)
def weight_norm_of_a_new_module(x):
    return parametrizations.weight_norm(nn.Linear(4, 4))(x)


@_with_layer(3, lambda: parametrizations.weight_norm(nn.Linear(4, 4)))
def weight_norm_removed_and_added(m, x):
    y = m(x)
    parametrize.remove_parametrizations(m, "weight")
    z = m(x)
    parametrizations.weight_norm(m)
    return y + z


@_with_layer(2)
def pruned_for_a_while(m, x):
    prune.l1_unstructured(m, "weight", 0.5)
    y = m(x)
    prune.remove(m, "weight")
    return y + F.linear(x, m.weight)


@stateful(1, "stacked states that leave")
def _stacked() -> Any:
    models = [nn.Linear(4, 2) for _ in range(3)]

    def f(x):
        parameters, buffers = torch.func.stack_module_state(models)
        return parameters["weight"] * 2, parameters["bias"], buffers, x * 2

    return f, (torch.randn(3, 4, requires_grad=True),), tuple(models)
