"""The contract with the compiler of the final graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from torch import fx

__all__ = ["Boxed", "CompiledGraph", "GraphCompiler", "Kind", "Run", "writes_last"]

Kind: TypeAlias = Literal["inference", "forward", "backward"]
CompiledGraph: TypeAlias = Callable[..., Sequence[Any]]
Boxed: TypeAlias = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph that takes its inputs in a list, which it may empty."""
Run: TypeAlias = Callable[..., Any]
"""Takes what the program's graph takes, and returns what that returns."""


class GraphCompiler(Protocol):
    """Turns one functional graph into a callable.

    The graph is functional ATen: `call_function` nodes of `OpOverload`s, `operator.getitem` and arithmetic of the
    `operator` module on symbolic ints. Mutation appears only as trailing `aten.copy_` into placeholders. Each node has
    `meta["val"]`: a fake tensor, a `SymInt`, a number, or a sequence of them.
    """

    def __call__(
        self,
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        /,
        *,
        kind: Kind,
        static_inputs: frozenset[int] = frozenset(),
        name: str = "graph",
    ) -> CompiledGraph:
        """Compile.

        Args:
            gm: the graph.
            example_inputs: the placeholders' `meta["val"]`.
            kind: which part of a training or inference step it is.
            static_inputs: positions of the inputs whose storage stays the same over the calls (parameters, buffers).
            name: for people.

        Returns:
            A callable that takes the inputs positionally and returns the graph's flat outputs as a sequence. If it has
            an attribute `boxed`, backwards are called through that: it takes the inputs in one list, which it empties,
            so that it can free them after their last use. If an attribute `writes_last` is true, operators without results
            run before the first write to an input, and an exception tells whether it was raised before that
            (`torchjit_core.writing`). An attribute `calls` is the number of torch's operators that it runs if it does nothing else.
        """
        ...


def writes_last(compiled: Run) -> bool:
    """Does a compiled graph promise that operators without results, which test something, run before its first write?"""
    return getattr(compiled, "writes_last", None) is True
