"""What the end of a captured region turns into: the graph's callable and where its outputs are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import attrs

from torchjit_core.paths import AccessPath

__all__ = ["OutputRef", "RegionCode"]

OutputRef: TypeAlias = "int | AccessPath"
"""Item k of the target's result, or the path of an input that is the output itself."""


@final
@attrs.frozen
class RegionCode:
    """A compiled region.

    Attributes:
        target: takes the gathered `inputs` positionally and returns a sequence; None when no graph was needed.
        inputs: the paths of the graph's inputs.
        outputs: one per leaf that was asked for, in order.
        epilogue: `(function, arguments)` to call for real after the graph, so that ambient state (grad mode,
            autocast) is as the program left it.
        repeatable: where `target` raises, nothing outside has changed, so that the program's code may run in its place.
        acts: it may do what can be seen, so that what the program does before comes before it.
    """

    target: Callable[..., Sequence[Any]] | None
    inputs: tuple[AccessPath, ...] = ()
    outputs: tuple[OutputRef, ...] = ()
    epilogue: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = ()
    repeatable: bool = False
    acts: bool = False
