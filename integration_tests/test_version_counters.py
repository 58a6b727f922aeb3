"""`Tensor._version`: read after writes of a region, of results and of arguments."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import pytest
import torch

import torchjit


def a_view(x):
    base = torch.square(x)
    first, rest = base[0], base[1:]
    first.mul_(2)
    below = first.unsqueeze(0)
    first.add_(1)
    seen = base._version, first._version, below._version, rest._version
    return base, below * 2, seen


def an_argument(x):
    before = x._version
    x.mul_(2)
    x[0] = 1
    return x * 2, x._version - before


def a_result(x):
    y = x * 2
    zero = y._version
    y += 1
    one = y._version
    y.copy_(x)
    return y, zero, one, y._version, (y + 1)._version


def _write_twice(t):
    t.add_(1)
    t.mul_(3)
    return t


def in_a_function(x):
    y = x.sin()
    _write_twice(y)
    return y, y._version


def in_a_loop(x):
    y = x.sin()
    seen = []
    for _ in range(3):
        y.mul_(2)
        seen.append(y._version)
    return y, seen


def a_number(x):
    t = torch.tensor(3)
    t.add_(1)
    return t._version, t + x.int()


def nothing_written(x):
    return (x * 2)._version, x.view(-1)._version - x._version, x.sin()


PROGRAMS = (a_view, an_argument, a_result, in_a_function, in_a_loop, a_number, nothing_written)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_versions(program, backend, dynamic):
    compiled = torchjit.compile(program, backend=backend, dynamic=dynamic)
    for n in (2, 3, 3):
        x = torch.randn(n, 4)
        got, want = compiled(x.clone()), program(x.clone())
        for g, w in zip(got, want, strict=True):
            assert torch.allclose(g, w) if isinstance(w, torch.Tensor) else g == w
    if program not in (an_argument, in_a_function):  # eager refuses it; the function called is a graph of its own
        for _ in range(2):
            x = torch.randn(2, 4, requires_grad=True)
            got, want = compiled(x), program(x)
            assert [g for g in got if not isinstance(g, torch.Tensor)] == [
                w for w in want if not isinstance(w, torch.Tensor)
            ]


def made_from_nothing(x):
    window = torch.hann_window(5)
    return torch.rand(2), torch.randint(0, 5, x.shape), torch.randperm(4), window, torch.rand(4).view(2, 2), x * 2


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_new_tensors_were_not_written(backend, requires_grad):
    compiled = torchjit.compile(made_from_nothing, backend=backend)
    x = torch.ones(2, 3, requires_grad=requires_grad)
    assert [t._version for t in compiled(x)] == [t._version for t in made_from_nothing(x)] == [0] * 6


def a_view_too(x):
    view = x.view(-1)
    x.mul_(2)
    return view.sin()


def one_write(x):
    x.mul_(2)
    return x.sin()


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", [a_view_too, one_write])
def test_a_written_argument_counts_once(program, backend, requires_grad):
    x = torch.ones(2, 3, requires_grad=requires_grad) * 1.0
    torchjit.compile(program, backend=backend)(x)
    assert x._version == 1


def rows(x):
    made = torch.zeros(4, 4)
    for j in range(3):
        made[j] = x[0] * j
    return made.t().narrow(0, 0, 2), made.data


def another_dtype(x):
    made = x > 0
    made.view(torch.uint8).bitwise_and_(1)
    return made, x.sin()


def views_and_copies(x):
    made = x.sin()
    made.mul_(2)
    made.add_(1)
    flat = made.view(-1)
    flat.mul_(3)
    alone = made.detach()
    return made, flat, alone, (made * made), made.clone()


def a_detached_one(x):
    made = x * 2
    detached = made.detach()
    detached.add_(1)
    return made, detached


def behind_data(x):
    made = x * 2
    made.unsqueeze_(0)
    made.add_(1)
    data = made.data
    data.add_(1)
    return made, data, data[0], data[0].data


def data_of_an_argument(x):
    data = x.data
    data.add_(1)
    data.add_(1)
    return data, x * 1


def statistics(x):
    mean, variance = torch.zeros(4), torch.ones(4)
    normal = torch.nn.functional.batch_norm(x, mean, variance, training=True)
    mean.add_(1)
    return normal, mean, variance


def given_out(x):
    made = torch.empty(4, 4)
    torch.add(x.detach(), 1, out=made)
    torch.add(x.detach(), 1, out=made[0:4])
    return made, x * 2


def an_argument_thrice(x):
    x.add_(1)
    x.mul_(2)
    x[0] = 3
    return x, x * 2


def shapes_too(x):
    x.t_()
    x.add_(1)
    x.unsqueeze_(0)
    return x.sin()


def lists(x):
    made = [x.sin(), x.cos()]
    torch._foreach_mul_(made, 2.0)
    torch._foreach_add_([x], made[:1])
    return tuple(made)


RESULTS = (
    rows,
    another_dtype,
    views_and_copies,
    a_detached_one,
    behind_data,
    data_of_an_argument,
    statistics,
    given_out,
)
ARGUMENTS = (an_argument_thrice, shapes_too, lists)
KINDS = {
    statistics: ("plain",),
    an_argument_thrice: ("plain", "history"),
    shapes_too: ("plain",),
    lists: ("plain",),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["plain", "leaf", "history"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", (*RESULTS, *ARGUMENTS))
def test_writes_are_counted(program, backend, kind, dynamic):
    if kind not in KINDS.get(program, (kind,)):
        pytest.skip("eager refuses it, or the graph is left to eager")
    compiled = torchjit.compile(program, backend=backend, dynamic=dynamic)
    for _ in range(2):
        seen = []
        for run in (compiled, program):
            torch.manual_seed(0)
            leaf = torch.rand(4, 4, requires_grad=kind != "plain")
            x = leaf * 1 if kind == "history" else leaf
            made = run(x)
            made = made if isinstance(made, tuple) else (made,)
            versions = [t._version for t in made], x._version
            losses = [t.sum() for t in made if t.requires_grad]
            if losses:
                sum(losses).backward()
            seen.append((versions, leaf.grad, made))
        (got, got_grad, tensors), (want, want_grad, expected) = seen
        assert got == want
        assert all(torch.allclose(a, b) for a, b in zip(tensors, expected, strict=True))
        assert (got_grad is None) == (want_grad is None)
        assert got_grad is None or torch.allclose(got_grad, want_grad)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", [rows, another_dtype, behind_data, data_of_an_argument])
def test_inference_tensors_have_no_counter(program, backend):
    compiled = torchjit.compile(program, backend=backend)
    for mode in (True, False, True):
        with torch.inference_mode(mode):
            seen = []
            for run in (compiled, program):
                x = torch.ones(4, 4)
                seen.append([(t, t.is_inference() or t._version) for t in run(x)])
        for (got, has), (want, wants) in zip(*seen, strict=True):
            assert has == wants
            assert torch.allclose(got, want)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_data_is_not_watched(backend):
    def program(x):
        made = x.exp()
        return made * made, made.data

    for run in (torchjit.compile(program, backend=backend), program):
        square, data = run(torch.rand(3, requires_grad=True))
        data.mul_(1)
        square.sum().backward()


def test_one_break_for_the_version_of_what_was_written():
    def program(x):
        x.add_(1)
        return x._version

    assert len(torchjit.explain(program)(torch.rand(3)).breaks) == 1
