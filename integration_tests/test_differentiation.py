"""`torch.autograd.grad` and leaves made inside a compiled function: results, gradients of gradients, errors, and breaks."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchjit


def penalty(model, x):
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return ((gradient.norm(2, dim=1) - 1) ** 2).mean()


def forces(model, x):
    energy = model(x).sum()
    force = -torch.autograd.grad(energy, x)[0]
    return energy.detach(), force


def laplacian(model, x):
    y = model(x)
    first = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]
    columns = [torch.autograd.grad(first[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(2)]
    return y.squeeze(-1) - sum(columns)


def hooked(model, x):
    h = x.sin()
    h.register_hook(lambda g: g * 3)
    return torch.autograd.grad(model(h).sum(), [x, h], create_graph=True)


def unused(model, x):
    other = torch.ones(2, requires_grad=True) * 2
    return torch.autograd.grad(model(x).sum(), [x, other], allow_unused=True)


def zeros_for_unused(model, x):
    other = x.new_ones(2)
    other.requires_grad = True
    return torch.autograd.grad(model(x).sum(), [x, other], materialize_grads=True)


def under_no_grad(model, x):
    with torch.no_grad():
        scaled = x * 2
        with torch.enable_grad():
            y = scaled.clone().requires_grad_()
            found = torch.autograd.grad((model(y) ** 2).sum(), y)[0]
        return scaled + found


def of_an_intermediate(model, x):
    h = model[0](x)
    loss = model[2](model[1](h)).pow(2).sum()
    return loss, torch.autograd.grad(loss, h, retain_graph=True)[0].detach() + h


def after_a_write(model, x):
    h = x * 1
    h.mul_(2)
    return torch.autograd.grad(model(h).sum(), x)[0]


def shared_gradient(model, x):
    a, b = x.sin(), x.cos()
    first, second = torch.autograd.grad((model(a + b) ** 2).sum(), [a, b])
    first.add_(1)
    return first, second


def inner_steps(model, x):
    weight, bias = model[0].weight, model[0].bias
    for _ in range(2):
        loss = ((x @ weight.t() + bias) ** 2).mean()
        for_weight, for_bias = torch.autograd.grad(loss, (weight, bias), create_graph=True)
        weight, bias = weight - 0.1 * for_weight, bias - 0.1 * for_bias
    return ((x @ weight.t() + bias) ** 2).mean()


def attack(model, x):
    z = x.detach().clone().requires_grad_()
    for _ in range(2):
        (gradient,) = torch.autograd.grad(model(z).sum(), z)
        z = (z - 0.1 * gradient.sign()).detach().requires_grad_()
    return model(z.detach()) + x.sum()


PROGRAMS = (
    penalty, forces, laplacian, hooked, unused, zeros_for_unused, under_no_grad, of_an_intermediate, after_a_write,
    shared_gradient, inner_steps, attack,
)  # fmt: skip


def _breaks(compiled):
    return sum(len(s.breaks) for s in compiled.compiled.specializations)


def _did(f):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    found = []
    for rows in (3, 5):
        x = torch.randn(rows, 2, requires_grad=True)
        out = f(model, x)
        out = out if isinstance(out, tuple | list) else [out]
        found.append([(t is None, t is not None and t.requires_grad) for t in out])
        found.append([t.detach().clone() for t in out if t is not None])
        loss = [t.pow(2).sum() for t in out if t is not None and t.requires_grad]
        if loss:
            sum(loss).backward()
        found.append([x.grad, *[p.grad for p in model.parameters()]])
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_is_part_of_the_graph(program, backend):
    compiled = torchjit.compile(program, backend=backend)
    torch.testing.assert_close(_did(compiled), _did(program))
    assert _breaks(compiled) == 0


def test_with_the_default_backend():
    compiled = torchjit.compile(penalty)
    torch.testing.assert_close(_did(compiled), _did(penalty), rtol=1e-4, atol=1e-5)
    assert _breaks(compiled) == 0


def test_a_way_that_leaves_the_region_breaks():
    x = torch.randn(3, requires_grad=True)
    h = x.exp()

    def f(x, h):
        return torch.autograd.grad((h * h).sum() + x.sum(), x, retain_graph=True)[0]

    for backend in ("eager", "aot_eager"):
        compiled = torchjit.compile(f, backend=backend)
        torch.testing.assert_close(compiled(x, h), f(x, h))
        assert _breaks(compiled) == 1


def test_a_hook_on_the_input_that_comes_later_is_seen():
    def f(x):
        return torch.autograd.grad(x.sin().sum(), x)[0]

    compiled = torchjit.compile(f, backend="aot_eager")
    x = torch.randn(3, requires_grad=True)
    torch.testing.assert_close(compiled(x), x.detach().cos())
    x.register_hook(lambda g: g * 5)
    torch.testing.assert_close(compiled(x), f(x))


def test_what_raises_raises_as_in_eager():
    def f(x):
        return torch.autograd.grad(x.detach().sum(), x)

    x = torch.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torchjit.compile(f, backend="eager")(x)

    def twice(x):
        y = x.exp().sum()
        torch.autograd.grad(y, x)
        return torch.autograd.grad(y, x)

    for backend in ("eager", "aot_eager"):
        with pytest.raises(RuntimeError, match="second time"):
            torchjit.compile(twice, backend=backend)(x)


@pytest.mark.parametrize("retained", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_a_gradient_frees_is_freed_for_the_caller(backend, retained):
    """Of results whose way back it did not take there are gradients all the same, also beside the others."""

    def f(x):
        y, other = x.exp(), x.sin()
        gradient = torch.autograd.grad(y.sum(), x, retain_graph=retained)[0]
        return gradient, y.view(-1), y * other, x + 1, other

    compiled = torchjit.compile(f, backend=backend, fullgraph=True)
    for index in range(1, 5):
        errors, gradients = [], []
        for function in (f, compiled):
            x = torch.full((2,), 0.5, requires_grad=True)
            found = function(x)
            assert found[index].requires_grad and not found[0].requires_grad
            try:
                found[index].sum().backward()
            except RuntimeError as error:
                errors.append(str(error))
            gradients.append(x.grad)
        torch.testing.assert_close(gradients[1], gradients[0])
        assert errors == [] if retained or index > 2 else len(errors) == 2 and errors[0] == errors[1]


def test_a_loss_beside_its_gradients_saves_nothing():
    def f(x):
        loss = (x * x).sum()
        return loss, torch.autograd.grad(loss, x)[0]

    compiled = torchjit.compile(f, backend="aot_eager", fullgraph=True)
    x = torch.full((2,), 0.5, requires_grad=True)
    loss, gradient = compiled(x)
    assert gradient.tolist() == [1, 1] and loss.requires_grad and not hasattr(loss.grad_fn, "saved_tensors")
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_made_leaf_that_leaves_the_region_is_one(backend):
    def f(x):
        y = x.detach().requires_grad_()
        return (y * y).sum(), y, y.view(-1)

    compiled = torchjit.compile(f, backend=backend)
    x = torch.randn(3, requires_grad=True)
    loss, y, flat = compiled(x)
    (loss + flat.sum()).backward()
    assert y.is_leaf and x.grad is None
    torch.testing.assert_close(y.grad, 2 * y.detach() + 1)


@pytest.mark.parametrize("make", ["zeros", "zeros_like", "tensor", "new_ones"])
def test_a_leaf_made_by_a_factory_that_leaves_the_region_is_one(make):
    """Of which there is a gradient beside that of what the compiled graph has with it."""

    def f(x, w):
        made = {
            "zeros": lambda: torch.zeros(2, requires_grad=True),
            "zeros_like": lambda: torch.zeros_like(x, requires_grad=True),
            "tensor": lambda: torch.tensor([1.0, 2.0], requires_grad=True),
            "new_ones": lambda: x.new_ones(2, requires_grad=True),
        }[make]()
        return made, made * w

    for function in (f, torchjit.compile(f, backend="aot_eager")):
        w = torch.full((2,), 3.0, requires_grad=True)
        made, product = function(torch.ones(2), w)
        (made.sum() + product.sum()).backward()
        assert made.is_leaf and made.requires_grad and made.grad.tolist() == [4, 4]
        assert torch.equal(w.grad, made)


def test_a_leaf_made_by_a_factory_breaks_nothing_inside():
    def f(x, w):
        made = torch.zeros(2, requires_grad=True)
        return torch.autograd.grad((made * w + x).sum(), made)[0] + w

    w = torch.full((2,), 3.0, requires_grad=True)
    compiled = torchjit.compile(f, backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(2), w).tolist() == [6, 6]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_only_a_made_leaf_requires_grad(backend):
    def f(x):
        y = x.clone().requires_grad_()
        return (y * y).sum()

    compiled = torchjit.compile(f, backend=backend)
    out = compiled(torch.ones(3))
    assert out.requires_grad and not out.is_leaf
    out.backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_determinants_of_which_a_second_gradient_may_be_asked(backend):
    """Eager looks at the values to choose a formula: such a gradient is left to it."""

    def program(x):
        gradient = torch.autograd.grad((torch.det(x) * x.sum()).exp().sum(), x, create_graph=True)[0]
        return gradient, gradient.stride()

    x = (torch.eye(3) + torch.linspace(0.0, 0.1, 9).view(3, 3)).requires_grad_()
    want, got = program(x), torchjit.compile(program, backend=backend)(x)
    assert got[1] == want[1] and got[0].stride() == want[0].stride()
    torch.testing.assert_close(got[0], want[0])


def written_view(c):
    base = c * 2
    view = base[1:]
    view.mul_(2)
    base.requires_grad_()
    return base, view, view * 2


def plain_view(c):
    base = c * 2
    view = base[1:]
    base.requires_grad_()
    return base, view, view * 2


def view_of_an_argument(c):
    base, view = c
    base.requires_grad_()
    return base, view, view * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("f", [written_view, plain_view, view_of_an_argument], ids=lambda f: f.__name__)
def test_views_follow_a_leaf_that_is_made_after_them(f, backend):
    compiled = torchjit.compile(f, backend=backend)
    for _ in range(2):
        seen = []
        for run in (f, compiled):
            torch.manual_seed(0)
            c = torch.randn(3, 4)
            base, view, result = run((c, c[1:]) if f is view_of_an_argument else c)
            flags = [(t.requires_grad, t.is_leaf) for t in (base, view, result)]
            result.sum().backward()
            seen.append((flags, [t.grad for t in (base, view) if t.is_leaf]))
        assert seen[0][0] == seen[1][0]
        for want, got in zip(seen[0][1], seen[1][1], strict=True):
            assert (want is None and got is None) or torch.equal(want, got)


@pytest.mark.parametrize("vectorize", [False, True])
def test_functional_hessians_inside_of_a_region(vectorize):
    """What they call back is not compiled on its own: its backward would have no derivative."""

    def f(x):
        hessian = torch.autograd.functional.hessian(lambda y: (y**3).sum(), x * 2, vectorize=vectorize)
        jacobian = torch.autograd.functional.jacobian(torch.sin, x, create_graph=True, vectorize=vectorize)
        return hessian + jacobian * 3

    compiled = torchjit.compile(f)
    for size in (2, 3):
        theirs, mine = (torch.linspace(0.5, 1.0, size, requires_grad=True) for _ in range(2))
        wanted, found = f(theirs), compiled(mine)
        torch.testing.assert_close(found, wanted)
        wanted.sum().backward()
        found.sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
