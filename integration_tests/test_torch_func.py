"""`torch.vmap` and `torch.func` inside compiled code: one graph, and the results of eager PyTorch."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import torch
from compare import check
from torch import func
from torch._functorch import eager_transforms
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

import torchjit


def breaks_of(compiled):
    return [record for s in compiled.compiled.specializations for record in s.breaks]


def _loss(r):
    return r.sin().sum() * r.cos().mean()


def _both(out, pull):
    return out, pull(out * 2)


WHOLE = {
    "vmap": lambda x: torch.vmap(torch.sum)(x * 2) + 1,
    "vmap of a lambda": lambda x: torch.vmap(lambda r: r.sin() * r.sum())(x) + 1,
    "vmap over columns": lambda x: torch.vmap(torch.dot, in_dims=(1, None))(x, x[:, 0]),
    "vmap over a tree": lambda x: torch.vmap(lambda d, k: d["a"] * d["b"] + k, in_dims=({"a": 0, "b": None}, None))(
        {"a": x, "b": x[0]}, 3
    ),
    "vmap of vmap": lambda x: torch.vmap(torch.vmap(lambda a, b: a * b, (None, 0)), (0, None))(x[:, 0], x[0]),
    "vmap out_dims": lambda x: torch.vmap(lambda r: (r * 2, {"n": r.sum()}), out_dims=(1, {"n": 0}))(x),
    "vmap in chunks": lambda x: torch.vmap(lambda r: r * 2, chunk_size=2)(x),
    "vmap random": lambda x: torch.vmap(lambda r: r + torch.rand(4), randomness="different")(x),
    "vmap random, the same": lambda x: torch.vmap(lambda r: r + torch.rand(4), randomness="same")(x),
    "vmap of a closure": lambda x: torch.vmap(lambda r: r * x[0] + x.sum())(x),
    "vmap gives its argument": lambda x: torch.vmap(lambda r: (r, r, x))(x),
    "vmap keywords": lambda x: torch.vmap(lambda r, scale: r * scale)(x, scale=2.0),
    "vmap writes inside": lambda x: torch.vmap(lambda r: r.clone().add_(1).mul_(r))(x),
    "grad": lambda x: func.grad(_loss)(x * 2) * x,
    "grad under no_grad": torch.no_grad()(lambda x: func.grad(_loss)(x)),
    "no_grad inside": lambda x: func.grad(lambda r: (r * torch.no_grad()(lambda: r.sin())()).sum())(x),
    "grad_and_value": lambda x: func.grad_and_value(_loss)(x * 2),
    "grad with aux": lambda x: func.grad(lambda r: (_loss(r), {"cos": r.cos()}), has_aux=True)(x),
    "grad of two": lambda x: func.grad(lambda a, b: (a * b.sin()).sum(), argnums=(0, 1))(x, x + 1),
    "grad of the second": lambda x: func.grad(lambda a, b: (a * b["w"].sin()).sum(), argnums=1)(x, {"w": x + 1}),
    "grad of the last": lambda x: func.grad(lambda a, b: (a * b.sin()).sum(), argnums=-1)(x, x * 2),
    "grad of grad": lambda x: func.grad(lambda y: func.grad(lambda r: r.pow(3).sum())(y).sum())(x),
    "grad sees requires_grad": lambda x: func.grad(lambda r: (r * 2).sum() if r.requires_grad else r.sum())(x),
    "vmap of grad": lambda x: torch.vmap(func.grad(_loss))(x) + 1,
    "vmap of grad, a factor": lambda x: torch.vmap(func.grad(lambda r: (r**3).sum() * 0.5))(x),
    "grad of vmap": lambda x: func.grad(lambda y: torch.vmap(torch.sin)(y).sum())(x),
    "jvp": lambda x: func.jvp(torch.sin, (x,), (x.cos(),)),
    "jvp of two": lambda x: func.jvp(lambda a, b: (a * b, a + 1), (x, x + 1), (x, x)),
    "vjp": lambda x: _both(*func.vjp(torch.sin, x * 2)),
    "vjp of two": lambda x: (lambda out, pull: (out, pull((x, x[0]))))(
        *func.vjp(lambda a, b: (a * b, b.sum(0)), x, x + 1)
    ),
    "vjp with aux": lambda x: (lambda out, pull, aux: (out, aux, pull(x)))(
        *func.vjp(lambda a: (a * x, {"k": a.cos()}), x, has_aux=True)
    ),
    "vjp of a tree": lambda x: func.vjp(lambda a: {"p": a * a, "q": a.sum(0)}, x)[1]({"p": x, "q": x[0]}),
    "vjp pulled twice": lambda x: (lambda out, pull: (pull(x), pull(x + 1)))(*func.vjp(lambda a: a.pow(3), x)),
    "vmap of vjp": lambda x: torch.vmap(func.vjp(lambda a: a.sin() * x[1], x[0])[1])(x),
    "jacrev": lambda x: func.jacrev(torch.sin)(x[0]) + 1,
    "jacrev of a tree": lambda x: func.jacrev(lambda a, b: {"p": a * b, "s": a.sum()}, argnums=(0, 1))(x[0], x[1]),
    "jacrev with aux": lambda x: func.jacrev(lambda a: (a.sin(), a.cos()), has_aux=True, chunk_size=2)(x[0]),
    "jacfwd": lambda x: func.jacfwd(lambda a: (a.sin(), a * x[1]))(x[0]),
    "hessian": lambda x: func.hessian(lambda r: r.pow(3).sum())(x[0]) + 1,
}


_BASIS = inspect.getsource(eager_transforms._chunked_standard_basis_for_)
READS_NUMBERS = {"jacrev of a tree"} if "cumsum" in _BASIS else set()
"""What older versions of torch (2.11) compute with numbers that they read out of a tensor: a break."""


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", WHOLE)
def test_captured_whole(name, backend):
    f = WHOLE[name]
    if name in READS_NUMBERS:
        compiled = torchjit.compile(f, backend=backend)
        check(compiled, f, torch.randn(3, 4))
        assert len(breaks_of(compiled)) == 1
        return
    compiled = torchjit.compile(f, backend=backend, fullgraph=True)
    for _ in range(2):
        check(compiled, f, torch.randn(3, 4))


@pytest.mark.parametrize(
    "name",
    [
        "vmap of a lambda",
        "vmap of a closure",
        "grad",
        "grad of two",
        "jvp",
        "vjp",
        "vjp of two",
        "jacrev",
        "grad of vmap",
    ],
)
def test_gradients_through_it(name):
    f = WHOLE[name]
    check(
        torchjit.compile(f, backend="aot_eager", fullgraph=True),
        f,
        torch.randn(3, 4, requires_grad=True),
        backward=True,
    )


def test_per_sample_gradients_of_a_module():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    parameters = {k: p.detach() for k, p in model.named_parameters()}

    def loss(given, row, target):
        return (func.functional_call(model, given, (row[None],)) - target).square().sum()

    def f(x, y):
        return torch.vmap(func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)

    for backend in ("eager", "aot_eager"):
        check(torchjit.compile(f, backend=backend, fullgraph=True), f, torch.randn(5, 4), torch.randn(5, 1))


def test_ensemble_of_modules():
    models = [torch.nn.Linear(4, 3) for _ in range(3)]
    params, buffers = func.stack_module_state(models)
    skeleton = models[0]

    def f(x):
        return torch.vmap(lambda p, b: func.functional_call(skeleton, (p, b), (x,)))(params, buffers)

    check(torchjit.compile(f, backend="eager", fullgraph=True), f, torch.randn(5, 4))


def test_sizes_that_vary():
    def f(x):
        return torch.vmap(func.grad(_loss))(x) * x.shape[0]

    compiled: Any = torchjit.compile(f, backend="eager", fullgraph=True, dynamic=True)
    for n in (3, 5, 7):
        check(compiled, f, torch.randn(n, 4))
    assert len(compiled.compiled.specializations) == 1


def test_python_runs_once_and_its_effects_stay():
    seen = []

    def f(x):
        def body(r):
            seen.append(tuple(r.shape))
            return r * 2

        return torch.vmap(body)(x)

    compiled = torchjit.compile(f, backend="eager", fullgraph=True)
    for _ in range(2):
        check(compiled, f, torch.randn(3, 4))
    assert seen == [(4,)] * 4


def test_arguments_written_under_vmap():
    def f(x):
        torch.vmap(lambda r: r.add_(1))(x)
        return x * 2

    check(torchjit.compile(f, backend="eager", fullgraph=True), f, torch.randn(3, 4))


kept: list[Any] = []


def _written_since(x):
    y = x * 1
    out, pull = func.vjp(torch.square, y)
    y.mul_(2)
    return pull(out)[0]


def _written_since_outside_of_vmap(x):
    y = x[0] * 1
    _, pull = func.vjp(torch.square, y)
    y.mul_(2)
    return torch.vmap(pull)(x)[0]


def _python_changed_since(x):
    scale = 2.0
    out, pull = func.vjp(lambda a: a * a * scale, x)
    scale = 3.0
    return pull(out)[0] * scale


def _a_break_between(x):
    out, pull = func.vjp(torch.sin, x)
    if x.sum() > 0:
        out = out + 1
    return pull(out)[0]


def _linearized(x):
    with torch.no_grad():
        out, push = func.linearize(lambda a: a.sin() * x, x * 2)
        return out, push(x), push(x + 1)


BREAKS = {
    "linearize": lambda x: torch.stack(_linearized(x)),
    "vjp, written since": _written_since,
    "vjp, written since, outside of vmap": _written_since_outside_of_vmap,
    "vjp, Python changed since": _python_changed_since,
    "vjp, a break between": _a_break_between,
    "vjp, random": lambda x: _both(*func.vjp(lambda a: a * torch.rand(4), x))[1][0],
    "vjp, cotangents that do not fit": lambda x: func.vjp(torch.sin, x)[1](x[0]),
    "linearize with gradients": lambda x: func.linearize(torch.sin, x.requires_grad_())[1](x).detach(),
    "item": lambda x: torch.vmap(lambda r: r * r.sum().item())(x),
    "a tensor escapes": lambda x: torch.vmap(lambda r: (kept.append(r * 2), r)[1])(x),
    "no tensor": lambda x: torch.vmap(lambda r: 3)(x),
    "truth": lambda x: torch.vmap(lambda r: r if r.sum() > 0 else -r)(x),
    "random without leave": lambda x: torch.vmap(lambda r: r + torch.rand(4))(x),
    "sizes differ": lambda x: torch.vmap(torch.dot)(x, x[:2]),
    "no scalar": lambda x: func.grad(torch.sin)(x),
    "integers": lambda x: func.grad(lambda r: r.sum())(x.long()),
    "argnums": lambda x: func.grad(_loss, argnums=3)(x),
    "randomness": lambda x: torch.vmap(torch.sin, randomness="none")(x),
    "writes a closure": lambda x: torch.vmap(lambda r: x.add_(r))(x.clone()),
    "tangent": lambda x: func.jvp(torch.sin, (x,), (x[0],)),
}


def _outcome(f, x):
    torch.manual_seed(5)
    try:
        return f(x.clone())
    except Exception as error:
        return type(error), str(error).splitlines()[0]


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_no_graph_behaves_as_in_eager_mode(name):
    f = BREAKS[name]
    x = torch.randn(3, 4)
    compiled = torchjit.compile(f, backend="eager")
    for _ in range(2):
        got, want = _outcome(compiled, x), _outcome(f, x)
        assert type(got) is type(want)
        if isinstance(want, torch.Tensor):
            assert torch.equal(got, want)
        else:
            assert got == want


def _twice(transform):
    """The transformed function outside of inference mode and inside."""

    def f(x):
        before = transform(x)
        with torch.inference_mode():
            inside = transform(x), x * 2
        return before, inside

    return f


def _pushed_later(x):
    out, push = func.linearize(lambda a: a.sin() * x, x * 2)
    with torch.inference_mode():
        return out, push(x)


def _forward_mode(x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(forward_ad.make_dual(x, x.cos()).sin() * 2)


IN_INFERENCE_MODE = {
    "jvp": lambda x: func.jvp(torch.sin, (x,), (x.cos(),)),
    "jacfwd": lambda x: func.jacfwd(lambda a: (a.sin(), a * x[1]))(x[0]),
    "hessian": WHOLE["hessian"],
    "linearize": _linearized,
    "vjp": WHOLE["vjp"],
    "vmap of jvp": lambda x: torch.vmap(lambda r: func.jvp(torch.sin, (r,), (r * 2,))[1])(x),
    "forward mode": _forward_mode,
    "jvp inside and outside": _twice(lambda x: func.jvp(torch.sin, (x,), (x,))),
    "linearize, pushed later": _pushed_later,
    "vjp, pulled later": lambda x: (lambda out, pull: torch.inference_mode()(pull)(out))(*func.vjp(torch.sin, x)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("around", [True, False])
@pytest.mark.parametrize("name", IN_INFERENCE_MODE)
def test_derivatives_in_inference_mode(name, around, backend):
    def kinds(out):
        found = [t for t in pytree.tree_leaves(out) if t is not None]
        return [(t.is_inference(), t.requires_grad, t) for t in found]

    def run(f):
        try:
            with torch.inference_mode(around):
                return kinds(f(x))
        except Exception as error:  # linearize; with torch 2.11 jacfwd and vmap of jvp as well
            return f"{type(error)}: {error}"

    f = IN_INFERENCE_MODE[name]
    x = torch.randn(3, 4)
    compiled = torchjit.compile(f, backend=backend)
    want = run(f)
    for _ in range(2):
        got = run(compiled)
        assert type(got) is type(want) and len(got) == len(want), (got, want)
        for g, w in zip(got, want, strict=True):
            assert g == w if isinstance(w, str) else g[:2] == w[:2] and torch.allclose(g[2], w[2]), (g, w)


def test_a_jacobian_function_that_leaves_the_region():
    def f(x):
        return x + 1, func.jacrev(torch.sin)

    out, jacobian = torchjit.compile(f, backend="eager")(torch.zeros(2))
    assert torch.equal(out, torch.ones(2))
    assert torch.equal(jacobian(torch.zeros(2)), torch.eye(2))


def test_a_pullback_that_leaves_the_region():
    def f(x):
        return func.vjp(torch.sin, x * 2)

    x = torch.randn(3, 4)
    out, pull = torchjit.compile(f, backend="eager")(x)
    assert torch.equal(out, (x * 2).sin()) and torch.equal(pull(x)[0], x * (x * 2).cos())


def test_effects_of_a_function_under_vjp_happen_once():
    seen = []

    def f(x):
        out, pull = func.vjp(lambda a: (seen.append(1), a.sin())[1], x)
        return out, pull(x)

    check(torchjit.compile(f, backend="eager", fullgraph=True), f, torch.randn(3, 4))
    assert seen == [1, 1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("write", [lambda t: t.mul_(2), lambda t: t.__setitem__(0, 1.0)])
def test_writes_to_jacobians_are_refused_as_in_eager(write, backend):
    made = [
        lambda a: torch.func.jacrev(torch.sin)(a[0]),
        lambda a: torch.func.jacfwd(torch.sin)(a[0]),
        lambda a: torch.func.hessian(lambda q: (q**3).sum())(a[0]),
        lambda a: torch.vmap(torch.func.jacrev(torch.sin))(a),
        lambda a: torch.func.grad(lambda q: (q**3).sum())(a[0]),
    ]

    def outcome(f, requires_grad):
        try:
            return f(torch.ones(3, 4, requires_grad=requires_grad)).tolist()
        except RuntimeError as error:
            return str(error).split(" is a view")[-1]

    for make in made:

        def program(a, make=make):
            t = make(a)
            write(t)
            return t

        compiled = torchjit.compile(program, backend=backend, on_error="raise")
        for requires_grad in (True, False):
            assert outcome(compiled, requires_grad) == outcome(program, requires_grad)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("f", [torch.sin, torch.relu, torch.sum], ids=lambda f: f.__name__)
def test_tangents_of_another_dtype(f, backend):
    """Eager casts them to the primal's where the two have memory of different size, and not where it is the same."""
    compiled = torchjit.compile(lambda x, t: func.jvp(f, (x,), (t,)), backend=backend)
    for primal in (torch.float16, torch.float32, torch.float64):
        for tangent in (torch.ones(4, 3), torch.ones(8, 3)[:4], torch.ones(4, 3, dtype=torch.float64)):
            x = torch.linspace(0, 1, 12, dtype=primal).reshape(4, 3)
            torch.testing.assert_close(compiled(x, tangent), func.jvp(f, (x,), (tangent,)))


