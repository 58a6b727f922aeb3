"""A compiled graph as a function that autograd knows. Nothing of what compiles graphs is needed for it: entries on disk hold such functions."""

from __future__ import annotations

from typing import Any

import torch

from torchjit_aot.compiler_protocol import Run
from torchjit_core.storing import made_by, maker

__all__ = ["graph_function"]


@maker
def graph_function(forward: Run, backward: Run) -> Run:
    """A forward that gives its results a node of autograd, with this backward."""
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward), "boxed_grads_call": True}
    function: Any = type("CompiledGraphFunction", (torch.autograd.Function,), members)
    # Of nodes whose forward met no hooks: asking for what is not there takes a microsecond.
    function._backward_cls.hooked = None
    return made_by(function.apply, graph_function, forward, backward)  # type: ignore[no-any-return]
