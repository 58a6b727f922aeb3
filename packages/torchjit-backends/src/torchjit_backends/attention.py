"""Wiring for `flex_attention` on GPUs: the captured functions of its scores, as graphs of aten that kernels are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

import torchjit_aot
import torchjit_fx
import torchjit_inductor
from torchjit_core.reasons import GraphBreak
from torchjit_inductor.lowering.registry import LOWERINGS

__all__ = ["ATTENTION"]

_LISTS = slice(2, 10)
"""Where torch's description of a block mask has the lists of blocks: after the two lengths, before the sizes of the blocks."""


def _described(
    name: str, query: Any, more: Sequence[Any], wanted: Sequence[int]
) -> torchjit_inductor.AttentionCall | str:
    attention = torchjit_fx.attention_named(name)
    outside = list(more[attention.given_blocks :])
    places = [int(item.split()[1]) if isinstance(item, str) else None for item in attention.blocks[_LISTS]]
    query_block, key_block = attention.blocks[-2:]
    if type(query_block) is not int or type(key_block) is not int:
        return "blocks of sizes that vary"
    with query.fake_mode, torch.enable_grad():
        score = torch.empty((), dtype=torch.float32, device=query.device)
        index = torch.empty((), dtype=torch.int64, device=query.device)
    try:
        scored = _formula(
            lambda *given: attention.score(list(given), [])[0],
            [score, *[index] * 4],
            outside,
            [n - attention.given_blocks for n in wanted],
        )
        masked = _formula(lambda *given: attention.mask(list(given), [])[0], [index] * 4, outside)
    except GraphBreak as refusal:
        return str(refusal)
    if isinstance(scored, str) or isinstance(masked, str):
        return scored if isinstance(scored, str) else str(masked)
    return torchjit_inductor.AttentionCall(
        attention.scale, scored, masked, tuple(places), query_block, key_block, attention.given_blocks
    )


def _formula(
    function: Callable[..., torch.Tensor], own: list[Any], outside: list[Any], wanted: Sequence[int] = ()
) -> torchjit_inductor.Formula | str:
    """The function's graph, with its gradient with respect to the first argument if that is a float, and to those wanted."""
    with own[0].fake_mode, torch.no_grad():
        given = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in (*own, *outside)]
    given[0].requires_grad_(own[0].is_floating_point())
    for n in wanted:
        given[len(own) + n].requires_grad_()
    settings = torchjit_aot.AotSettings(
        decompositions=torchjit_aot.default_decompositions(), keep_ops=frozenset(LOWERINGS), fallback=False
    )
    with torch.enable_grad():
        # A result of its own, also where the function returns what it got.
        joint = torchjit_aot.joint_graph(lambda *values: function(*values).clone(), given, settings=settings)
    if joint.constants or len(joint.slots) != 1 or not isinstance(joint.slots[0], fx.Node):
        return "a function of scores with constants of its own"
    differentiable = bool(joint.tangents)
    return torchjit_inductor.Formula(
        joint.graph, tuple(joint.inputs), joint.slots[0], joint.tangents[0] if differentiable else None,
        joint.grads[0] if differentiable else None,
        tuple((n, joint.grads[len(own) + n]) for n in wanted),
    )  # fmt: skip


ATTENTION = torchjit_inductor.AttentionOperators(
    torchjit_fx.ATTENTION_FORWARD, torchjit_fx.ATTENTION_BACKWARD, _described
)
"""What the inductor has to know of these operators."""
