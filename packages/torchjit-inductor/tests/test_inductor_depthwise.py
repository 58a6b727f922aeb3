"""Gradients of depthwise convolutions' weights as kernels."""

from __future__ import annotations

import os
import shutil
import threading
from typing import Any

import pytest
import torch
from inductor_testing import compiled
from torch import Tensor

from torchjit_inductor.codegen_protocol import CompilerMissing
from torchjit_inductor.cpp import depthwise
from torchjit_inductor.cpp.build import build as build_files

KERNEL = "depthwise_weight_gradient"


def backward(gradient: Tensor, image: Tensor, weight: Tensor, *options: Any) -> list[Tensor | None]:
    """What is asked for, of the gradients of image, weight and bias."""
    stride, padding, dilation, wanted = options
    rank = image.dim() - 2
    numbers = [list(n) if isinstance(n, tuple) else [n] * rank for n in (stride, padding, dilation)]
    groups = weight.shape[0]
    made = torch.ops.aten.convolution_backward(
        gradient, image, weight, [groups], *numbers, False, [0] * rank, groups, list(wanted)
    )
    return [t for t, want in zip(made, wanted, strict=True) if want]


def operands(
    sizes: tuple[int, ...], window: tuple[int, ...], stride: Any, padding: Any, dilation: Any, dtype: torch.dtype
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(sum(sizes))
    image = torch.randn(sizes, generator=generator).to(dtype)
    weight = torch.randn((sizes[1], 1, *window), generator=generator).to(dtype)
    convolution = torch.nn.functional.conv1d if len(window) == 1 else torch.nn.functional.conv2d
    result = convolution(image, weight, None, stride, padding, dilation, sizes[1])
    return [torch.randn(result.shape, generator=generator).to(dtype), image, weight]


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any, Any, Any]] = {
    "5 x 5": ((2, 40, 14, 11), (5, 5), 1, 2, 1),
    "strided": ((3, 5, 9, 12), (5, 5), 2, 2, 1),
    "without padding": ((1, 70, 8, 9), (5, 5), 1, 0, 1),
    "much padding": ((1, 3, 3, 2), (5, 5), 1, 4, 1),
    "strips of an image": ((1, 4, 7, 700), (5, 5), (1, 3), (2, 1), 1),
    "oblong": ((2, 20, 10, 17), (2, 6), (2, 1), (0, 3), 1),
    "7 x 7": ((1, 33, 9, 9), (7, 7), 1, 3, 1),
    "dilated": ((2, 18, 12, 12), (3, 3), 1, (2, 3), (2, 3)),
    "one dimension": ((2, 30, 50), (31,), 1, 15, 1),
    "one dimension, causal": ((2, 64, 20), (4,), 1, 3, 1),
}


@pytest.mark.parametrize("last", [False, True], ids=["row-major", "channels last"])
@pytest.mark.parametrize("name", CASES)
def test_they_are_eagers(name: str, last: bool) -> None:
    sizes, window, *options = CASES[name]
    stride, padding, dilation = options
    gradient, image, weight = operands(sizes, window, stride, padding, dilation, torch.float32)
    if last and len(window) == 2:
        gradient, image = (t.contiguous(memory_format=torch.channels_last) for t in (gradient, image))
    elif last:
        gradient, image = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (gradient, image))

    def function(g: Tensor, x: Tensor, w: Tensor) -> list[Any]:
        return backward(g, x, w, *options, (True, True, True))

    graph = compiled(function, (gradient, image, weight))
    assert KERNEL in graph.source
    want = function(gradient.double(), image.double(), weight.double())
    for have, exact in zip(graph(gradient, image, weight), want, strict=True):
        assert have.shape == exact.shape
        torch.testing.assert_close(have.double(), exact, rtol=1e-5, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [16, 32])
def test_types_and_vectors(dtype: torch.dtype, width: int) -> None:
    for last in (False, True):
        tensors = operands((2, 21, 9, 10), (5, 5), 1, 2, 1, dtype)
        if last:
            tensors[:2] = [t.contiguous(memory_format=torch.channels_last) for t in tensors[:2]]

        def function(g: Tensor, x: Tensor, w: Tensor) -> list[Any]:
            return backward(g, x, w, 1, 2, 1, (False, True, True))

        graph = compiled(function, tensors, vector_bytes=width)
        assert KERNEL in graph.source and "aten_convolution_backward" not in graph.source
        for have, exact in zip(graph(*tensors), function(*(t.double() for t in tensors)), strict=True):
            assert have.dtype == dtype
            torch.testing.assert_close(have, exact.to(dtype))


