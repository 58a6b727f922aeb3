"""`torch.tensor([loss, 0.5])`: PyTorch reads the tensors in the list as numbers, a graph joins them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchjit

IN_A_GRAPH: dict[str, Callable[[torch.Tensor], Any]] = {
    "sums and numbers": lambda x: torch.tensor([x.sum(), 1.5, 2, True]),
    "a size between": lambda x: torch.tensor([x[0], x.shape[0], x[1]]),
    "alone": lambda x: torch.tensor([x[0]]).add_(1) + x[0],
    "nested": lambda x: torch.tensor([[x[0], 1.0], (2.0, x[1])], dtype=torch.float64),
    "half": lambda x: torch.tensor([x[0] / 3, 1e-3], dtype=torch.float16),
    "as_tensor": lambda x: torch.as_tensor([x[0], x[1]]),
    "asarray": lambda x: torch.asarray([x[0], x[1]]),
    "new_tensor": lambda x: x.to(torch.float64).new_tensor([x[0], 2]),
    "the old constructor": lambda x: torch.Tensor([v.mean() for v in x.split(1)]),
    "doubles by the old one": lambda x: torch.DoubleTensor([x[0], 2.0]),
    "without gradients": lambda x: torch.tensor([x.sum(), 1.0]) * x[0],
    "the device is said": lambda x: torch.tensor([x.sum(), 1.0], device="cpu"),
}
IN_PYTHON: dict[str, Callable[[torch.Tensor], Any]] = {
    "one element in a dimension": lambda x: torch.tensor([x[:1], x[1:2]]),
    "several elements": lambda x: torch.tensor([x, x]),
    "ragged": lambda x: torch.tensor([[x[0]], 1.0]),
    "floats as integers": lambda x: torch.tensor([x[0], 1], dtype=torch.int64),
    "a gradient is asked for": lambda x: torch.tensor([x[0], 1.0], requires_grad=True) * 2,
    "truth values": lambda x: torch.tensor([x[0] > 0, True]),
}


def outcome(f: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    try:
        return f(x)
    except Exception as error:  # noqa: BLE001  # the same is wanted of both
        return type(error), str(error)


def check(f: Callable[[torch.Tensor], Any], compiled: Callable[[torch.Tensor], Any], x: torch.Tensor) -> None:
    want, got = outcome(f, x), outcome(compiled, x)
    assert isinstance(got, torch.Tensor) == isinstance(want, torch.Tensor), (got, want)
    if not isinstance(want, torch.Tensor):
        assert got == want
        return
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert got.requires_grad == want.requires_grad and got.is_leaf == want.is_leaf
    if want.requires_grad and x.requires_grad:
        (a,) = torch.autograd.grad(want.sum(), x, allow_unused=True)
        (b,) = torch.autograd.grad(got.sum(), x, allow_unused=True)
        torch.testing.assert_close(b, a, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize("name", [*IN_A_GRAPH, *IN_PYTHON])
@pytest.mark.parametrize("gradient", [False, True])
def test_equals_eager(name: str, gradient: bool) -> None:
    f = (IN_A_GRAPH | IN_PYTHON)[name]
    compiled = torchjit.compile(f, backend="aot_eager", fullgraph=name in IN_A_GRAPH)
    for start in (1.0, 3.0):
        check(f, compiled, (torch.arange(2.0) + start).requires_grad_(gradient))


DTYPES = (torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, (torch.bool, *DTYPES))))
def test_kinds_of_numbers_are_promoted_as_in_eager(a: torch.dtype, b: torch.dtype) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([x[0].to(a), x[1].to(b), 7])

    check(f, torchjit.compile(f, backend="eager"), torch.tensor([3.3, 1.0]))


def test_large_integers_go_by_way_of_pythons_float() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([x[0], x[1]], dtype=torch.float32)

    check(f, torchjit.compile(f, backend="eager", fullgraph=True), torch.tensor([2**53 + 2**29 + 1, 2**24 + 1]))


def test_what_is_known_at_capture_stays_known() -> None:
    @torchjit.compile(backend="eager", fullgraph=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([torch.tensor(2), 3])[0].item()

    torch.testing.assert_close(f(torch.ones(2)), torch.full((2,), 2.0))


def test_a_break_tells_what_to_write() -> None:
    with pytest.raises(torchjit.exc.Unsupported) as info:
        torchjit.compile(IN_PYTHON["truth values"], backend="eager", fullgraph=True)(torch.ones(2))
    assert info.value.reason.id == "TJ-FX-001" and "tensor() of a list with tensors" in str(info.value)
    assert any("torch.stack" in hint for hint in info.value.hints)


@pytest.mark.parametrize(
    ("f", "name"),
    [
        (lambda x: torch.unique(x), "torch.unique"),
        (lambda x: torch.nonzero(x), "torch.nonzero"),
        (lambda x: torch.nn.functional.max_pool2d(x, 3), "torch.nn.functional.max_pool2d"),
    ],
)
def test_functions_are_called_as_the_program_calls_them(f: Callable[[torch.Tensor], Any], name: str) -> None:
    with pytest.raises(torchjit.exc.Unsupported, match=rf": {name}: "):
        torchjit.compile(f, backend="eager", fullgraph=True)(torch.ones(2))
