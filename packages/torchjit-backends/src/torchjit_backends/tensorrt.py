"""The backend `tensorrt`: graphs go to the backend that Torch-TensorRT has for torch.compile, with its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from torchjit_backends.others import entry_of

__all__ = ["tensorrt"]


def tensorrt(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Torch-TensorRT."""
    theirs = entry_of("torch_tensorrt.dynamo.backend", "torch_tensorrt_backend")
    keywords = {} if options is None else {"options": dict(options)}
    made: Callable[..., Any] = theirs(gm, list(example_inputs), **keywords)
    return made
