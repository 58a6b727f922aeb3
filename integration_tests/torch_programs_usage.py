"""Programs of what users of PyTorch use inside a forward: distributions, packed sequences, functional calls, custom operators."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import math
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, stateless
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch_programs import program, stateful

__all__: list[str] = []

D: Any = torch.distributions


# ---------------------------------------------------------------------- distributions
@program(0)
def normal_log_prob(x):
    d = D.Normal(x, x.abs() + 1)
    return d.log_prob(x * 2), d.entropy(), d.rsample()


@program(0)
def categorical(x):
    d = D.Categorical(logits=x)
    a = d.sample()
    return d.log_prob(a), d.entropy(), a


@program(0)
def independent_kl(x):
    p = D.Independent(D.Normal(x, torch.ones_like(x)), 1)
    q = D.Independent(D.Normal(torch.zeros_like(x), torch.ones_like(x)), 1)
    return D.kl_divergence(p, q), p.log_prob(x)


@program(0)
def transformed_normal(x):
    d = D.TransformedDistribution(D.Normal(torch.zeros_like(x), 1.0), [D.transforms.TanhTransform(cache_size=1)])
    y = d.rsample()
    return d.log_prob(y) + x


@program(0)
def bernoulli_and_beta(x):
    b = D.Bernoulli(logits=x)
    return b.log_prob(b.sample()), D.Beta(x.abs() + 1, x.abs() + 2).log_prob(x.sigmoid()), b.mean, b.variance


@program(0)
def mixture(x):
    mix = D.Categorical(torch.ones(4))
    return D.MixtureSameFamily(mix, D.Normal(x, torch.ones_like(x))).log_prob(x.sum(-1))


@program(0)
def multivariate_normal(x):
    return D.MultivariateNormal(x, torch.eye(4)).log_prob(x * 0.5)


@program(0)
def gumbel_and_relaxed(x):
    return F.gumbel_softmax(x, tau=0.5, hard=True), D.RelaxedOneHotCategorical(torch.tensor(0.7), logits=x).rsample()


@program(0)
def multinomial_and_cauchy(x):
    counts = D.Multinomial(3, logits=x)
    scale = x.abs() + 1
    with torch.no_grad():
        drawn, wild = counts.sample(), D.Cauchy(x, scale).sample()
    return counts.log_prob(drawn), drawn, D.Cauchy(x, scale).log_prob(wild), wild


@program(0)
def a_size_is_no_data(x):
    return (
        x.new(x.shape).fill_(1),
        x.new(torch.Size([2, 1])).fill_(2),
        x.new([2.0, 1.0]),
        x.new(torch.Size()).fill_(3) + x,
    )


# ---------------------------------------------------------------------- numbers out of the unit interval
@program(0)
def layer_drop_that_is_off(x):
    for p in (0.0, 0, -1):
        if torch.rand([]) < p:
            continue
        x = x.sin() + torch.rand([])
    dropped = [bool(1.5 > torch.rand(1)), bool(torch.rand(()) >= 0.0), bool(torch.rand([]).le(float("nan")))]
    return x, dropped


@program(3)
def layer_drop_that_is_on(x):
    for p in (0.5, 1.0):
        if torch.rand([]) < p:
            continue
        x = x.sin()
    changed = torch.rand([])
    changed.sub_(1)
    return x, bool(changed < 0.0)


@program(0)
def decisions_about_constants(x):
    end, pad = torch.tensor([2, 3]), torch.tensor(2)
    found = [bool(torch.isin(end, pad).any()), bool((end < 0).any()), int(end[1]), "abcd"[end.min()]]
    return x * int(torch.arange(3).sum()) if end.max() > 2 else x, found


@program(3)
def decisions_about_no_constants(x):
    t = torch.tensor([1, 2])
    first = t[0]
    t.add_(1)
    return x * int(first) if torch.randint(0, 9, (3,)).sum() > 5 else x


# ---------------------------------------------------------------------- results given as `out=`
@program(0, grad=False)
def out_without_elements(x):
    a, b = torch.empty(0), torch.empty(0, dtype=torch.float64)
    torch.mul(x, 2, out=a)
    torch.add(x.T, 1, out=b)
    a.add_(b.T)
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.max(x, 1, out=(values, indices))
    return a, b, values, indices


@program(0)
def numbers_in_place(x):
    y = torch.empty(3, 4).random_(0, 5)
    return x + y.random_(7), torch.zeros(5, dtype=torch.long).random_(-3, 4), y


# ---------------------------------------------------------------------- sequences
@stateful(3, "packed LSTM")
def _() -> Any:
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 5, batch_first=True)

        def forward(self, x):
            packed = pack_padded_sequence(x, torch.tensor([6, 4, 3]), batch_first=True)
            out, (h, c) = self.rnn(packed)
            out, lengths = pad_packed_sequence(out, batch_first=True)
            return out + 1, h, lengths

    model = Packed()
    return model, (torch.randn(3, 6, 4, requires_grad=True),), (model,)


@program(0)
def padded(x):
    return pad_sequence([x[0], x[1, :2], x[2, :3]], batch_first=True, padding_value=1.0) * 2


@stateful(0, "cells in a loop")
def _() -> Any:
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.LSTMCell(4, 5), nn.GRUCell(5, 3)

        def forward(self, x):
            h, c, g = x.new_zeros(3, 5), x.new_zeros(3, 5), x.new_zeros(3, 3)
            outs = []
            for step in x.unbind(1):
                h, c = self.a(step, (h, c))
                g = self.b(h, g)
                outs.append(g)
            return torch.stack(outs, 1), (h, c)

    model = Cells()
    return model, (torch.randn(3, 6, 4, requires_grad=True),), (model,)


# ---------------------------------------------------------------------- functional calls
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return self.b(F.gelu(self.a(x))) * self.scale


@stateful(0, "functional_call")
def _() -> Any:
    model = Net()

    def f(x):
        changed = {name: p * 2 for name, p in model.named_parameters()}
        return torch.func.functional_call(model, changed, (x,)) + model(x)

    return f, (torch.randn(3, 4, requires_grad=True),), (model,)


@stateful(0, "stateless functional_call")
def _() -> Any:
    model = Net()

    def f(x):
        with contextlib.suppress(KeyError):
            return stateless.functional_call(model, {"a.weight": model.a.weight * 0.5}, (x,))

    return f, (torch.randn(3, 4, requires_grad=True),), (model,)


@stateful(0, "gradients of each sample")
def _() -> Any:
    model = Net()

    def f(x):
        params = {k: v.detach() for k, v in model.named_parameters()}
        buffers = {k: v.detach() for k, v in model.named_buffers()}

        def loss(params, sample):
            return torch.func.functional_call(model, (params, buffers), (sample.unsqueeze(0),)).square().mean()

        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, x)

    return f, (torch.randn(3, 4),), (model,)


@stateful(0, "ensemble by vmap")
def _() -> Any:
    models = [Net() for _ in range(3)]

    def f(x):
        params, buffers = torch.func.stack_module_state(models)

        def one(p, b, y):
            return torch.func.functional_call(models[0], (p, b), (y,))

        return torch.vmap(one, in_dims=(0, 0, None))(params, buffers, x)

    return f, (torch.randn(3, 4),), tuple(models)


@program(0)
def jacobian_and_hessian(x):
    y = x.detach()[0]
    return torch.func.jacrev(lambda t: t.sin() * t.sum())(y), torch.func.hessian(lambda t: (t**3).sum())(y), x * 2


# ---------------------------------------------------------------------- trees and containers
class Batch(NamedTuple):
    x: torch.Tensor
    extra: dict


@program(0)
def trees(x):
    batch = Batch(x, {"a": [x * 2, (x + 1,)], "n": 3})
    doubled = pytree.tree_map(lambda t: t * 2 if isinstance(t, torch.Tensor) else t, batch)
    leaves, spec = pytree.tree_flatten(doubled)
    again = pytree.tree_unflatten(leaves, spec)
    return again.x, again.extra["a"], len(leaves), again.extra["n"]


@program(0)
def tree_map_only(x):
    return pytree.tree_map_only(torch.Tensor, torch.sin, OrderedDict(a=x, b={"c": (x * 2, 3)}))


@stateful(0, "module containers")
def _() -> Any:
    class Containers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
            self.named = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
            self.weights = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(2)])
            self.other = nn.ParameterDict({"w": nn.Parameter(torch.randn(4))})

        def forward(self, x, kind="relu"):
            for i, layer in enumerate(self.layers[1:]):
                x = self.named[kind](layer(x)) + self.weights[i]
            for name, w in self.other.items():
                x = x * w if name in self.other else x
            return x, len(self.layers), [n for n, _ in self.named_parameters()][:2]

    model = Containers()
    return model, (torch.randn(3, 4, requires_grad=True),), (model,)


# ---------------------------------------------------------------------- memory and precision
@stateful(0, "checkpoints")
def _() -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU())

    def f(x):
        y = checkpoint(model, x, use_reentrant=False)
        return checkpoint_sequential(model, 2, y, use_reentrant=False)

    return f, (torch.randn(3, 4, requires_grad=True),), (model,)


@stateful(0, "autocast")
def _() -> Any:
    model = nn.Linear(4, 4)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
            with torch.autocast("cpu", enabled=False):
                z = model(y.float())
        return y.float() + z, torch.is_autocast_enabled("cpu")

    return f, (torch.randn(3, 4, requires_grad=True),), (model,)


@stateful(0, "custom_fwd")
def _() -> Any:
    class Scale(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            return g * 2

    return lambda x: Scale.apply(x) + 1, (torch.randn(3, 4, requires_grad=True),), ()


# ---------------------------------------------------------------------- parametrizations, own modules
class Orthogonalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4)), nn.ELU(), nn.Linear(4, 4))
        parametrize.register_parametrization(self.net[2], "bias", nn.Softplus())

    def forward(self, x):
        return self.net(x)


@stateful(0, "two parametrizations")
def _() -> Any:
    model = Orthogonalised()
    return model, (torch.randn(3, 4, requires_grad=True),), (model,)


@stateful(0, "mean teacher")
def _() -> Any:
    student = nn.Linear(4, 4)
    teacher = copy.deepcopy(student).requires_grad_(False)

    def f(x):
        with torch.no_grad():
            for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
                t.mul_(0.9).add_(s, alpha=0.1)
            for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
                t.data.lerp_(s.data, 0.1)
            target = teacher(x)
        return F.mse_loss(student(x), target)

    return f, (torch.randn(3, 4, requires_grad=True),), (student, teacher)


@stateful(0, "key-value cache")
def _() -> Any:
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(4, 12)
            self.register_buffer("k", torch.zeros(1, 8, 4))
            self.register_buffer("v", torch.zeros(1, 8, 4))
            self.at = 0

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            n = x.shape[0]
            self.k[:, self.at : self.at + n] = k
            self.v[:, self.at : self.at + n] = v
            self.at += n
            return F.scaled_dot_product_attention(q[None], self.k[:, : self.at], self.v[:, : self.at])

    model = Attention()

    @torch.no_grad()
    def f(x):
        return model(x)

    return f, (torch.randn(3, 4),), (model,)


@program(0)
def rotary_and_mask(x):
    inv = 1.0 / (10000 ** (torch.arange(0, 4, 2).float() / 4))
    angles = torch.outer(torch.arange(3).float(), inv)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    mask = torch.full((3, 3), -math.inf).triu(1)
    a, b = x.chunk(2, -1)
    q = x * cos + torch.cat((-b, a), -1) * sin
    return torch.softmax(q @ x.T + mask, -1) @ x


# ---------------------------------------------------------------------- NumPy and data-dependent Python
@program(2)
def numpy_in_the_middle(x):
    y = x * 2
    table = np.linspace(0.0, 1.0, 4, dtype=np.float32)
    return y + torch.from_numpy(table)


@program(1)
def item_in_a_condition(x):
    y = x * 2
    if y.sum().item() > -1e9:
        y = y + 1
    return y * 3


@program(0)
def assertion_on_data(x):
    assert (x == x).all(), "not a number"
    return x * 2


@program(1)
def boolean_mask(x):
    return x[x > 0].sum() + x.sum()


# ---------------------------------------------------------------------- custom operators
@torch.library.custom_op("torchjit_usage::shift", mutates_args=())
def shift(x: torch.Tensor, by: float) -> torch.Tensor:
    return x + by


@shift.register_fake
def _(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.empty_like(x)


shift.register_autograd(lambda ctx, g: (g, None))


@torch.library.custom_op("torchjit_usage::fill", mutates_args={"out"})
def fill(out: torch.Tensor, value: float) -> None:
    out.fill_(value)


@program(0)
def custom_operators(x):
    y = shift(x * 2, 1.5)
    out = torch.empty(4)
    fill(out, 3.0)
    return y + out, torch.ops.torchjit_usage.shift(x, 0.5)


# ---------------------------------------------------------------------- einsum-like, einops-like code, indexing
@program(0)
def tensor_algebra(x):
    a = torch.einsum("bi,bj->bij", x, x)
    b = torch.tensordot(x, x, dims=([1], [1]))
    c = x.unflatten(-1, (2, 2)).movedim(-1, 0).flatten(1)
    return a, b, c, torch.block_diag(x, b), torch.cartesian_prod(x[0], x[1])


@program(0)
def indexing(x):
    y = x.clone()
    y[..., 0] = 1.0
    y[torch.arange(2), torch.tensor([1, 2])] += 2
    y[:, None, ::2].mul_(3)
    return y.gather(1, torch.tensor([[0], [1], [2]])), y.scatter_add(0, torch.zeros(1, 4, dtype=torch.long), x[:1]), y


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3

    @classmethod
    def apply(cls, *args):
        return super().apply(*args)


class FromBytes(int):
    @classmethod
    def from_bytes(cls, *args):
        return super().from_bytes(*args) + 1


@program(1)
def class_methods_of_c_through_super(x):
    y = Doubled.apply(x) + Doubled.apply(x)
    return y, FromBytes.from_bytes(b"ab", "big")


# ---------------------------------------------------------------------- modules that are changed inside


@stateful(0, "a_module_moved_to_where_it_is")
def moved():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    return lambda x: model.to(x.device).float()(x), (torch.randn(3, 4, requires_grad=True),), (model,)


@stateful(1, "a_module_of_another_type")
def converted():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    return lambda x: model.double()(x.double()), (torch.randn(3, 4, requires_grad=True),), (model,)


@stateful(2, "a_module_frozen_for_a_while")
def frozen():
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2))

    def f(x):
        model.requires_grad_(False)
        y = model(x)
        model.requires_grad_(True)
        return y + model(x)

    return f, (torch.randn(3, 4, requires_grad=True),), (model,)


@program(0)
def what_is_installed(x):
    return x * (2 if importlib.util.find_spec("torch") else 3), importlib.util.find_spec("not_there") is None


@program(1)
def what_cannot_be_found_out(x):
    try:
        importlib.util.find_spec("not_there.inside")
    except ModuleNotFoundError:
        return x * 2


@torch.jit.script_if_tracing
def _scripted_when_traced(x):
    return x * 2 + 1


@program(0)
def a_function_that_is_scripted_when_traced(x):  # torchvision's boxes, kornia, VonMises
    return _scripted_when_traced(x.sin()).cos()


@program(0)
def what_is_exported(x):
    exported = torch.onnx.is_in_onnx_export() or torch.jit.is_tracing() or torch.compiler.is_exporting()
    return x if exported else x * 2


class _Settings(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


@stateful(0, "settings that are attributes and items")
def configured():
    settings = _Settings(scale=2, inner=_Settings(depth=3))

    def f(x):
        settings.calls = (settings.calls or 0) + 1
        for _ in range(settings.inner.depth):
            x = x * settings.scale
        return x, settings.missing is None, sorted(settings)

    return f, (torch.randn(3, 4, requires_grad=True),), (list(settings),)


def _progress(most: int, disable: bool) -> None:
    @stateful(most, f"a progress bar, {disable=}")
    def _() -> Any:
        model, shown, tqdm = nn.Linear(4, 4), io.StringIO(), importlib.import_module("tqdm").tqdm

        def f(x):
            for _ in tqdm(range(12), file=shown, disable=disable):
                x = model(x)
            return x

        return f, (torch.randn(3, 4, requires_grad=True),), (model,)


if importlib.util.find_spec("tqdm"):
    _progress(4, False)
    _progress(1, True)


class _Answers:
    """Answers to any name, and notes that it was asked."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        self.log.append(name)


@stateful(1, "a torch function of an object that answers for any name")
def answering():
    log: list[str] = []
    given = _Answers(log)

    def f(x):
        try:
            return x + given
        except TypeError:
            return x * 2

    return f, (torch.randn(3, 4, requires_grad=True),), (log,)
