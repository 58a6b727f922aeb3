"""Gradients that autograd gets piece by piece, each as soon as a piece of the backward has computed it; see docs/design/0036.

The node of a compiled graph hands on what is still to be computed to a node that was made for the next piece, which hands it on to
the next one. Between two of these the engine lets the gradients into their leaves: hooks run there, and DDP's all-reduce starts.
Entries on disk name what is here, so that nothing of what compiles graphs is imported.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch

from torchjit_aot.autograd_nodes.lazy_backward import boxed
from torchjit_aot.autograd_nodes.leaf_hooks import call_hooks_for_gradients_only
from torchjit_aot.autograd_nodes.tangents import without_zeros
from torchjit_aot.compiler_protocol import CompiledGraph
from torchjit_aot.untracked import UNTRACKED

__all__ = ["Delivery", "InPieces", "Piece", "announce", "begin", "hand_on", "one_by_one"]

Gradients: TypeAlias = tuple[Any, ...]
"""Those of one group of inputs."""


# ------------------------------------------------------------------------------------------------- the compiled pieces


@final
@attrs.frozen
class Piece:
    """Some operators of a backward, one behind the other. Values are counted through: the backward's inputs, then what pieces give.

    Attributes:
        compiled: computes them; None if there are none.
        reads: the values that it takes.
        gives: the number of the first value that it gives.
        gradients: the values that are the gradients of the piece's group; None for what gets none.
        read_last: those of `reads` that nobody needs after it has begun.
        dead: the values that nobody needs after the gradients were given.
    """

    compiled: CompiledGraph | None
    reads: tuple[int, ...]
    gives: int
    gradients: tuple[int | None, ...]
    read_last: tuple[int, ...]
    dead: tuple[int, ...]


@final
class InPieces:
    """A compiled backward whose `boxed` gives an iterator over the gradients of each group; advancing it computes a piece.

    Args:
        pieces: in order.
        values: how many there are.
    """

    def __init__(self, pieces: tuple[Piece, ...], values: int) -> None:
        self.pieces, self._values = pieces, values

    def __call__(self, *inputs: Any) -> Iterator[Gradients]:
        return self.boxed(list(inputs))

    def boxed(self, inputs: list[Any]) -> Iterator[Gradients]:
        """The inputs in a list, which is emptied."""
        values = [*inputs, *[None] * (self._values - len(inputs))]
        inputs.clear()
        return self._run(values)

    def _run(self, values: list[Any]) -> Iterator[Gradients]:
        for piece in self.pieces:
            yield _computed(piece, values)


def _computed(piece: Piece, values: list[Any]) -> Gradients:
    """Compute a piece, and forget what is not needed any more: autograd takes the memory of a gradient that nobody else holds."""
    if piece.compiled is not None:
        inputs = [values[i] for i in piece.reads]
        for i in piece.read_last:
            values[i] = None
        found = boxed(piece.compiled)(inputs)
        values[piece.gives : piece.gives + len(found)] = found
    gradients = tuple([None if i is None else values[i] for i in piece.gradients])
    for i in piece.dead:
        values[i] = None
    return gradients


# ------------------------------------------------------------------------------------------------------ autograd's side


def begin(
    compiled: Any, inputs: list[Any], groups: tuple[tuple[int, ...], ...]
) -> tuple[Gradients, Iterator[Gradients]]:
    """The gradients of the first group, and what gives those of the others.

    Args:
        compiled: a backward in pieces, or one that gives all gradients at once.
        inputs: its own.
        groups: the positions of the gradients among all.
    """
    found = compiled(inputs)
    if type(found) is not types.GeneratorType:
        found = one_by_one([tuple([found[i] for i in group]) for group in groups])
    return next(found), found


def one_by_one(groups: list[Gradients]) -> Iterator[Gradients]:
    """The items, of which none is held once it was given."""
    groups.reverse()
    while groups:
        yield groups.pop()


def hand_on(device: torch.device, rest: Iterator[Gradients], missing: tuple[bool, ...] | None) -> torch.Tensor:
    """A gradient that carries what is still to be computed to the next node. Where that is not walked to, it goes with it.

    Args:
        device: of the nodes' tensors, whose stream and thread the engine gives them.
        rest: gives the gradients.
        missing: for each result whether no gradient has come, if there is one without.
    """
    carrier: Any = torch.empty(0, dtype=torch.float32, device=device)
    carrier._torchjit_rest = (rest, missing)
    return carrier  # type: ignore[no-any-return]


@final
@attrs.frozen
class Delivery:
    """What the node of a group that is not the first one has to know.

    Attributes:
        reach: for each gradient the results that it depends on, see `Dependence.tangents`.
        name: for the profiler.
    """

    reach: tuple[tuple[int, ...], ...]
    name: str


def announce(deliveries: Sequence[Delivery], groups: Sequence[tuple[torch.Tensor, ...]]) -> torch.Tensor:
    """Make the nodes of the groups, the last one first, which the engine comes to last.

    Args:
        deliveries: of each group but the first.
        groups: their inputs.

    Returns:
        What the node of the graph takes, so that it is the one before the first of these.
    """
    token: Any = None
    for delivery, inputs in zip(reversed(deliveries), reversed(groups), strict=True):
        token = _DeliveredGradients.apply(delivery, token, *inputs)
    made: torch.Tensor = token
    return made


class _DeliveredGradients(torch.autograd.Function):
    """Its backward computes a piece."""

    @staticmethod
    def forward(ctx: Any, delivery: Delivery, token: torch.Tensor | None, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.delivery, ctx.count, ctx.first = delivery, len(inputs), token is None
        ctx.device = inputs[0].device if token is None else token.device
        return torch.empty(0, dtype=torch.float32, device=ctx.device)

    @staticmethod
    def backward(ctx: Any, carrier: Any) -> Any:
        if carrier is None:  # no gradient has come to the graph
            call_hooks_for_gradients_only(ctx)
            return (None,) * (ctx.count + 2)
        rest, missing = carrier._torchjit_rest
        del carrier
        gradients = _next(rest, ctx.delivery.name)
        if missing is not None:
            call_hooks_for_gradients_only(ctx)
            gradients = without_zeros(gradients, missing, ctx.delivery.reach)
        return (None, None if ctx.first else hand_on(ctx.device, rest, missing), *gradients)


def _next(rest: Iterator[Gradients], name: str) -> Gradients:
    with torch._C._ExcludeDispatchKeyGuard(UNTRACKED), torch.no_grad():
        if not torch._C._autograd._profiler_enabled():
            return next(rest)
        with torch.profiler.record_function(name):
            return next(rest)
