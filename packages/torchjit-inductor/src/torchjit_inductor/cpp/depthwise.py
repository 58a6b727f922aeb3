"""Gradients of a depthwise convolution's weights as C kernels (`depthwise.h`)."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from functools import partial
from importlib import resources
from typing import Any, final

import attrs
import torch

from torchjit_core.events import emit
from torchjit_core.failures import current_policy, degraded
from torchjit_core.handlers import let_through
from torchjit_inductor.codegen_protocol import NO_COMPILER, CompilerMissing
from torchjit_inductor.cpp.backend import whole_file
from torchjit_inductor.cpp.build import build, default_vector_bytes, find_compiler
from torchjit_inductor.cpp.loader import load
from torchjit_inductor.cpp.text import STORAGE
from torchjit_inductor.settings import InductorSettings

__all__ = ["DepthwiseKernels", "Taps"]

RING = 24576
"""Floats that a thread keeps of the image, on its stack."""
COLUMNS = 128
"""Most columns of the gradient that are walked at once."""
MOST_TAPS = 1024
UNITS = 32
"""Images are divided among threads where vectors of channels make fewer pieces of work."""


@final
@attrs.frozen
class Taps:
    """Which convolution: two dimensions, rows first.

    Attributes:
        size, stride, padding, dilation: of its windows.
        dtype: of images and weights.
    """

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    dtype: torch.dtype


@final
class DepthwiseKernels:
    """Compiles such kernels, in the background: a graph's own kernels are compiled at the same time."""

    def __init__(self, settings: InductorSettings) -> None:
        self._settings = settings
        self._width = max(4, (settings.vector_bytes or default_vector_bytes()) // 4)
        self._built: dict[str, _Build] = {}

    def gradient(self, taps: Taps) -> Callable[..., Any] | None:
        """A function of the result's gradient, the image and whether the bias's gradient is wanted; None: there is no kernel.

        It takes tensors of 3 or 4 dimensions, in any layout, and gives the weight's gradient and the bias's (or None).
        """
        if taps.dtype not in (torch.float32, torch.bfloat16, torch.float16) or math.prod(taps.size) > MOST_TAPS:
            return None
        (rows, columns), (apart, beside) = taps.size, taps.dilation
        fewest = (columns - 1) * beside + 1 + 7 * taps.stride[1]
        if ((rows - 1) * apart + 1) * fewest * self._width > RING:
            return None
        try:
            text = self._text(taps)
            if text not in self._built:
                settings = self._settings
                compiler = find_compiler(settings.compiler, 4 * self._width, settings.compiler_named_by)
                # Sums may be exact between two roundings, here: they have no counterpart in eager that they must equal.
                compiler = attrs.evolve(compiler, flags=(*compiler.flags, "-ffp-contract=fast"))
                self._built[text] = _Build(partial(self._build, text, compiler))
        except CompilerMissing:
            return None
        name = f"depthwise_weight_gradient_{rows}x{columns}"
        emit("kernel", name=name, language="c", source=text, origins=[], graph="")
        return _Gradient(taps, self._width, self._built[text], name)

    def _build(self, text: str, compiler: Any) -> Callable[..., None]:
        settings = self._settings
        (library,) = build(
            [whole_file(text)],
            compiler,
            settings.cache_dir,
            settings.compile_jobs,
            settings.cache_bytes,
            settings.compiler_seconds,
        )
        (function,) = load(library, ["k0"])
        return function

    def _text(self, taps: Taps) -> str:
        rows, columns = taps.size
        registers = 26 if self._width != 8 else 13  # AVX2 has 16 of them, other machines 32
        across = -(-columns // -(-columns // registers))
        down = -(-rows // -(-rows // max(1, registers // across)))
        sizes = f"KH = {rows}, KW = {columns}, DW = {taps.dilation[1]}, R_AT_ONCE = {down}, S_AT_ONCE = {across}"
        lines = [
            "namespace k0 {",
            f"VECTOR_TYPES({self._width})",
            f"typedef {STORAGE[taps.dtype]} T;",
            f"enum {{ {sizes}, RING = {RING}, COLUMNS = {COLUMNS} }};",
            resources.files("torchjit_inductor.cpp").joinpath("depthwise.h").read_text(),
            "}",
            'extern "C" void* py_k0(void*, void* const* args, i64) {',
            "  i64 v[25]; for (int k = 0; k < 25; k++) v[k] = py_int(args[k]);",
            "  k0::Args a = {(k0::T*)v[0], (k0::T*)v[1], (f32*)v[2], (k0::T*)v[3], (k0::T*)v[4], v[5], v[6], v[7], v[8], v[9], v[10],",
            "    v[11], v[12], v[13], v[14], v[15], {v[16], v[17], v[18], v[19]}, {v[20], v[21], v[22], v[23]}, v[24]};",
            "  void* thread = py_save(); k0::run(a); py_restore(thread);",
            "  py_incref(py_none); return py_none;",
            "}",
        ]
        return "\n".join(lines)


@final
class _Build:
    """A kernel that a thread of its own compiles, or, in a process forked meanwhile, whoever wants it first."""

    def __init__(self, make: Callable[[], Callable[..., None]]) -> None:
        self._make = make
        self._made: Callable[..., None] | None = None
        self._failure: CompilerMissing | None = None
        self._process = os.getpid()
        self.policy = current_policy()
        self._thread = threading.Thread(target=self._run, name="torchjit-depthwise")
        self._thread.start()

    def result(self) -> Callable[..., None]:
        """The kernel.

        Raises:
            CompilerMissing: the compiler rejected it.
        """
        if self._made is None:
            if self._process == os.getpid():
                self._thread.join()
            if self._made is None and self._failure is None:
                self._run()
            if self._failure is not None:
                raise self._failure
        assert self._made is not None
        return self._made

    def _run(self) -> None:
        try:
            self._made = self._make()
        except CompilerMissing as missing:
            let_through()
            self._failure = missing
        except Exception as error:  # a folder that cannot be written, say; aten computes what this would have
            let_through()
            self._failure = CompilerMissing(f"{type(error).__name__}: {error}")
            self._failure.__cause__ = error


@final
class _Gradient:
    """What a host program calls."""

    def __init__(self, taps: Taps, width: int, built: _Build, name: str) -> None:
        self.__name__ = name
        self._taps, self._width, self._built = taps, width, built
        self._numbers = (*taps.stride, *taps.padding, taps.dilation[0])

    def __call__(
        self, gradient: torch.Tensor, image: torch.Tensor, biased: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        flat = image.dim() == 3
        try:
            function = self._built.result()
        except CompilerMissing as missing:
            degraded(NO_COMPILER, str(missing), missing, self._built.policy)
            return self._by_aten(gradient, image, biased)
        taps = self._taps
        if flat:
            gradient, image = gradient.unsqueeze(2), image.unsqueeze(2)
        channels, size = image.shape[1], math.prod(taps.size)
        weight = image.new_empty((channels, 1, *taps.size[flat:]))
        bias = image.new_empty(channels) if biased else None
        blocks = max(1, -(-channels // self._width))
        parts = max(1, min(image.shape[0], UNITS // blocks))
        # Whatever the defaults of the program are: it is memory for the kernel.
        sums = torch.empty(parts * channels * (size + 1), dtype=torch.float32, device=image.device)
        if weight.numel():
            function(
                image.data_ptr(), gradient.data_ptr(), sums.data_ptr(), weight.data_ptr(),
                0 if bias is None else bias.data_ptr(), *image.shape, *gradient.shape[2:], *self._numbers,
                *image.stride(), *gradient.stride(), parts,
            )  # fmt: skip
        return weight, bias

    def _by_aten(
        self, gradient: torch.Tensor, image: torch.Tensor, biased: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        taps, first = self._taps, image.dim() == 3
        weight = image.new_empty((image.shape[1], 1, *taps.size[first:]))
        options = ([n[first:] for n in (taps.stride, taps.padding, taps.dilation)], False, [0] * (2 - first))
        _, weight, bias = torch.ops.aten.convolution_backward.default(
            gradient, image, weight, [image.shape[1]], *options[0], *options[1:], image.shape[1], [False, True, biased]
        )
        return weight, bias if biased else None
