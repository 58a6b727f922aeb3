"""Small training programs, one for each thing that a compiled training step could get wrong; `observe` says what a user sees."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, final

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

from torchjit_core.events import listen

Run = Callable[..., Any]
PROGRAMS: dict[str, Program] = {}


@final
@attrs.frozen
class Program:
    """One function and how to try it.

    Attributes:
        f: what is compiled.
        make: its arguments; all tensors that a gradient may reach are leaves that `make` returns, or made from them.
        use: calls the (compiled) function on the arguments and returns what there is to see.
        exact: operators called one by one give bit for bit what eager PyTorch gives.
        tolerance: relative and absolute, for compiled kernels; None: that of the dtype.
    """

    f: Run
    make: Callable[[], list[Any]]
    use: Callable[[Run, list[Any]], Any]
    exact: bool = True
    tolerance: float | None = None


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def program(
    make: Callable[[], list[Any]],
    use: Callable[[Run, list[Any]], Any] | None = None,
    *,
    exact: bool = True,
    tolerance: float | None = None,
) -> Any:
    def add(f: Run) -> Run:
        PROGRAMS[f.__name__] = Program(f, make, use or call_and_backward, exact, tolerance)
        return f

    return add


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors(item)] if isinstance(value, (tuple, list)) else []


def describe(value: Any, known: list[Tensor]) -> Any:
    """What can be seen of a result: values, layout, flags, what it is a view of."""
    if isinstance(value, (tuple, list)):
        return [describe(v, known) for v in value]
    if not isinstance(value, Tensor):
        return value
    if type(value) not in (Tensor, torch.nn.Parameter):
        return [type(value).__name__, describe(value.a, []), describe(value.b, []), value.requires_grad]  # type: ignore[attr-defined]
    if value.layout != torch.strided:
        return ["sparse", value.detach().to_dense(), value.layout, value.requires_grad]
    same = [i for i, t in enumerate(known) if t is value]
    shared = [i for i, t in enumerate(known) if t.layout == torch.strided and type(t) is not TwoTensor
              and t.untyped_storage()._cdata == value.untyped_storage()._cdata]  # fmt: skip
    base = value._base if not value.is_inference() and value._is_view() else None
    return [
        value.detach().clone(), value.dtype, value.stride(), value.storage_offset(), value.requires_grad, value.is_leaf,
        value.is_inference(), value.is_conj(), value.is_neg(), same, shared,
        [i for i, t in enumerate(known) if t is base],
    ]  # fmt: skip


def loss_of(outputs: list[Tensor]) -> Tensor | None:
    total = None
    for k, out in enumerate(outputs):
        if out.requires_grad:
            real = torch.view_as_real(out.resolve_conj()) if out.is_complex() else out
            weight = torch.linspace(0.5, 1.5 + k, real.numel()).reshape(real.shape).to(real.dtype)
            total = (real * weight).sum() if total is None else total + (real * weight).sum()
    return total


def call_and_backward(run: Run, args: list[Any]) -> Any:
    inputs = tensors(args)
    versions = [t._version if not t.is_inference() else -1 for t in inputs]
    result = run(*args)
    outputs = tensors(result)
    seen = [
        describe(result, [*inputs, *outputs]),
        [t.is_inference() or t._version != v for t, v in zip(inputs, versions, strict=True)],
    ]
    loss = loss_of(outputs)
    if loss is not None:
        loss.backward()  # type: ignore[no-untyped-call]
    return seen, describe([t.grad for t in inputs if t.is_leaf], []), describe(inputs, inputs)


def observe(run: Run, program: Program) -> Any:
    """What the program shows, the state of the generator, or the error."""
    torch.manual_seed(3)
    args = program.make()
    torch.manual_seed(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            seen = program.use(run, args)
        except Exception as error:
            return ["raised", type(error).__name__, str(error).splitlines()[0][:60]]
    return ["returned", seen, torch.random.get_rng_state()]


@contextlib.contextmanager
def seen_fallbacks() -> Iterator[list[str]]:
    """The reasons of what is left to eager PyTorch meanwhile."""
    found: list[str] = []
    with listen(lambda kind, fields: found.append(fields["reason"]) if kind in ("fallback", "graph_break") else None):
        yield found


def difference(want: Any, have: Any, *, tolerance: float | None, where: str = "") -> str | None:
    """Where two observations differ, or None. `tolerance`: relative and absolute; None is that of the dtype."""
    if isinstance(want, Tensor) and isinstance(have, Tensor):
        options = {} if tolerance is None else {"rtol": tolerance, "atol": tolerance}
        try:
            torch.testing.assert_close(have, want, equal_nan=True, check_stride=False, **options)
        except AssertionError as error:
            return f"{where}: {str(error).splitlines()[0]}"
        return None
    if isinstance(want, (tuple, list)) and isinstance(have, (tuple, list)) and len(want) == len(have):
        for i, (a, b) in enumerate(zip(want, have, strict=True)):
            if found := difference(a, b, tolerance=tolerance, where=f"{where}.{i}"):
                return found
        return None
    return None if type(want) is type(have) and want == have else f"{where}: {want!r} against {have!r}"


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
