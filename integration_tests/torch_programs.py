"""Programs of torch's features, each with the most breaks that it may take. `test_torch_programs` runs them.

A program is made anew for each run by a function without arguments that gives (function, arguments, state): what it
returns, writes, logs and leaves behind must be what eager PyTorch leaves behind.
"""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["PROGRAMS"]

PROGRAMS: dict[str, tuple[int, Callable[[], tuple[Any, tuple[Any, ...], tuple[Any, ...]]]]] = {}


def program(most_breaks: int, *shapes: tuple[int, ...], grad: bool = True) -> Callable[[Any], Any]:
    """Register a function of tensors of these shapes; `most_breaks` over all of its compiled regions."""

    def register(f: Any) -> Any:
        def make() -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
            return f, tuple(torch.randn(s, requires_grad=grad) for s in shapes or ((3, 4),)), ()

        PROGRAMS[f.__name__] = most_breaks, make
        return f

    return register


def stateful(most_breaks: int, name: str) -> Callable[[Any], Any]:
    """Register a maker of (function, arguments, state)."""

    def register(make: Any) -> Any:
        PROGRAMS[name] = most_breaks, make
        return make

    return register


# ---------------------------------------------------------------------- hooks
@program(0)
def hook_of_a_result(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sin()


@program(0)
def hook_of_an_argument(x):
    x.register_hook(lambda g: g * 3)
    return (x * 2).sin()


@program(0)
def hook_that_is_removed(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 3)
    handle.remove()
    return y.sin()


@program(1)
def retain_grad(x):
    y = x * 2
    y.retain_grad()
    return y.sin(), y


def _with_hook(most_breaks: int, name: str, attach: Callable[[nn.Module, list[Any]], Any]) -> None:
    @stateful(most_breaks, name)
    def make() -> Any:
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        log: list[Any] = []
        attach(model, log)
        return model, (torch.randn(3, 4, requires_grad=True),), (model, log)


_with_hook(0, "forward hook", lambda m, log: m[0].register_forward_hook(lambda m, i, o: o * 2))
_with_hook(0, "forward pre-hook", lambda m, log: m[0].register_forward_pre_hook(lambda m, i: (i[0] * 2,)))
_with_hook(
    0, "hook with keywords", lambda m, log: m[0].register_forward_hook(lambda m, i, k, o: o * 2, with_kwargs=True)
)
_with_hook(0, "hook always", lambda m, log: m[0].register_forward_hook(lambda m, i, o: o * 2, always_call=True))
_with_hook(0, "hook that logs", lambda m, log: m[0].register_forward_hook(lambda m, i, o: log.append(tuple(o.shape))))
_with_hook(
    0, "hook that stores", lambda m, log: m[0].register_forward_hook(lambda m, i, o: setattr(m, "last", o.detach()))
)
_with_hook(2, "backward hook", lambda m, log: m[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,)))
_with_hook(2, "backward pre-hook", lambda m, log: m[0].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,)))
_with_hook(0, "hook of a parameter", lambda m, log: m[0].weight.register_hook(lambda g: g * 5))
_with_hook(
    0, "hook of a gradient",
    lambda m, log: m[0].weight.register_post_accumulate_grad_hook(lambda p: log.append(float(p.grad.sum()))),
)  # fmt: skip


@stateful(0, "hook that raises")
def _() -> Any:
    model, log = nn.Linear(4, 4), []

    def refuse(m, i, o):
        raise KeyError("refused")

    model.register_forward_hook(refuse)
    model.register_forward_hook(lambda m, i, o: log.append("always"), always_call=True)

    def f(x):
        try:
            return model(x)
        except KeyError as error:
            return x * 2, str(error)

    return f, (torch.randn(3, 4, requires_grad=True),), (model, log)


@stateful(1, "tensor hook that logs")
def _() -> Any:
    log: list[float] = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: log.append(float(g.sum())))
        return y.sin()

    return f, (torch.randn(3, 4, requires_grad=True),), (log,)


@stateful(0, "hook registered inside")
def _() -> Any:
    model = nn.Linear(4, 4)

    def f(x):
        handle = model.register_forward_hook(lambda m, i, o: o * 2)
        y = model(x)
        handle.remove()
        return y + model(x)

    return f, (torch.randn(3, 4, requires_grad=True),), (model,)


# ---------------------------------------------------------------------- modes and subclasses
class TimesTwo(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.sin else result


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n += 1
        return func(*args, **(kwargs or {}))


class Tripled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 3 if func is torch.sin else result


class Two(torch.Tensor):
    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)

    def __init__(self, a, b):
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        first, second = (pytree.tree_map_only(Two, lambda t, n=n: getattr(t, n), args) for n in "ab")
        return Two(func(*first, **(kwargs or {})), func(*second, **(kwargs or {})))