@pytest.mark.parametrize("wanted", [(True, True, False), (False, True, False), (True, False, True)], ids=str)
def test_only_what_is_wanted(wanted: tuple[bool, ...]) -> None:
    tensors = operands((2, 9, 8, 8), (5, 5), 1, 2, 1, torch.float32)
    graph = compiled(lambda g, x, w: backward(g, x, w, 1, 2, 1, wanted), tensors)
    assert (KERNEL in graph.source) is wanted[1]
    assert ("aten_convolution_backward" in graph.source) is wanted[0]
    for have, want in zip(graph(*tensors), backward(*tensors, 1, 2, 1, wanted), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-3)


def test_sizes_are_symbols() -> None:
    def function(g: Tensor, x: Tensor) -> list[Any]:
        return backward(g.tanh(), x, torch.full((12, 1, 5, 5), 0.1), 1, 2, 1, (True, True, True))

    graph = compiled(function, operands((3, 12, 10, 11), (5, 5), 1, 2, 1, torch.float32)[:2], mode="symbolic")
    assert KERNEL in graph.source
    for sizes in ((3, 12, 10, 11), (1, 12, 5, 40), (9, 12, 33, 7)):
        tensors = operands(sizes, (5, 5), 1, 2, 1, torch.float32)[:2]
        for have, want in zip(graph(*tensors), function(*tensors), strict=True):
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-3)


def test_threads_do_not_change_sums() -> None:
    tensors = operands((5, 20, 40, 40), (5, 5), 1, 2, 1, torch.float32)
    graph = compiled(lambda g, x, w: backward(g, x, w, 1, 2, 1, (False, True, True)), tensors)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(graph(*tensors))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


