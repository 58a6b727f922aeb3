"""`flex_attention` in a graph: one node, whose callable holds the captured `score_mod` and `mask_mod`.

Run as it is, or traced for a CPU, it is the attention that materialises all scores, as in eager PyTorch. Traced for a GPU it is one
operator (`flex_operator`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.calls.intrinsics import intrinsic_rule
from torchjit_fx.control_capture import captured_bodies
from torchjit_fx.control_flow import Body, name_of
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flex_operator import FORWARD, laid_out_like, takes
from torchjit_fx.intrinsics import finish_flex_attention
from torchjit_fx.leaves import Function, Raw, RawArgs, RawKwargs, SymLeaf, TensorLeaf
from torchjit_fx.protocols import CaptureContext

__all__ = ["FlexAttention"]

_LENGTHS = 2
"""So many items of a block mask's description, its first, are lengths: those of the operands. Nothing reads them, so they may vary."""
_QUERY_BLOCKS = 7
"""Where a block mask's description has the indices of a key block's query blocks."""
# The dimensions of the scores (batch, head, query, key) that each level of vmap hides, innermost first.
_LEVELS = tuple(tuple(0 if i == level else None for i in range(4)) for level in (3, 2, 1, 0))


@final
class FlexAttention:
    """What stands in a graph for one call: takes query, key, value, the tensors of the block mask, then what the two functions use
    from outside (`tensors` tensors, then numbers). Gives the result, and the logarithm (to base 2) and the maximum of the scores' sums.

    Attributes:
        score: takes a score and its four indices, 0-dimensional, and what is from outside.
        mask: takes the four indices, and the same.
        scale: of the scores, before `score`.
        blocks: the block mask as torch describes it, without its function: sizes, None, and ranks of the tensors given.
        options: torch's `kernel_options`.
    """

    def __init__(
        self, score: Body, mask: Body, scale: float, blocks: RawArgs, options: RawKwargs, tensors: int
    ) -> None:
        self.__name__ = self.__qualname__ = "flex_attention"  # torch.fx prints a node by these
        self.score = score
        self.mask = mask
        self.scale = scale
        self.blocks = blocks
        self.options = options
        self.tensors = tensors

    @property
    def given_blocks(self) -> int:
        """How many tensors describe the block mask."""
        return sum(isinstance(item, str) for item in self.blocks)

    @property
    def key(self) -> Raw:
        """Hashable: what the call does."""
        return ("attention", self.score.key, self.mask.key, self.scale, self.blocks, self.tensors)

    def __call__(self, query: Raw, key: Raw, value: Raw, *more: Raw) -> tuple[torch.Tensor, ...]:
        outside = more[self.given_blocks :]
        # A gradient needs the query blocks of key blocks, too.
        trained = torch.is_grad_enabled() and any(
            t.requires_grad for t in (query, key, value, *outside[: self.tensors])
        )
        listed = isinstance(self.blocks[_QUERY_BLOCKS], str) or not trained
        if len(outside) == self.tensors and listed and takes(query, key, value, more, outside):
            made: tuple[torch.Tensor, ...] = FORWARD(query, key, value, list(more), name_of(self))
            return made
        return self.dense(query, key, value, *more)

    def dense(self, query: Raw, key: Raw, value: Raw, *more: Raw) -> tuple[torch.Tensor, ...]:
        """The call with all scores in memory."""
        groups = query.size(1) // key.size(1)
        if groups != 1:
            value = value.repeat_interleave(groups, 1)
        value = value.expand(query.size(0), *value.shape[1:])
        scores = self._scores(query, key, more)
        # Rows without any key: their softmax would be nan, and so would the gradients.
        empty = (scores == -math.inf).all(-1, keepdim=True)
        scores_or_0 = torch.where(empty, 0.0, scores)
        total = torch.where(empty.squeeze(-1), -math.inf, scores_or_0.logsumexp(-1))
        weights = torch.where(empty, 0.0, scores_or_0.softmax(-1))
        result = weights.to(query.dtype) @ value.to(query.dtype)
        largest = scores.detach().amax(-1)
        return laid_out_like(result, query), total / math.log(2), largest / math.log(2)

    def dense_gradients(
        self, query: Raw, key: Raw, value: Raw, more: Raw, total: Raw, gradient: Raw, shift: Raw, wanted: Raw = ()
    ) -> tuple[torch.Tensor, ...]:
        """See `flex_operator.BACKWARD`."""
        groups = query.size(1) // key.size(1)
        more = [t.detach().requires_grad_(n in wanted) for n, t in enumerate(more)]
        leaves = [t.detach().requires_grad_() for t in (query, key)]
        scores = self._scores(leaves[0], leaves[1], more)
        leaves += [more[n] for n in wanted]
        with torch.no_grad():
            # Rows without any key have weights of 0.
            base = torch.where(total == -math.inf, 0.0, total * math.log(2))
            weights = (scores - base.unsqueeze(-1)).exp()
            wide, gradient = value.to(scores.dtype), gradient.to(scores.dtype)
            if groups != 1:
                wide = wide.repeat_interleave(groups, 1)
            of_scores = weights * (gradient @ wide.transpose(-2, -1) - shift.unsqueeze(-1))
            of_value = weights.transpose(-2, -1) @ gradient
            if groups != 1:
                of_value = of_value.unflatten(1, (key.size(1), groups)).sum(2)
        found = torch.autograd.grad(scores, leaves, of_scores, allow_unused=True)
        of_query, of_key, *others = (
            torch.zeros_like(t) if g is None else g for g, t in zip(found, leaves, strict=True)
        )
        return of_query, of_key, of_value.to(value.dtype), *others

    def _scores(self, query: Raw, key: Raw, more: Raw) -> torch.Tensor:
        """What the softmax is over; minus infinity where the mask says no."""
        outside = more[self.given_blocks :]
        groups = query.size(1) // key.size(1)
        if groups != 1:
            key = key.repeat_interleave(groups, 1)
        key = key.expand(query.size(0), *key.shape[1:])
        precision = torch.float64 if query.dtype is torch.float64 else torch.float32
        scores = (query.to(precision) @ key.to(precision).transpose(-2, -1)) * self.scale
        indices = [torch.arange(scores.size(i), device=scores.device) for i in range(4)]
        allowed = self._over_all(self.mask, 0, len(outside))(*indices, *outside)
        scores = self._over_all(self.score, 1, len(outside))(scores, *indices, *outside)
        return torch.where(allowed, scores, -math.inf)

    def _over_all(self, body: Body, scores: int, outside: int) -> Function:
        def one(*values: Raw) -> Raw:
            own = 4 + scores
            return body([*values[: own + self.tensors]], values[own + self.tensors :])[0]

        mapped: Callable[..., Any] = one
        for level in _LEVELS:
            mapped = torch.vmap(mapped, in_dims=((0,) * scores + level + (None,) * outside))
        return mapped


@intrinsic_rule(finish_flex_attention)
def _finish(
    domain: CallDomain, operands: list[Raw], blocks: list[Raw], scale: Raw, options: Raw, capture: CaptureContext
) -> Raw:
    if type(scale) is SymLeaf:
        scale = domain.concrete(scale, capture)
    if not all(isinstance(leaf, TensorLeaf) for leaf in operands) or type(scale) not in (int, float):
        raise GraphBreak(breaks.CONTROL_FLOW, "an operand of flex_attention", capture.location())
    (score, mask), tensors, numbers = captured_bodies(domain, 2)
    described: list[Raw] = []
    given: list[TensorLeaf] = []
    for place, item in enumerate(blocks):
        value = item
        if type(item) is SymLeaf:
            value = None if place < _LENGTHS else domain.concrete(item, capture)
        if isinstance(value, TensorLeaf):
            described.append(f"tensor {len(given)}")
            given.append(value)
        else:
            described.append(value)
    target = FlexAttention(score, mask, scale, tuple(described), dict(options), len(tensors))
    return list(domain.recorder.record(target, (*operands, *given, *tensors, *numbers), capture))
