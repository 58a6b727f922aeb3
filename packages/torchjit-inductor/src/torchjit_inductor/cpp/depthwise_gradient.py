"""A depthwise convolution's weight gradient as host programs call it. What writes and compiles its kernel is in `depthwise`."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, final

import attrs
import torch

from torchjit_core.failures import current_policy, degraded
from torchjit_core.handlers import let_through
from torchjit_core.storing import NotStorable
from torchjit_inductor.codegen_protocol import NO_COMPILER, CompilerMissing

__all__ = ["BackgroundBuild", "Taps", "WeightGradient"]

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
class BackgroundBuild:
    """A kernel that a thread of its own compiles, or, in a process forked meanwhile, whoever wants it first."""

    def __init__(self, make: Callable[[], Callable[..., None]]) -> None:
        self._make = make
        self._made: Callable[..., None] | None = None
        self._failure: CompilerMissing | None = None
        self._process = os.getpid()
        self.policy = current_policy()
        self._thread = threading.Thread(target=self._run, name="torchjit-depthwise")
        self._thread.start()

    def __stored_state__(self) -> Mapping[str, object]:
        """The kernel: an entry is stored once its kernels are compiled.

        Raises:
            NotStorable: the compiler rejected it; the next process tries again.
        """
        try:
            return {"made": self.result()}
        except CompilerMissing as missing:
            raise NotStorable(NO_COMPILER, str(missing)) from missing

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        self._made = state["made"]
        self.policy = current_policy()

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
class WeightGradient:
    """What a host program calls."""

    def __init__(self, taps: Taps, width: int, built: BackgroundBuild, name: str) -> None:
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