LEFT: dict[str, tuple[int, int, Any, torch.dtype, bool]] = {
    "few columns": (9, 3, 1, torch.float32, False),
    "double": (9, 5, 1, torch.float64, False),
    "an image too wide for the ring": (1700, 5, (1, 413), torch.float32, False),  # of vectors of any width
    "two images for each group": (9, 5, 1, torch.float32, True),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_aten(name: str) -> None:
    side, columns, dilation, dtype, grouped = LEFT[name]
    tensors = operands((2, 6, 9, side), (5, columns), 1, 2, dilation, dtype)
    options = [[1, 1], [2, 2], [dilation] * 2 if isinstance(dilation, int) else list(dilation)]
    groups = 3 if grouped else 6
    if grouped:
        tensors[2] = torch.randn(6, 2, 5, columns)

    def function(g: Tensor, x: Tensor, w: Tensor) -> list[Any]:
        made = torch.ops.aten.convolution_backward(g, x, w, None, *options, False, [0, 0], groups, [True, True, False])
        return list(made[:2])

    graph = compiled(function, tensors)
    assert KERNEL not in graph.source
    for have, want in zip(graph(*tensors), function(*tensors), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("command", ["g++-10", "g++-11", "clang++", "clang++-14"])
def test_other_compilers(command: str) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"no {command}")
    for dtype in (torch.float32, torch.float16):
        tensors = operands((2, 21, 9, 10), (5, 5), 1, 2, 1, dtype)
        graph = compiled(lambda g, x, w: backward(g, x, w, 1, 2, 1, (False, True, False)), tensors, compiler=command)
        assert KERNEL in graph.source
        (want,) = backward(*(t.double() for t in tensors), 1, 2, 1, (False, True, False))
        torch.testing.assert_close(graph(*tensors)[0], want.to(dtype))  # type: ignore[union-attr]


def test_without_a_compiler_aten_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that breaks down after it was found."""

    def fails(*_: Any) -> None:
        raise CompilerMissing("gone")

    monkeypatch.setattr(depthwise, "build", fails)
    tensors = operands((2, 9, 8, 8), (5, 5), 1, 2, 1, torch.float32)
    graph = compiled(lambda g, x, w: backward(g, x, w, 1, 2, 1, (True, True, True)), tensors)
    assert KERNEL in graph.source
    for have, want in zip(graph(*tensors), backward(*tensors, 1, 2, 1, (True, True, True)), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_sequences_go_in_as_images_with_their_channels_innermost(dtype: torch.dtype, bias: bool) -> None:
    """So models that have them so, and only transpose, convert nothing."""
    x, w = torch.randn(2, 19, 24).to(dtype), torch.randn(24, 1, 4).to(dtype)
    inputs = (x, w, torch.randn(24).to(dtype)) if bias else (x, w)

    def function(x: Tensor, w: Tensor, *b: Tensor) -> Tensor:
        return (
            torch.nn.functional.conv1d(x.transpose(1, 2), w, b[0] if b else None, padding=3, groups=24).transpose(1, 2)
            * 2
        )

    def rows(x: Tensor, w: Tensor) -> Tensor:
        return torch.nn.functional.conv1d(x.transpose(1, 2) * 2, w, None, 2, 0, 2, 24).relu()

    graph = compiled(function, inputs)
    assert len(graph.kernels) == 1 and "(456, 1, 456, 24)" in graph.source
    torch.testing.assert_close(graph(*inputs)[0], function(*inputs))
    graph = compiled(rows, (x, w))
    assert len(graph.kernels) == 2
    torch.testing.assert_close(graph(x, w)[0], rows(x, w))


def test_lengths_of_sequences_are_symbols() -> None:
    def function(x: Tensor) -> list[Any]:
        w = torch.full((6, 1, 3), 0.1)
        y = torch.nn.functional.conv1d(x, w, None, 1, 1, 1, 6)
        return [y.relu(), *backward(y.tanh(), x, w, 1, 1, 1, (True, True, True))]

    graph = compiled(function, (torch.randn(2, 6, 11),), mode="symbolic")
    for sizes in ((2, 6, 11), (3, 6, 40)):
        x = torch.randn(sizes)
        for have, want in zip(graph(x), function(x), strict=True):
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ["grouped", "transposed", "double"])
def test_other_convolutions_of_sequences_are_left_alone(case: str) -> None:
    dtype = torch.float64 if case == "double" else torch.float32
    x = torch.randn(2, 6, 15, dtype=dtype)
    w = torch.randn(6, 2 if case == "grouped" else 1, 3, dtype=dtype)

    def function(x: Tensor, w: Tensor) -> Tensor:
        if case == "transposed":
            return torch.nn.functional.conv_transpose1d(x, w, groups=6)
        return torch.nn.functional.conv1d(x, w, groups=3 if case == "grouped" else 6)

    graph = compiled(function, (x, w))
    assert not graph.kernels
    torch.testing.assert_close(graph(x, w)[0], function(x, w))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_the_programs_default_dtype_does_not_matter(dtype: torch.dtype) -> None:
    tensors = operands((5, 9, 8, 8), (5, 5), 1, 2, 1, torch.float32)
    graph = compiled(lambda g, x, w: backward(g, x, w, 1, 2, 1, (False, True, True)), tensors)
    want = graph(*tensors)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        have = graph(*tensors)
    finally:
        torch.set_default_dtype(before)
    assert all(torch.equal(a, b) for a, b in zip(have, want, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_process_forked_meanwhile_compiles_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    started, go = threading.Event(), threading.Event()

    def slow(*args: Any) -> Any:
        if threading.current_thread().name == "torchjit-depthwise":
            started.set()
            go.wait()
        return build_files(*args)

    monkeypatch.setattr(depthwise, "build", slow)
    tensors = operands((2, 9, 8, 8), (5, 6), 1, 2, 1, torch.float32)
    graph = compiled(lambda g, x, w: backward(g, x, w, 1, 2, 1, (False, True, False)), tensors)
    started.wait()
    child = os.fork()
    if child == 0:  # pragma: no cover
        torch.set_num_threads(1)
        os._exit(0 if graph(*tensors)[0].shape == (9, 1, 5, 6) else 1)
    try:
        assert os.waitpid(child, 0)[1] == 0
    finally:
        go.set()
    torch.testing.assert_close(
        graph(*tensors)[0], backward(*tensors, 1, 2, 1, (False, True, False))[0], rtol=1e-4, atol=1e-3
    )
