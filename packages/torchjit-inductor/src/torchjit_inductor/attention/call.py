"""Attention whose scores the user changes (`flex_attention`): what kernels need to know of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch.fx

from torchjit_core.expr import Symbol
from torchjit_inductor.lowering.tensors import Strided, TensorMeta

__all__ = ["AttentionCall", "AttentionChoice", "AttentionOperators", "Formula", "symbols_of"]

AttentionChoice: TypeAlias = Callable[
    [torch.fx.Node], Callable[[Sequence[Strided], Sequence[TensorMeta]], Callable[..., Any] | None] | None
]
"""From a node to who makes its kernels, None if it is no attention: from the operands in memory and what the results look like to a
function of the operands and the values of `symbols_of` them, or None if there are no kernels for this one."""


@final
@attrs.frozen(eq=False)
class Formula:
    """A function of a score's place, as nodes of a graph of scalars.

    Attributes:
        inputs: placeholders: the score (if it takes one), batch, head, query, key, then tensors from outside.
        result: what it gives.
        tangent: placeholder of the result's gradient.
        gradient: of the score; None: it has none.
        others: gradients of tensors from outside: their position among these, and the node (None: it has none).
        graph: with all of these.
    """

    graph: torch.fx.Graph
    inputs: tuple[torch.fx.Node, ...]
    result: torch.fx.Node
    tangent: torch.fx.Node | None = None
    gradient: torch.fx.Node | None = None
    others: tuple[tuple[int, torch.fx.Node | None], ...] = ()


@final
@attrs.frozen(eq=False)
class AttentionOperators:
    """The operators that graphs hold for such a call, and who knows what they compute.

    Attributes:
        forward: (query, key, value, more, name) to result, logarithm to base 2 of the scores' sum, maximum of the scores over log 2.
        backward: (query, key, value, more, total, gradient, shift, wanted, name) to the gradients of the first three, and of those of `more` that
            are wanted.
        describe: from the name, the traced arguments `query` and `more`, and what is wanted, to the call, or to why there is no telling.
    """

    forward: Any
    backward: Any
    describe: Callable[[str, Any, Sequence[Any], Sequence[int]], AttentionCall | str]


@final
@attrs.frozen(eq=False)
class AttentionCall:
    """What a call computes.

    Attributes:
        scale: of the scores, before `score`.
        score, mask: what the user's functions do.
        blocks: positions among `more` of the block mask's tensors: numbers and indices of a query block's partly masked key
            blocks, and of the full ones, then the same of a key block's query blocks. None where there is none.
        query_block, key_block: sizes of the blocks.
        outside: how many of `more` come before what the functions use from outside.
    """

    scale: float
    score: Formula
    mask: Formula
    blocks: tuple[int | None, ...]
    query_block: int
    key_block: int
    outside: int


def symbols_of(places: Sequence[Strided], metas: Sequence[TensorMeta]) -> tuple[Symbol, ...]:
    """What varies in the sizes and strides of operands and results, in the order in which kernels get it."""
    tensors: list[Strided | TensorMeta] = [*places, *metas]
    found = {s for t in tensors for n in (*t.sizes, *t.strides) for s in n.symbols}
    return tuple(sorted(found, key=lambda s: (len(s.name), s.name)))
