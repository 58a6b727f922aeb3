"""Kernels on CPUs that call operators which autocast changes: such a call is not in a graph, where autocast is off."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchjit

PRODUCTS = {
    "bilinear": lambda x: F.bilinear(x, x, x.expand(2, 4, 4)),
    "pinv": lambda x: torch.linalg.pinv(x),
    "pinv, hermitian": lambda x: torch.linalg.pinv(x + x.mT, hermitian=True),
}
CONCATENATIONS = {
    "roll": lambda x: x.roll(1),
    "fftshift": lambda x: torch.fft.fftshift(x),
    "isin": lambda x: torch.isin(x, x[0].repeat(30)),
    "matrix_exp": lambda x: torch.matrix_exp(x),
}


def _outcome(f, x, dtype):
    try:
        with torch.autocast("cpu", dtype=dtype):
            return f(x)
    except RuntimeError as error:
        return str(error).split("\n", 1)[0]


def _compare(f, x, dtype, fullgraph=False):
    for backend in ("eager", "aot_eager", "inductor"):
        torchjit.reset()
        compiled = torchjit.compile(f, backend=backend, fullgraph=fullgraph)
        want, have = _outcome(f, x, dtype), _outcome(compiled, x, dtype)
        assert type(want) is type(have)
        if isinstance(want, str):
            assert want == have
        else:
            torch.testing.assert_close(have, want)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_inside_of_kernels(name):
    x = torch.randn(4, 4)
    for dtype in (torch.bfloat16, torch.float16):
        _compare(PRODUCTS[name], x, dtype)


@pytest.mark.parametrize("name", CONCATENATIONS)
def test_concatenations_inside_of_kernels(name):
    x = torch.randn(4, 4)
    _compare(CONCATENATIONS[name], x.half(), torch.bfloat16)
    _compare(CONCATENATIONS[name], x, torch.bfloat16, fullgraph=True)


def test_without_autocast_they_are_in_the_graph():
    def program(x):
        with torch.autocast("cpu", enabled=False):
            return [f(x) for f in (*PRODUCTS.values(), *CONCATENATIONS.values())]

    torchjit.compile(program, backend="aot_eager", fullgraph=True)(torch.randn(4, 4))
