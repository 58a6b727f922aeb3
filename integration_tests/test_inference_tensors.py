"""Inference tensors outside of inference mode: which views of them are such tensors, and which of them may be written to."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import pytest
import torch

import torchjit

VIEWS = {
    "detach": lambda t: t.detach(),
    "torch.detach": torch.detach,
    "aten.detach": torch.ops.aten.detach,
    "detach twice": lambda t: t.detach().detach(),
    "data": lambda t: t.data,
    "view of data": lambda t: t.data.view(-1),
    "int32": lambda t: t.view(torch.int32),
    "int16": lambda t: t.view(torch.int16),
    "its own dtype": lambda t: t.view(torch.float32),
    "aten.view.dtype": lambda t: torch.ops.aten.view.dtype(t, torch.int32),
    "int32 and back": lambda t: t.view(torch.int32).view(torch.float32),
    "view of int32": lambda t: t.view(torch.int32).view(-1),
    "detached int32": lambda t: t.view(torch.int32).detach(),
    "int32 of mT": lambda t: t.mT.view(torch.int32),
    "imag": lambda t: t.view(torch.complex64).imag,
    "conj": lambda t: t.view(torch.complex64).conj(),
    "view": lambda t: t.view(-1),
    "select": lambda t: t[0],
    "chunk": lambda t: t.chunk(2)[0],
    "expand_as": lambda t: t.expand_as(t),
    "itself": lambda t: t.contiguous(),
}


def made(view):
    def program(n, t):
        with torch.inference_mode():
            x = n * 2
        return x, view(x)

    return program


def made_inside(view):
    def program(n, t):
        with torch.inference_mode():
            x = n * 2
            d = view(x)
        return x, d

    return program


def given(view):
    return lambda n, t: (t, view(t))


def given_inside(view):
    def program(n, t):
        with torch.inference_mode():
            return t, view(t)

    return program


def plain_inside(view):
    def program(n, t):
        with torch.inference_mode():
            return n, view(n)

    return program


def add(x, d):
    d.add_(1)


def add_inside(x, d):
    with torch.inference_mode():
        d.add_(1)


def put(x, d):
    d[0] = 1


def add_to_the_tensor(x, d):
    with torch.inference_mode():
        x.add_(1)
    return d * 2


def keep(x, d):
    pass


def described(t):
    try:
        counted = t._version >= 0
    except RuntimeError:
        counted = False
    return t.is_inference(), t._is_view(), counted, t.dtype, t.shape, t.stride(), t.tolist()


def outcome(f):
    n = torch.arange(12.0).view(3, 4) + 1
    with torch.inference_mode():
        t = torch.arange(12.0).view(3, 4) + 1
    try:
        x, d = f(n, t)
    except RuntimeError as error:
        return str(error), described(n), described(t)
    found = [described(q) for q in (x, d, n, t)]
    for q in (d, x):
        try:
            q.add_(1)
        except RuntimeError as error:
            found.append(str(error))
    return found, [described(q) for q in (x, d, n, t)], x is d, x.data_ptr() == d.data_ptr()


WRITES = [keep, add, add_inside, put, add_to_the_tensor]
SOURCES = [made, made_inside, given, given_inside, plain_inside]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("source", SOURCES)
def test_views_are_written_as_in_eager(source, write):
    """Each view of tensors of each source, and with each write: every other one, by each backend in turn."""
    turn = SOURCES.index(source) + WRITES.index(write)
    backend = ("aot_eager", "eager")[turn // 2 % 2]
    for name, view in [*VIEWS.items()][turn % 2 :: 2]:
        torchjit.reset()
        plain = source(view)

        def program(n, t, plain=plain):
            x, d = plain(n, t)
            write(x, d)
            return x, d

        assert outcome(torchjit.compile(program, backend=backend)) == outcome(program), name


def test_a_view_with_another_dtype_breaks_no_graph():
    def program(n):
        with torch.inference_mode():
            x = n * 2
        x.mT.view(torch.int32).bitwise_and_(0x7FFFFFFF)
        return x

    torchjit.reset()
    compiled = torchjit.compile(program, backend="aot_eager", fullgraph=True)
    for n in (torch.randn(3, 4), torch.randn(3, 4)):
        assert torch.equal(compiled(n), program(n))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_detached_one_breaks_no_graph(backend):
    def program(n):
        with torch.inference_mode():
            x = n * 2
        return x, x.detach(), x.mT.data

    torchjit.reset()
    compiled = torchjit.compile(program, backend=backend, fullgraph=True)
    n = torch.randn(3, 4)
    for want, have in zip(program(n), compiled(n), strict=True):
        assert described(want) == described(have)