class Duck:
    def __init__(self, t):
        self.t = t

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return Duck(func(*[a.t if isinstance(a, Duck) else a for a in args], **(kwargs or {})))


@program(0)
def function_mode(x):
    with TimesTwo():
        y = torch.sin(x)
    return y + torch.sin(x)


@program(0)
def function_mode_around_methods(x):
    with TimesTwo():
        y = torch.sin(x.new_ones(4)) + x.new_tensor([1.0, 2.0, 3.0, 4.0])
    return y + x


@program(2, grad=False)
def dispatch_mode(x):
    with Count() as count:
        y = x.sin() + 1
    return y, count.n


@program(0)
def device_block(x):
    with torch.device("meta"):
        y = torch.zeros(3)
    return x + 1, str(y.device)


@program(1)
def duck(x):
    return torch.add(Duck(x), 1).t * 2


@program(3, grad=False)
def subclass_inside(x):
    return torch.sin(x.as_subclass(Tripled)) + 1


@program(4, grad=False)
def dispatch_subclass(x):
    return (Two(x, x * 2).sin() + 1).b


# ---------------------------------------------------------------------- higher-order operators
@program(0)
def cond(x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,)) + 1


@program(0, grad=False)
def while_loop(x):
    from torch._higher_order_ops.while_loop import while_loop as loop

    return loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 1.1), (torch.tensor(0), x))


@program(0, grad=False)
def scan(x):
    from torch._higher_order_ops.scan import scan as run

    return run(lambda c, r: (c + r, c * r), x[0].clone(), x)


@program(0)
def autograd_grad(x):
    return torch.autograd.grad((x * x).sum(), x)[0] + 1


@program(1)
def backward_inside(x):
    (x * x).sum().backward()
    return x.grad * 2


@program(1, grad=False)
def elements_that_share_memory(x):
    wide = x[0].expand(3, 4)
    try:
        wide.add_(1)
    except RuntimeError:
        return x * 2, wide + 1
    return x, wide


@program(0)
def dropout_of_everything(x):
    return torch.nn.functional.dropout(x, 1.0), torch.nn.functional.dropout(x, 0.0), torch.rand(2)


# ---------------------------------------------------------------------- kinds of tensors
@program(2, grad=False)
def sparse(x):
    return (x * 2).to_sparse().to_dense() + 1


@program(2, grad=False)
def nested(x):
    return torch.nested.nested_tensor([x[0], x[1, :2]]).to_padded_tensor(0.0) + 1


@program(4, grad=False)
def jagged(x):
    return torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged).sin().to_padded_tensor(0.0)


@program(2, grad=False)
def quantized(x):
    return torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).dequantize() + 1


@program(0)
def complex_numbers(x):
    return torch.view_as_real(torch.fft.fft(x * 2)).sum(-1)


# ---------------------------------------------------------------------- random numbers and defaults
@program(3)
def generator_inside(x):
    return x + torch.rand(4, generator=torch.Generator().manual_seed(3))


@stateful(2, "generator from outside")
def _() -> Any:
    generator = torch.Generator().manual_seed(3)

    def f(x):
        return x + torch.rand(4, generator=generator) + torch.randn(4, generator=generator)

    return f, (torch.ones(3, 4),), (generator,)


@program(1)
def manual_seed(x):
    torch.manual_seed(3)
    return x + torch.rand(4)


@program(0)
def python_random(x):
    return x * random.random() + random.randint(0, 5)


@program(2)
def python_random_seeded(x):
    random.seed(4)
    return x * random.Random(3).random() + random.random()


@program(2)
def default_device(x):
    torch.set_default_device("cpu")
    y = torch.zeros(4)
    torch.set_default_device(None)
    return x + y


@program(2)
def default_dtype(x):
    torch.set_default_dtype(torch.float64)
    y = torch.zeros(4)
    torch.set_default_dtype(torch.float32)
    return x + y