class Tripled(torch.autograd.Function):
    """Its rules are no derivatives of each other, so that a test sees which one ran."""

    @staticmethod
    def forward(x):
        return x * 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * 5 + ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 7


class Batched(Tripled):
    @staticmethod
    def vmap(info, in_dims, x):
        return x * 100 + info.batch_size, in_dims[0]


class Generated(Tripled):
    generate_vmap_rule = True


class Ambiguous(Batched):
    generate_vmap_rule = True


class OfOneForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 5


TRANSFORMS = {
    "vmap": lambda own: lambda x: torch.vmap(own)(x),
    "vmap beside what is batched": lambda own: lambda x: torch.vmap(lambda row: own(x) + row)(x),
    "grad": lambda own: lambda x: func.grad(lambda v: own(v).sum())(x),
    "jvp": lambda own: lambda x: func.jvp(own, (x,), (x + 1,)),
    "jacfwd": lambda own: lambda x: func.jacfwd(own)(x[0]),
    "jacrev": lambda own: lambda x: func.jacrev(own)(x[0]),
    "vmap of grad": lambda own: lambda x: torch.vmap(func.grad(lambda v: own(v).sum()))(x),
}


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("cls", [Tripled, Batched, Generated, Ambiguous, OfOneForward], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_rules_of_autograd_functions(name, cls, differentiated):
    """Those of the class, or torch's error that there is none."""
    f = TRANSFORMS[name](cls.apply)
    compiled = torchjit.compile(f, backend="eager")
    x = torch.randn(3, 4, requires_grad=differentiated)
    try:
        f(x)
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            compiled(x)
    else:
        check(compiled, f, x, backward=differentiated)


@pytest.mark.parametrize("name", ["vmap", "vmap beside what is batched"])
def test_a_generated_batching_rule_is_captured(name):
    f = TRANSFORMS[name](Generated.apply)
    check(torchjit.compile(f, backend="eager", fullgraph=True), f, torch.randn(3, 4))


def _laplacian(x):
    return torch.vmap(lambda row: torch.trace(func.hessian(lambda r: (r.sin() * r.roll(1)).sum())(row)))(x)


def test_a_hessian_under_vmap_leaves_the_dispatcher_as_it_was():
    """torch's fake tensors cannot hold a zero tangent that it makes; a guard stays in the traceback of that error."""
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    x = torch.randn(4, 3)
    with torch._C._ForceDispatchKeyGuard(included, excluded):  # what comes after this test is none of its business
        check(torchjit.compile(_laplacian), _laplacian, x)
        assert torch._C._dispatch_tls_local_exclude_set().raw_repr() == excluded.raw_repr()
        assert torch.allclose(func.hessian(torch.sum)(x[0]), torch.zeros(3, 3))
