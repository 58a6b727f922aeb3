"""Gradients of a depthwise convolution's weights as C kernels (`depthwise.h`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from importlib import resources
from typing import Any, final

import attrs
import torch

from torchjit_core.events import emit
from torchjit_inductor.codegen_protocol import CompilerMissing
from torchjit_inductor.cpp.backend import whole_file
from torchjit_inductor.cpp.build import build, default_vector_bytes, find_compiler
from torchjit_inductor.cpp.depthwise_gradient import BackgroundBuild, Taps, WeightGradient
from torchjit_inductor.cpp.stored_kernels import load_storable
from torchjit_inductor.cpp.text import STORAGE
from torchjit_inductor.settings import InductorSettings

__all__ = ["DepthwiseKernels", "Taps"]

RING = 24576
"""Floats that a thread keeps of the image, on its stack."""
COLUMNS = 128
"""Most columns of the gradient that are walked at once."""
MOST_TAPS = 1024


@final
class DepthwiseKernels:
    """Compiles such kernels, in the background: a graph's own kernels are compiled at the same time."""

    def __init__(self, settings: InductorSettings) -> None:
        self._settings = settings
        self._width = max(4, (settings.vector_bytes or default_vector_bytes()) // 4)
        self._built: dict[str, BackgroundBuild] = {}

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
                self._built[text] = BackgroundBuild(partial(self._build, text, compiler))
        except CompilerMissing:
            return None
        name = f"depthwise_weight_gradient_{rows}x{columns}"
        emit("kernel", name=name, language="c", source=text, origins=[], graph="")
        return WeightGradient(taps, self._width, self._built[text], name)

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
        (function,) = load_storable(library, ["k0"], settings.cache_dir)
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