@program(2)
def default_dtype_of_factories(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    made = (
        torch.tensor(1.5),
        torch.rand(3),
        torch.linspace(0, 1, 3),
        torch.eye(2),
        torch.Tensor([1, 2]),
        torch.arange(3),
    )
    weights = nn.init.kaiming_normal_(torch.empty(3, 3))
    facts = torch.finfo().bits, str(torch.get_default_dtype()), str(torch.promote_types(torch.int8, torch.float16))
    mixed = torch.tensor(2.0, dtype=torch.float32) * 1.5 + x
    torch.set_default_dtype(before)
    return made, weights, facts, mixed, torch.zeros(2)


@program(3)
def default_dtype_around_breaks(x):
    torch.set_default_dtype(torch.float64)
    try:
        y = torch.arange(3) / 2
        z = torch.zeros(2) + x.sum().item()
    finally:
        torch.set_default_dtype(torch.float32)
    return y, z, torch.zeros(2) + x.sum()


@program(1, grad=False)
def default_dtype_that_is_none(x):
    try:
        torch.set_default_dtype(torch.int32)
    except TypeError:
        return x * 2, torch.zeros(2)


@program(4)  # in two specialisations
def default_dtype_is_left(x):
    torch.set_default_dtype(torch.float64 if torch.get_default_dtype() is torch.float32 else torch.float32)
    if x.sum().item() > -1e9:
        return x + torch.ones(1)


@program(0)
def old_constructors(x):
    made = (
        torch.Tensor([1, 2.5]),
        torch.FloatTensor([[1.0], [2.0]]),
        torch.LongTensor([1]),
        torch.BoolTensor([True, False]),
    )
    return (
        made,
        torch.IntTensor(2, 3).shape,
        torch.Tensor(torch.Size([2])).shape,
        torch.DoubleTensor().shape,
        x * made[0][1],
    )


@program(3, grad=False)
def old_constructors_with_rules_of_their_own(x):
    return torch.FloatTensor(x[0]), torch.ByteTensor([True]), torch.LongTensor(torch.tensor([1, 2]))


# ---------------------------------------------------------------------- parameters and modules
@program(1)
def parameter_inside(x):
    p = nn.Parameter(torch.ones(4))
    return x * p, p


@program(1)
def linear_inside(x):
    return nn.Linear(4, 2)(x)


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).T


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        parametrize.register_parametrization(self.inner, "weight", Symmetric())

    def forward(self, x):
        with parametrize.cached():
            return self.inner(self.inner(x))


class Grows(nn.Module):
    def forward(self, x):
        if not hasattr(self, "w"):
            self.w = nn.Parameter(torch.ones(4))
        return x * self.w


def _module(most_breaks: int, name: str, build: Callable[[], nn.Module], *shape: int) -> None:
    @stateful(most_breaks, name)
    def make() -> Any:
        model = build()
        return model, (torch.randn(shape, requires_grad=True),), (model,)


_module(0, "parametrization, cached", Cached, 3, 4)
_module(0, "weight norm", lambda: parametrizations.weight_norm(nn.Linear(4, 3)), 3, 4)
_module(0, "spectral norm", lambda: parametrizations.spectral_norm(nn.Linear(4, 3)), 3, 4)
_module(0, "orthogonal", lambda: parametrizations.orthogonal(nn.Linear(4, 3)), 3, 4)
_module(0, "RNN", lambda: nn.RNN(4, 5, num_layers=2, batch_first=True), 3, 6, 4)
_module(0, "LSTM", lambda: nn.LSTM(4, 5, batch_first=True, bidirectional=True, proj_size=3), 3, 6, 4)
_module(0, "GRU", lambda: nn.GRU(4, 5, num_layers=2, dropout=0.2), 3, 6, 4)
_module(0, "GRUCell", lambda: nn.GRUCell(4, 5), 3, 4)
_module(1, "a parameter set inside", Grows, 3, 4)


# ---------------------------------------------------------------------- what a tensor object carries
@program(1, grad=False)
def requires_grad_of_an_argument(x):
    x.requires_grad_()
    return x * 2


@program(1)  # it is returned
def requires_grad_of_a_result(x):
    y = x.detach() * 2
    y.requires_grad = True
    return y * 3, y


@program(1, grad=False)
def data(x):
    x.data = x.data * 2
    return x + 1


@program(0)
def grad_is_set(x):
    x.grad = torch.ones_like(x)
    return x + 1


@program(0)
def own_attribute(x):
    y = x * 2
    y.tag = "a"
    return y + 1, y.tag


@program(2, grad=False)  # the write, which a graph would not count as eager does, and the question
def version(x):
    x.add_(1)
    return x._version


@program(1)
def shape_in_place(x):
    return (x * 2).t_() + 1


@program(1, grad=False)
def resized(x):
    return torch.empty(0).resize_(3, 4).fill_(2) + x


@program(0)
def inference_block(x):
    with torch.inference_mode():
        y = x * 2
    return y.detach(), y.is_inference()


@program(2)
def saved_tensors_hooks(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        y = x.sin()
    return y


@program(2)
def anomaly(x):
    with torch.autograd.set_detect_anomaly(True):
        return x * 2
