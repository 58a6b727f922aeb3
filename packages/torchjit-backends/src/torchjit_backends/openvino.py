"""The backend `openvino`: inference graphs go to the backend that the package openvino brings for torch.compile."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
from torch import fx

import torchjit_aot
from torchjit_backends.others import entry_of, refusal_of, tell_refusal
from torchjit_core.forks import new_lock
from torchjit_frame import eager

__all__ = ["openvino"]

KEPT_SIZES = 16
"""Compiled graphs that are kept for a graph whose sizes vary."""


def openvino(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """OpenVINO behind AOT autograd: inference graphs, once for each set of sizes; training runs by eager operators."""
    theirs = entry_of("openvino.frontend.pytorch.torchdynamo.backend", "openvino")
    given = None if options is None else dict(options)

    def compiler(
        gm: fx.GraphModule, example_inputs: Sequence[Any], *, kind: torchjit_aot.Kind, **asked: Any
    ) -> Callable[..., Sequence[Any]]:
        refusal = refusal_of(gm.graph) if kind == "inference" else None
        if refusal is not None:
            tell_refusal(asked["name"], refusal)
        if kind != "inference" or refusal is not None:
            return torchjit_aot.run_eagerly(gm, example_inputs, kind=kind, **asked)
        return _OfEachSize(gm, lambda inputs: theirs(gm, list(inputs), options=given))

    return torchjit_aot.compile(gm, example_inputs, compiler=compiler)


@final
class _OfEachSize:
    """A graph for a compiler that takes the sizes of the first call for those of all calls."""

    def __init__(self, gm: fx.GraphModule, compile: Callable[[Sequence[Any]], Callable[..., Any]]) -> None:
        self._compile = compile
        self._made: OrderedDict[Any, Callable[..., Any]] = OrderedDict()
        self._lock = new_lock()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        key = tuple(tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in inputs)
        with self._lock, eager(), torch.no_grad():  # the package keeps one request for each graph: one call at a time
            if key not in self._made:
                self._made[key] = self._compile(inputs)
                if len(self._made) > KEPT_SIZES:
                    self._made.popitem(last=False)
            made = self._made[key](*inputs)
            # Results are the package's memory, which its next call overwrites.
            return [value.clone() if isinstance(value, torch.Tensor) else value for value in _as_sequence(made)]


def _as_sequence(made: Any) -> Sequence[Any]:
    return made if isinstance(made, (tuple, list)) else (made,)
