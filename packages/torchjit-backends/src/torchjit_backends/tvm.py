"""The backend `tvm`: graphs go to the backend that TVM Relax has for torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from torchjit_backends.others import entry_of

__all__ = ["tvm"]


def tvm(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """TVM Relax."""
    theirs = entry_of("tvm.relax.frontend.torch", "relax_dynamo")()
    made: Callable[..., Any] = theirs(gm, list(example_inputs))
    return made
