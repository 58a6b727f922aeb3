"""Custom autograd functions in a graph: a node that applies a real one, made of a captured forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import attrs
import torch
from torch import fx
from torch.autograd.function import once_differentiable

from torchjit_fx.leaves import Raw
from torchjit_torch.graph_calls import GraphCall

__all__ = ["Backward", "CapturedFunction"]


@final
@attrs.frozen(eq=False)
class Backward:
    """The backward for one pattern of gradients that are there.

    Attributes:
        graph: its graph.
        sources: where each input comes from: ("gradient", output), ("saved", i) or ("kept", i).
        returns: per tensor argument, which item of the graph's result is its gradient; None for none.
    """

    graph: fx.GraphModule
    sources: tuple[tuple[str, int], ...]
    returns: tuple[int | None, ...]


@final
@attrs.frozen(eq=False, slots=False)
class CapturedFunction:
    """What stands in a graph for one call of a `torch.autograd.Function`: called as `(others, *tensors)`.

    It applies a real autograd function, so results that are views, written or returned arguments, gradients that are
    missing and saved tensors all behave as in eager mode; and whoever traces the graph sees forward and backward.

    Attributes:
        name: of the user's class.
        forward: takes `tensors` at the positions `given`, then `others`; gives outputs, saved and kept values.
        given: positions in `tensors`, each tensor once.
        outputs, saved: how many of the forward's results are outputs and saved tensors; the rest is kept as it is.
        constant: outputs without gradient.
        dirty: positions in `tensors` that the forward writes.
        layouts: per output, the memory format that its gradient had at capture, or None if unknown.
        materialize: missing gradients become zeros.
        once: the backward cannot be differentiated.
        backwards: by which gradients are there, one flag per output.
    """

    name: str
    forward: fx.GraphModule
    given: tuple[int, ...]
    outputs: int
    saved: int
    constant: frozenset[int]
    dirty: tuple[int, ...]
    layouts: tuple[torch.memory_format | None, ...]
    materialize: bool
    once: bool
    backwards: Mapping[tuple[bool, ...], Backward]

    def __attrs_post_init__(self) -> None:
        # torch names a node of autograd, in `grad_fn` and in its errors, by the class.
        self._make_class()

    def _make_class(self) -> None:
        function = type(self.name, (_Once if self.once else _Apply,), {})
        vars(self).update(
            __name__=self.name, __qualname__=self.name, function=function
        )  # torch.fx prints a node by these

    def __stored_state__(self) -> Mapping[str, object]:
        return {a.name: getattr(self, a.name) for a in attrs.fields(CapturedFunction)} | {
            "forward": _stored(self.forward),
            "backwards": {given: (_stored(b.graph), b.sources, b.returns) for given, b in self.backwards.items()},
        }

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        backwards = {given: Backward(*parts) for given, parts in state["backwards"].items()}
        vars(self).update(state, backwards=backwards)
        self._make_class()

    def __call__(self, others: tuple[Any, ...], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        function: Raw = vars(self)["function"]
        result: tuple[torch.Tensor, ...] = function.apply(self, others, *tensors)
        return result

    def run_backward(self, ctx: Any, gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
        """The gradients of `others` (none) and of `tensors`."""
        found = self.backwards.get(tuple(g is not None for g in gradients))
        if found is None:  # there it raised at capture
            missing = [i for i, g in enumerate(gradients) if g is None]
            raise RuntimeError(f"the backward of {self.name} raises without the gradients of its outputs {missing}")
        laid_out = [
            g if g is None or layout is None else g.contiguous(memory_format=layout)
            for g, layout in zip(gradients, self.layouts, strict=True)
        ]
        sources = {"gradient": laid_out, "saved": ctx.saved_tensors, "kept": ctx.kept}
        results = found.graph(*[sources[kind][i] for kind, i in found.sources])
        return (None, None, *(None if i is None else results[i] for i in found.returns))


def _stored(graph: Raw) -> GraphCall:
    return graph if isinstance(graph, GraphCall) else GraphCall(graph)


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: CapturedFunction, others: tuple[Any, ...], *tensors: torch.Tensor) -> Raw:
        results = call.forward(*[tensors[i] for i in call.given], *others)
        outputs = results[: call.outputs]
        ctx.call = call
        ctx.save_for_backward(*results[call.outputs : call.outputs + call.saved])
        ctx.kept = results[call.outputs + call.saved :]
        ctx.mark_dirty(*[tensors[i] for i in call.dirty])
        ctx.mark_non_differentiable(*[outputs[i] for i in sorted(call.constant)])
        ctx.set_materialize_grads(call.materialize)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Raw:
        return ctx.call.run_backward(ctx, gradients)


class _Once(_Apply):
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Raw:
        return ctx.call.run_backward(ctx, gradients)
