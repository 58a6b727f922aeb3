"""A case: one module with its inputs and a way to run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

import attrs
import torch

__all__ = ["Case", "Corpus", "Skip"]


class Skip(Exception):
    """This model cannot be built or run in eager here; the text says why."""


@final
@attrs.frozen
class Case:
    """One program to compare.

    Attributes:
        name: unique in its corpus.
        module: freshly built, in the mode (train or eval) in which it is called.
        args: positional arguments; tensors in them may require grad.
        kwargs: keyword arguments.
        backward: also run the backward of a scalar of all outputs that require grad; else the call is under no_grad.
        after: turns what the module returned into the values to compare (identity by default).
    """

    name: str
    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = attrs.field(factory=dict)
    backward: bool = True
    after: Callable[[Any], Any] = lambda out: out


class Corpus(Protocol):
    """A collection of models. Each of the modules `moduleinfo`, `torchvision_models`, ... is one."""

    def prepare(self) -> None:
        """Import what every model needs (once, before the processes fork)."""

    def names(self) -> Sequence[str]:
        """All models, the cheap ones first where that is known."""

    def build(self, name: str, mode: str, device: str) -> Sequence[Case]:
        """The cases of one model in mode `train` or `eval`. Raises Skip, or what the model's own code raises."""
