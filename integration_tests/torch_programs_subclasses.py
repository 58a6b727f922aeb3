"""Programs over subclasses of torch.Tensor that see calls through `__torch_function__`, torch's or their own."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree
from torch_programs import program, stateful

__all__: list[str] = []


class Plain(torch.Tensor):
    """With torch's own method."""

    scale = 3.0

    @property
    def doubled(self) -> Any:
        return self * 2

    def scaled(self) -> Any:
        return self * self.scale

    @classmethod
    def of(cls, t: torch.Tensor) -> Any:
        return t.as_subclass(cls)


class Sub(Plain):
    def sin(self) -> Any:
        return super().sin() + 100


class Tagged(torch.Tensor):
    """Hands a tag on, sees `sin` and refuses `cos`."""

    seen: list[str] = []

    @staticmethod
    def __new__(cls, t: torch.Tensor, tag: str) -> Any:
        return torch.Tensor._make_subclass(cls, t)

    def __init__(self, t: torch.Tensor, tag: str) -> None:
        self.tag = tag

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.cos:
            raise ValueError("no cos")
        if func is torch.tan:
            return NotImplemented
        found = super().__torch_function__(func, types, args, kwargs or {})
        tags = [a.tag for a in args if isinstance(a, Tagged) and hasattr(a, "tag")]
        if isinstance(found, Tagged) and tags:
            found.tag = tags[0]
        return found * 3 if func is torch.sin else found


class Unwrapping(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Tagged.seen.append(func.__name__)
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*pytree.tree_map(lambda a: a, args), **(kwargs or {}))
        return found.as_subclass(cls) if isinstance(found, torch.Tensor) and func is not torch.Tensor.sum else found


def _of(most_breaks: int, *makers: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    """Register a function of tensors made by these."""

    def register(f: Any) -> Any:
        @stateful(most_breaks, f.__name__)
        def program_of() -> Any:
            Tagged.seen.clear()
            return f, tuple(make(torch.randn(3, 4)) for make in makers), ()

        return f

    return register


def _plain(t: torch.Tensor) -> Any:
    return t.as_subclass(Plain)


def _same(t: torch.Tensor) -> torch.Tensor:
    return t


def _leaf(t: torch.Tensor) -> Any:
    return t.as_subclass(Plain).requires_grad_()


def _sub(t: torch.Tensor) -> Any:
    return t.as_subclass(Sub)


def _tagged(t: torch.Tensor) -> Any:
    return Tagged(t, "a")


def _unwrapping(t: torch.Tensor) -> Any:
    return t.as_subclass(Unwrapping)


@program(0)
def subclasses_made_inside(x):
    y = x.as_subclass(Plain)
    z = F.linear(y, torch.ones(4, 4)).relu() + x
    kinds = [type(t).__name__ for t in (y, z, z.as_subclass(torch.Tensor), z.data, z[0])]
    return kinds, isinstance(z, Plain), z.as_subclass(torch.Tensor) * 2, Tagged(x.detach(), "b").tag, Plain.of(x)


@_of(0, _sub, _plain, _same)
def results_of_subclasses(x, y, z):
    named = x.max(0)
    return (
        x + y,
        y + x,
        y.add(z),
        z - y,
        2 / y,
        named.values,
        named,
        x.split(2, 1),
        torch.cat([z, y]),
        x.shape,
        list(y),
        y.T,
    )


@_of(0, _sub)
def members_of_subclasses(x):
    x.note = 3
    y = x.doubled
    y.note = x.note + 1
    return y, y.note, x.scale, x.scaled(), x.sin(), torch.sin(x), Sub.of(x * 1), hasattr(x * 1, "note"), x.shape[0]


@_of(0, _plain, _same)
def writes_through_subclasses(x, y):
    x[0] = 1
    x[1:, 2] = x[0, 0]
    x.as_subclass(torch.Tensor).add_(1)
    y.add_(x)
    same = x.contiguous() is x, F.dropout(x, training=False) is x
    return x.mul_(2), y, torch.add(x, x, out=y), same, torch.overrides.has_torch_function((x,))


@_of(0, _leaf, _same)
def gradients_of_subclasses(x, y):
    with torch._C.DisableTorchFunctionSubclass():
        plain = x * y
    return (x * x * y).sin(), plain, x.detach()


@_of(0, _tagged, _same)
def a_method_of_its_own(x, y):
    z = torch.sin(x) + y
    try:
        torch.cos(z)
    except ValueError as error:
        z = z * len(str(error))
    return z, z.tag, (y - z).tag


@_of(0, _unwrapping)
def a_method_that_logs(x):
    y = (x * 2).exp() + x[0]
    return y, y.sum(), list(Tagged.seen), x.shape


@_of(1, _tagged)
def a_method_that_refuses(x):
    return torch.tan(x)


@_of(1, _plain)
def a_break_between(x):
    return (x * float((x * 2).sum())).sin()


@_of(5, _plain)
def a_break_where_dispatch_is_off(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = x * 2
        y = y * float(y.sum())
    return y, x * 2


@_of(3, _leaf)
def subclasses_where_code_runs_later(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return torch.vmap(lambda r: r.sin())(x.detach()), y, nn.Parameter(x * 2)


@stateful(0, "a buffer and a parameter of a subclass")
def _state() -> Any:
    module = nn.Linear(4, 4)
    module.register_buffer("b", torch.randn(4).as_subclass(Plain))
    module.p = nn.Parameter(torch.randn(4).as_subclass(Plain))
    return (lambda x: module(x) * module.p + module.b), (torch.randn(3, 4),), (module,)
