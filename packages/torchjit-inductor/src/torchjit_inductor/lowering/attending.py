"""Attention that has kernels of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.fx

from torchjit_core.expr import as_expr
from torchjit_inductor.attention.call import AttentionChoice, symbols_of
from torchjit_inductor.attention.few_queries import few_queries
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.graph_nodes import tensors_in
from torchjit_inductor.lowering.sizes import meta_of

__all__ = ["attended", "attended_by_few"]


def attended(builder: Builder, node: torch.fx.Node, args: Any, metas: Any, choice: AttentionChoice | None) -> Any:
    """The results of a call of `AttentionOperators` that has kernels, or None.

    Args:
        args: lowered.
        metas: of the results.
    """
    kernels = None if choice is None else choice(node)
    if kernels is None:
        return None
    places = [builder.materialize(t) for t in tensors_in(args)]
    function = kernels(places, metas)
    if function is None:
        return None
    return builder.extern(function, [*places, *map(as_expr, symbols_of(places, metas))], {}, metas)


def attended_by_few(
    builder: Builder, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any], choice: AttentionChoice | None
) -> Any:
    """The results, all but the first None, of a call of the library's attention that `few_queries` knows and that has kernels; or None.

    Args:
        env: what the nodes before it became.
    """
    call = None if choice is None else few_queries(node)
    kernels = None if call is None or choice is None else choice(node)
    if call is None or kernels is None:
        return None
    places, meta = [builder.materialize(env[n]) for n in call.operands], meta_of(node.meta["val"][0])
    function = kernels(places, [meta])
    if function is None:
        return None
    result = builder.extern(function, places, {}, meta)
    return (result, *[None] * (len(node.meta["val"]) - 1))
