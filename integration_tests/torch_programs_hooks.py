"""Programs that register and remove hooks inside: of leaves that were there before, of modules, kept or removed again."""

# mypy: allow-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch_programs import stateful

__all__: list[str] = []


def _hooked(most_breaks: int, *, ordered: bool = True) -> Callable[[Any], Any]:
    """Register a maker of a function of (model, log). `ordered`: hooks that log run in an order that does not depend on a backend."""

    def register(make: Any) -> Any:
        @stateful(most_breaks, make.__name__)
        def program() -> Any:
            model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
            log: list[Any] = []
            return make(model, log), (torch.randn(3, 4, requires_grad=True),), (model, log) if ordered else (model,)

        return make

    return register


@_hooked(0)
def hooks_of_parameters(model, log):
    def f(x):
        handles = [p.register_hook(lambda g: g.clamp(-0.1, 0.1)) for p in model.parameters()]
        return model(x), len(handles)

    return f


@_hooked(0)
def hooks_of_an_argument(model, log):
    def f(x):
        x.register_hook(lambda g: g + 1)
        x.register_hook(lambda g: log.append(float(g.sum())))
        with x.register_hook(lambda g: g * 7):
            y = model(x)
        return y * x

    return f


@_hooked(0)
def a_hook_that_reads_a_result(model, log):
    def f(x):
        scale = x.detach().abs().sum()
        model[0].weight.register_hook(lambda g: g * scale)
        return model(x)

    return f


@_hooked(0)
def a_hook_after_accumulation(model, log):
    def f(x):
        handle = model[0].weight.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum().item()))
        other = model[2].weight.register_post_accumulate_grad_hook(lambda p: log.append("never"))
        other.remove()
        return model(x), handle.id == other.id

    return f


@_hooked(2, ordered=False)
def hooks_removed_in_the_next_call(model, log):
    handles: list[Any] = []

    def f(x):
        for handle in handles:
            handle.remove()
        handles[:] = [model[0].weight.register_hook(lambda g: g * 2)]
        return model(x), len(handles), len(model[0].weight._backward_hooks)

    return f


@_hooked(0)
def a_forward_hook_for_a_while(model, log):
    def f(x):
        seen = []
        handle = model[0].register_forward_hook(lambda m, i, o: seen.append(o))
        y = model(x)
        handle.remove()
        return y, seen[0], len(model[0]._forward_hooks)

    return f


@_hooked(2)
def a_hook_and_a_gradient_inside(model, log):
    def f(x):
        model[0].weight.register_hook(lambda g: g * 2)
        return torch.autograd.grad(model(x).sum(), model[0].weight)

    return f


@_hooked(2)
def a_hook_and_a_backward_inside(model, log):
    def f(x):
        model[0].weight.register_hook(lambda g: g * 2)
        model(x).sum().backward()
        return model[0].weight.grad.clone()

    return f


@_hooked(1)
def a_hook_of_no_gradient(model, log):
    def f(x):
        try:
            x.detach().register_hook(lambda g: g)
        except RuntimeError as error:
            return model(x), str(error)

    return f


@_hooked(1)
def a_hook_under_a_transform(model, log):
    def f(x):
        def row(r):
            model[0].weight.register_hook(lambda g: g * 3)
            return r * 2

        return torch.vmap(row)(x.detach()), model(x)

    return f


@_hooked(0)
def a_hook_from_before_that_is_removed(model, log):
    handles = [
        model[0].register_forward_hook(lambda m, i, o: o * 2),
        model[2].register_forward_pre_hook(lambda m, i: (i[0] + 1,)),
        model[0].weight.register_hook(lambda g: g * 3),
        model[2].weight.register_post_accumulate_grad_hook(lambda p: log.append("never")),
    ]

    def f(x):
        y = model(x)
        while handles:
            handles.pop().remove()
        return y * model(x), len(model[0]._forward_hooks)

    return f


@_hooked(1)
def a_removed_hook_and_a_gradient_inside(model, log):
    handles = [model[0].weight.register_hook(lambda g: g * 3)]

    def f(x):
        while handles:
            handles.pop().remove()
        return torch.autograd.grad(model(x).sum(), model[0].weight)

    return f
