"""`Tensor.register_hook` inside compiled code: captured for tensors that the region makes, else as in eager PyTorch."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from compare import check
from torch.utils.hooks import RemovableHandle

import torchjit


def _on_a_result(x):
    y = x * 2
    z = y.cos()  # the hook sees the gradient of this use too
    y.register_hook(lambda g: g * 3 + x)
    return y.sin() + z


def _two_and_a_write(x):
    y = x * 2
    y.register_hook(lambda g: None)
    y.register_hook(lambda g: g.clamp(-0.1, 0.1))
    y.mul_(x)
    return y.sin(), y


def _removed(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 3)
    assert isinstance(handle, RemovableHandle)
    handle.remove()
    with y.register_hook(lambda g: g * 5):
        z = y.sin()
    return z


def _of_a_view(x):
    y = (x * 2).t()
    y.register_hook(lambda g: g.cumsum(0))
    return y[0].sin()


WHOLE = {f.__name__: f for f in (_on_a_result, _two_and_a_write, _removed, _of_a_view)}


@pytest.mark.parametrize(
    ("name", "backend"),
    [*[(name, backend) for name in WHOLE for backend in ("eager", "aot_eager")], ("_two_and_a_write", "inductor")],
)
def test_captured_whole(name, backend):
    compiled = torchjit.compile(WHOLE[name], backend=backend, fullgraph=True)
    for _ in range(2):
        check(compiled, WHOLE[name], torch.randn(3, 3, requires_grad=True), backward=True)


def test_second_derivatives():
    def second(function, x):
        (first,) = torch.autograd.grad(function(x).pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), x)[0]

    compiled = torchjit.compile(_on_a_result, backend="eager", fullgraph=True)
    x = torch.randn(3, 3, requires_grad=True)
    torch.testing.assert_close(second(compiled, x), second(_on_a_result, x))


log: list[float] = []


def _logs(x):
    y = x * 2
    y.register_hook(lambda g: log.append(float(g.sum())))
    return y.sin()


def _removed_after_a_break(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 3)
    z = y.sin()
    if z.sum() > 100:
        z = z + 1
    handle.remove()
    return z


def _of_an_argument(x):
    x.register_hook(lambda g: g * 2)
    return x * 3


def _without_gradient(x):
    y = (x * 2).detach()
    y.register_hook(lambda g: g * 2)
    return y


def _another_shape(x):
    y = x * 2
    y.register_hook(lambda g: g.sum())
    return y.sin()


def _writes_the_gradient(x):
    y = x * 2
    y.register_hook(lambda g: g.mul_(2))
    return y.sin()


def _draws(x):
    y = x * 2
    y.register_hook(lambda g: g * torch.rand(3))
    return y.sin()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "f",
    [_logs, _removed_after_a_break, _of_an_argument, _without_gradient, _another_shape, _writes_the_gradient, _draws],
    ids=lambda f: f.__name__,
)
def test_what_is_no_graph_behaves_as_in_eager_mode(f, backend):
    def outcome(function, x):
        log.clear()
        torch.manual_seed(3)
        try:
            out = function(x)
            out.sum().backward()
        except Exception as error:
            return type(error), str(error).splitlines()[0], list(log)
        return out.detach(), x.grad, list(log)

    compiled = torchjit.compile(f, backend=backend)
    for _ in range(2):
        data = torch.randn(3, 3)
        got, want = (outcome(g, data.clone().requires_grad_()) for g in (compiled, f))
        assert got[0] is want[0] if isinstance(want[0], type) else torch.equal(got[0], want[0])
        assert got[1] == want[1] if isinstance(want[1], str) else torch.equal(got[1], want[1])
        assert got[2] == want[2]


def test_a_handle_that_leaves_the_region_works():
    def f(x):
        y = x * 2
        return y.sin(), y.register_hook(lambda g: g * 3)

    x = torch.zeros(2, requires_grad=True)
    out, handle = torchjit.compile(f, backend="eager")(x)
    out.sum().backward(retain_graph=True)
    handle.remove()
    out.sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 8.0))


def test_numbers_of_handles_are_no_part_of_a_specialization():
    """Each handle has another number."""
    model = torch.nn.Linear(4, 4)

    def f(x):
        handle = model.weight.register_hook(lambda g: g * 3)
        seen = model.register_forward_hook(lambda m, i, o: o * 2)
        y = model(x)
        seen.remove()
        handle.remove()
        return y, handle

    compiled: Any = torchjit.compile(f, backend="eager")
    handles = [compiled(torch.randn(2, 4))[1] for _ in range(5)]
    assert len(compiled.compiled.specializations) <= 2  # the second finds a dict of hooks, which is empty
    numbers = [handle.id for handle in handles]
    assert numbers == sorted(set(numbers)) and RemovableHandle.next_id > numbers[-1]
    assert not model.weight._backward_hooks and not model._forward_hooks


def _module_with_hooks(log):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    model[0].register_full_backward_hook(lambda m, given, found: log.append((given, found[0].shape)))
    model[0].register_full_backward_pre_hook(lambda m, found: (found[0] * 3,))
    return model


@pytest.mark.parametrize(("gradients", "breaks"), [(True, 2), (None, 1), (False, 0)])
def test_backward_hooks_of_modules_break_only_where_there_are_gradients(gradients, breaks):
    """With a gradient of the argument, of the parameters alone, and without autograd."""
    seen = []
    for compiled in (False, True):
        torch.manual_seed(0)
        log: list[Any] = []
        model = _module_with_hooks(log)
        call = torchjit.compile(model, backend="eager") if compiled else model
        x = torch.ones(2, 3, requires_grad=gradients is True)
        for _ in range(2):
            with torch.set_grad_enabled(gradients is not False), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's, about a hook without gradients of arguments
                out = call(x)
                if gradients is not False:
                    out.sum().backward()
        seen.append(
            (str(log), out.tolist(), [None if p.grad is None else p.grad.tolist() for p in (x, *model.parameters())])
        )
    assert seen[0] == seen[1]
    assert sum(torchjit.counters["graph_break"].values()) == breaks


def _retained(x, seen):
    y = x * 2
    z = y.sin()
    y.retain_grad()
    (y + z).sum().backward()
    return y.grad


def _retained_after_a_write(x, seen):
    y = x * 2
    z = y.exp() + 1
    y.add_(1)
    u = y * y.detach()
    y.retain_grad()
    (u + z + y).sum().backward()
    return y.grad


def _an_input_that_gets_a_history(x, seen):
    y = torch.zeros(3)
    y.copy_(x)
    z = y.cos()
    y.retain_grad()
    (y + z).sum().backward()
    return y.grad


def _a_hook_with_an_effect(x, seen):
    y = x * 2
    z = y.sin()

    def hook(g):
        seen.append(g.clone())
        return g * 3

    y.register_hook(hook)
    (y + z).sum().backward()
    return seen[0]


def _a_batch_of_gradients(x, seen):
    y = x * 2
    z = y.sin() * y
    return torch.autograd.grad(z, y, torch.eye(3), is_grads_batched=True)[0]


def _backward_to_a_result(x, seen):
    y = x * 2
    z = y.sin()
    z.sum().backward(inputs=[y])
    return y.grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "program",
    [
        _retained,
        _retained_after_a_write,
        _an_input_that_gets_a_history,
        _a_hook_with_an_effect,
        _a_batch_of_gradients,
        _backward_to_a_result,
    ],
)
def test_gradients_of_what_the_graph_before_a_break_uses_further(program, backend):
    """A compiled graph is one node of autograd: the gradient of one of its results lacked what came through another one."""
    found = []
    for function in (program, torchjit.compile(program, backend=backend, on_error="raise")):
        x = torch.linspace(0.1, 1, 3).requires_grad_()
        found.append((function(x, []), x.grad))
    torch.testing.assert_close(found[1], found[0])


def _retained_after_another_break(x):
    y = x * 2
    z = y.sin()
    torchjit.graph_break()
    y.retain_grad()
    (y + z).sum().backward()
    return y.grad


def _a_hook_after_another_break(x):
    y = x * 2
    z = y.sin()
    seen = []
    torchjit.graph_break()
    y.register_hook(lambda g: seen.append(g.clone()))
    (y + z).sum().backward()
    return seen[0]


def _grad_after_another_break(x):
    y = x * 2
    z = y.sin()
    torchjit.graph_break()
    z = z * 2
    torchjit.graph_break()
    return torch.autograd.grad((y + z).sum(), y)[0]


def _retained_by_the_caller_of_what_breaks(x):
    def broken(x):
        y = x * 2
        z = y.sin()
        torchjit.graph_break()
        return y, z

    y, z = broken(x)
    torchjit.graph_break()
    y.retain_grad()
    (y + z).sum().backward()
    return y.grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "program",
    [
        _retained_after_another_break,
        _a_hook_after_another_break,
        _grad_after_another_break,
        _retained_by_the_caller_of_what_breaks,
    ],
)
def test_gradients_of_what_an_earlier_graph_uses_further(program, backend):
    """As above, with a break between: that the code will ask is seen in its names, the functions around it included."""
    found = []
    for function in (program, torchjit.compile(program, backend=backend, on_error="raise")):
        x = torch.linspace(0.1, 1, 3).requires_grad_()
        found.append((function(x), x.grad))
    torch.testing.assert_close(found[1], found[0])


class _Counter:
    n = 2.0


def _steps():
    yield from (2.0, 3.0)


def _numbers_of(make):
    """A program whose hook takes the second number, for it runs later than the line that takes the first."""

    def program(x):
        numbers = make()
        y = x * 1
        y.register_hook(lambda g: g * next(numbers))
        return y * next(numbers)

    return program


def _a_class_that_a_hook_changes(x):
    _Counter.n = 2.0
    y = x * 1

    def hook(g):
        _Counter.n = 5.0
        return g

    y.register_hook(hook)
    return y * _Counter.n


@pytest.mark.parametrize(
    "program",
    [
        _numbers_of(lambda: iter([2.0, 3.0])),
        _numbers_of(lambda: iter(range(2, 9))),
        _numbers_of(lambda: iter({2: 0, 3: 0})),
        _numbers_of(lambda: map(float, (2, 3))),
        _numbers_of(_steps),
        _a_class_that_a_hook_changes,
    ],
    ids=["list", "range", "dict", "map", "generator", "class"],
)
def test_a_hook_changes_what_the_program_reads_before_it_runs(program):
    found = []
    for function in (program, torchjit.compile(program, backend="eager", on_error="raise")):
        x = torch.linspace(0.1, 1, 3).requires_grad_()
        y = function(x)
        y.sum().backward()
        found.append((y, x.grad))
    torch.testing.assert_close(found[1], found[0])
