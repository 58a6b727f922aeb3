"""The text of a kernel is written once for all that differ only in the names of their buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import check, flat, sample

from torchjit_inductor.cpp import backend
from torchjit_inductor.cpp.kernel import generate as write
from torchjit_inductor.ir.kernel import LoopKernel


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[LoopKernel]:
    """The kernels whose text was written."""
    found: list[LoopKernel] = []

    def generate(kernel: LoopKernel, *rest: Any) -> Any:
        found.append(kernel)
        return write(kernel, *rest)

    monkeypatch.setattr(backend, "generate", generate)
    return found


def layers(*parameters: torch.Tensor) -> torch.Tensor:
    x = parameters[0]
    for w, b in zip(parameters[1::2], parameters[2::2]):
        x = F.layer_norm(F.gelu(x @ w), (16,), b)
    return x


def test_layers_are_alike(written: list[LoopKernel]) -> None:
    parameters = [t for k in range(4) for t in (sample(16, 16, seed=k), sample(16, seed=k))]
    graph = check(layers, [sample(5, 16), *parameters], aten=None, race_matmuls=False)
    assert len(graph.kernels) >= 4
    assert len(written) < len(graph.kernels)
    for kernel in graph.kernels:
        assert f"namespace {kernel.name} {{" in kernel.source
        assert f"py_{kernel.name}(" in kernel.source
        assert "KERNEL_WITHOUT_NAME" not in kernel.source
        assert kernel.source.startswith("// ")
    pointers = [line for line in graph.kernels[-1].source.splitlines() if "= args.p" in line]
    assert any(line.endswith("// arg8_1") for line in pointers), pointers  # the last layer's weight


X, Y = sample(6, 40), sample(6, 40, seed=1)
DIFFERENT: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "one buffer or two": (lambda x, y: [(x.exp() + x).sum(0), (x.exp() + y).sum(0)], [X, Y]),
    "order of operands": (lambda x, y: [(x.exp() - y).sum(0), (y.exp() - x).sum(1)], [X, Y]),
    "dtypes": (lambda x, y: [x.sum(0), y.sum(0)], [X, Y.bfloat16()]),
    "numbers": (lambda x, y: [(x + 1).sum(0), (y + 2).sum(0)], [X, Y]),
    "sizes": (lambda x, y: [x.sum(0), y.sum(0)], [X, sample(7, 41)]),
    "strides": (lambda x, y: [x.sum(0), y.t().sum(0)], [X, sample(40, 6)]),
    "results": (lambda x, y: [x.sum(0), y.sum(0).bfloat16()], [X, Y]),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_kernels_are_not(name: str, written: list[LoopKernel]) -> None:
    fn, inputs = DIFFERENT[name]
    graph = check(fn, inputs, fusion=False, tol={"rtol": 1e-2, "atol": 1e-2})
    assert len(flat(fn(*inputs))) == 2
    assert len(graph.kernels) >= 2
    assert len(written) >= 2
