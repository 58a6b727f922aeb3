"""`requires_grad` of views that are made where autograd does not record: in inference mode and under `no_grad`."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import pytest
import torch

import torchjit

VIEWS = {
    "mT": lambda t: t.mT,
    "H": lambda t: t.H,
    "T": lambda t: t.T,
    "tensor_split": lambda t: t.tensor_split(2)[0],
    "hsplit": lambda t: t.hsplit(2)[1],
    "chunk": lambda t: t.chunk(2)[0],
    "unsafe_chunk": lambda t: t.unsafe_chunk(2)[0],
    "narrow": lambda t: t.narrow(0, 1, 2),
    "reshape": lambda t: t.reshape(2, -1),
    "flatten": lambda t: t.flatten(),
    "view_as": lambda t: t.view_as(t),
    "movedim": lambda t: t.movedim(0, 1),
    "swapaxes": lambda t: t.swapaxes(0, 1)[0],
    "unflatten": lambda t: t.unflatten(0, (2, -1)),
    "einsum": lambda t: torch.einsum("ij->ji", t),
    "dropout": lambda t: torch.nn.functional.dropout(t, 0.5, False),
    "select": lambda t: t[0],
    "real": lambda t: t.real,
    "detach": lambda t: t.detach()[0],
    "contiguous": lambda t: t.contiguous(),
    "a result": lambda t: torch.matmul(t, t.mT).flatten(),
}


def flags(tensors):
    return [(r.requires_grad, r.is_leaf, r.is_inference()) for r in tensors]


def flags_of_all(t):
    made = [view(t) for view in VIEWS.values()]
    return flags(made), made


def inputs():
    """A leaf, a plain tensor, one with a history, and views: of a leaf, of what got its gradient itself, of what has one since."""
    leaf = torch.ones(4, 4, requires_grad=True)
    switched = torch.ones(6, 4)[:4].requires_grad_()
    base = torch.ones(6, 4)
    later = base[:4]
    base.requires_grad_()
    return {
        "parameter": torch.nn.Parameter(torch.ones(4, 4)),
        "leaf": leaf,
        "plain": torch.ones(4, 4),
        "history": leaf * 2,
        "view": leaf[:],
        "view of a result": (leaf * 2)[:4],
        "a view that requires grad": switched,
        "a view of it": switched.mT,
        "its base requires grad since": later,
    }


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("around", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_views_require_grad_as_in_eager(mode, around, backend):
    def inside(t):
        with mode():
            return flags_of_all(t)

    f = flags_of_all if around else inside
    for name, given in inputs().items():
        compiled = torchjit.compile(f, backend=backend)
        if around:
            with mode():
                (want, real), (got, results) = f(given), compiled(given)
        else:
            (want, real), (got, results) = f(given), compiled(given)
        assert dict(zip(VIEWS, got, strict=True)) == dict(zip(VIEWS, want, strict=True)), name
        if mode is not torch.enable_grad:
            assert flags(results) == flags(real), name


def test_sizes_that_vary():
    compiled = torchjit.compile(flags_of_all, backend="eager", dynamic=True)
    with torch.inference_mode():
        for n in (4, 6, 8):
            given = torch.ones(n, n, requires_grad=True)
            assert compiled(given)[0] == flags_of_all(given)[0]


def test_what_decides_is_guarded():
    def f(t):
        return t.mT.requires_grad

    compiled = torchjit.compile(f, backend="eager")
    with torch.no_grad():
        for _ in range(2):
            for given in inputs().values():
                assert compiled(given) is f(given)


def _with_module(m, x):
    m.requires_grad_(True)
    return x * 2


def _assigned(m, x):
    m.weight.requires_grad = True
    return x * 2


def _off_and_on(m, x):
    m.weight.requires_grad_(False)
    m.weight.requires_grad_(True)
    return x * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("program", [_with_module, _assigned, _off_and_on])
def test_requires_grad_of_parameters_made_in_inference_mode(program, before, backend):
    def outcomes(f):
        found = []
        for inference in (False, True, False):
            for around in (False, True):
                m = torch.nn.Linear(2, 2)
                with torch.inference_mode(inference):
                    m.weight.data = m.weight.data * 2
                    m.weight.requires_grad_(before)
                try:
                    with torch.inference_mode(around):
                        f(m, torch.ones(2, 2))
                    found.append(m.weight.requires_grad)
                except RuntimeError as error:
                    found.append(str(error))
        return found

    assert outcomes(torchjit.compile(program, backend=backend)) == outcomes(program)


class Tagged(torch.Tensor):
    pass


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("use", [lambda t: None, lambda t: t * 2, lambda t: t.mul_(2)])
def test_a_view_of_a_subclass_whose_base_is_written(use, backend):
    """Made under `no_grad` it has no history any more; it may be kept, and used there."""

    def program(a, mode):
        with mode():
            t = a.as_subclass(Tagged)
            a //= 2
            use(t)
        return t, a

    def outcome(f, mode):
        a = torch.full((2, 2), 5.0).requires_grad_() * 1.0
        try:
            t, b = f(a, mode)
        except RuntimeError as error:
            return str(error)
        return type(t), t.detach().tolist(), b.tolist(), b is a, b.requires_grad

    compiled = torchjit.compile(program, backend=backend)
    for mode in (torch.no_grad, torch.enable_grad, torch.no_grad):
        assert outcome(compiled, mode) == outcome(program, mode)
