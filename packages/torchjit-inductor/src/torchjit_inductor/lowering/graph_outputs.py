"""What a graph gives back: new values of its inputs, and results in the layouts that it promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
import torch.fx

from torchjit_inductor.ir.dtypes import KERNEL_DTYPES
from torchjit_inductor.ir.kernel import Origin
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.graph_nodes import origin_of
from torchjit_inductor.lowering.known_sizes import GraphNotSupported
from torchjit_inductor.lowering.sizes import expression, meta_of
from torchjit_inductor.lowering.tensors import Lazy, Lowered, Strided
from torchjit_inductor.steps import ExternStep, TensorRef

__all__ = ["GraphOutputs"]


@final
class GraphOutputs:
    """The results of a graph, and what it writes to its inputs.

    Args:
        builder: stores them.
        env: what each node was lowered to; it fills.

    Attributes:
        folded: buffers of constants that stand for what each call computes anew: no call may return one.
        updates: inputs with their new values, in order.
    """

    def __init__(self, builder: Builder, env: Mapping[torch.fx.Node, Any]) -> None:
        self._builder, self._env = builder, env
        self.folded: set[str] = set()
        self.updates: list[tuple[torch.fx.Node, Strided]] = []

    def update(self, target: object, source: object) -> Strided:
        """`copy_` into an input: it is written at the end.

        Args:
            target: node of the input.
            source: its new value, lowered.

        Returns:
            The input.

        Raises:
            GraphNotSupported: it is no input, or has another dtype or other sizes than the value.
        """
        if not (isinstance(target, torch.fx.Node) and target.op == "placeholder"):
            raise GraphNotSupported("copy_ into something that is no input")
        place: Strided = self._env[target]
        if not isinstance(source, Lowered) or source.dtype != place.dtype or source.sizes != place.sizes:
            raise GraphNotSupported("copy_ that converts")
        if place.dtype not in KERNEL_DTYPES:
            raise GraphNotSupported(f"copy_ into {place.dtype}")
        # In memory first: the formula may read inputs that other copies overwrite.
        self.updates.append((target, self._builder.materialize(source, place.strides)))
        return place

    def results(self, node: torch.fx.Node) -> tuple[Any, ...]:
        """What the program returns, as `Program.outputs`; behind it inputs are written.

        Args:
            node: the graph's output.

        Raises:
            NotLowered: a formula that cannot be evaluated.
            GraphNotSupported: a result cannot have the strides that the graph promises.
        """
        returned = node.args[0]
        self._spread_overwritten()
        results = [self._result(r) for r in (returned if isinstance(returned, (tuple, list)) else (returned,))]
        for target, held in self.updates:
            place = self._env[target]
            if held.buffer != place.buffer:
                self._builder.origin = Origin("copy_", "copy_", f"update of {target.name}")
                self._builder.store_into(held, place)
        return tuple(results)

    def _spread_overwritten(self) -> None:
        """What lies over inputs that were written in place, or over folded constants, is no result of its own."""
        overwritten = self._builder.overwritten
        overwritten |= self.folded
        for step in self._builder.steps if overwritten else ():
            if isinstance(step, ExternStep) and not overwritten.isdisjoint(step.aliases):
                overwritten.update(o for o in step.outputs if o is not None)

    def _result(self, returned: Any) -> Any:
        if not isinstance(returned, torch.fx.Node):
            return expression(returned) if isinstance(returned, torch.SymInt) else returned
        value = self._env.get(returned)
        if not isinstance(value, Lowered):
            return value
        meta = meta_of(returned.meta["val"])
        self._builder.origin = origin_of(returned)
        if isinstance(value, Strided) and (not value.same_layout(meta) or value.buffer in self._builder.overwritten):
            # The graph promises other strides, or other memory than the input's: copy.
            value = Lazy(value.sizes, value.dtype, value.device, value.value)
        if isinstance(value, Lazy) and value.stored is not None and not value.stored.same_layout(meta):
            value = Lazy(value.sizes, value.dtype, value.device, value.value)
        held = self._builder.materialize(value, meta.strides)
        if not held.same_layout(meta):
            raise GraphNotSupported(f"strides of output {returned.name}")
        return TensorRef(held.buffer, meta.sizes, meta.strides, held.offset)
