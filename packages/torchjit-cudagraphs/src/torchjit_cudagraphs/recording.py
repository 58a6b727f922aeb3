"""One capture of a callable: when it may be replayed, and its replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from torchjit_cudagraphs.inputs import RecordedInputs
from torchjit_cudagraphs.liveness import StorageRef
from torchjit_cudagraphs.outputs import Arguments, OutputPlan
from torchjit_cudagraphs.pool import Block, GraphPool, PooledTensor
from torchjit_cudagraphs.recordable import Recordable, run_compiled

__all__ = ["Recording"]


@final
class Recording:
    """One capture.

    Args:
        compiled: what is captured.
        inputs: of the call, a list that is left as it was.
        pool: the memory.
        copy: should the result at this position, of so many bytes, be copied?
        fixed_layouts: need sizes and strides of inputs not be compared?

    Raises:
        Exception: the capture failed; the pool is closed.

    Attributes:
        replays: how many there were.
        times: seconds of the replays that were timed.
        decided: is it known to pay?
        kept: blocks that a replay leaves alone.
        results: blocks that hold results while those live.
    """

    def __init__(
        self,
        compiled: Recordable,
        inputs: list[Any],
        pool: GraphPool,
        copy: Callable[[int, int], bool],
        *,
        fixed_layouts: bool,
    ) -> None:
        self.pool, self.replays = pool, 0
        self.times: list[float] = []
        self.decided = False
        described: dict[int, PooledTensor] = {}
        for position, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and position not in compiled.static_inputs:
                found = pool.describe(value)
                if found is not None:
                    described[position] = found
        del value
        self.inputs = RecordedInputs(
            inputs, compiled.static_inputs, described, compiled.mutated_inputs,
            fixed_layouts, pool.driver,
        )  # fmt: skip
        # Let go of the inputs that lie in the pool: what dies then, this call alone holds, and it may be consumed.
        for position in described:
            inputs[position] = None
        ours = {d.block for d in described.values()} - pool.blocks_in_use()
        made = dict(zip(described, pool.again(list(described.values())), strict=True))
        adopt = {
            described[position].block: StorageRef(tensor.untyped_storage())
            for position, tensor in made.items()
            if described[position].block in ours
        }
        seen: list[Arguments] = []

        def run() -> Sequence[Any]:
            arguments = self.inputs.arguments(inputs, made)
            made.clear()
            seen.append(Arguments(arguments))
            return run_compiled(compiled, arguments)

        try:
            capture = pool.capture(run, adopt)
            try:
                examples = [described.get(i, v) for i, v in enumerate(inputs)]
                self._plan = OutputPlan(
                    capture.result, seen[0], examples, capture.blocks, frozenset(self.inputs.copied), pool, copy
                )
                survivors = {block[0]: ref for block, ref in adopt.items() if not ref.expired()}
                self.kept: frozenset[Block] = pool.settle(capture, self._plan.owners, survivors)
            except BaseException:
                pool.close()
                raise
        finally:
            # The caller's view of its inputs stays what it was; what was consumed is only read by the replay to come.
            for position, tensor in zip(described, pool.again(list(described.values())), strict=True):
                inputs[position] = tensor
        self.replay, self._state, self._blocks = capture.replay, capture.state, dict(capture.blocks)
        self.results: frozenset[Block] = self._plan.lent
        self.inputs.settle()
        pool.belongs(self)
        self._droppable = [i for i in self.inputs.pooled if i not in self._plan.needs]

    def fits(self, inputs: list[Any]) -> bool:
        """Is this a recording for such inputs, wherever results of earlier replays are?"""
        return self.inputs.fits(inputs)

    def let_go(self, inputs: list[Any]) -> None:
        """Drop the inputs that lie in the pool: the replay finds them there."""
        for position in self._droppable:
            inputs[position] = None

    def take_back(self, inputs: list[Any]) -> None:
        """Undo `let_go`."""
        described = [self.inputs.pooled[i] for i in self._droppable]
        for position, tensor in zip(self._droppable, self.pool.again(described), strict=True):
            inputs[position] = tensor

    def admitted(self) -> bool:
        """Would a replay leave alone what is in use?"""
        return self.pool.admits(self.kept)

    def run(self, inputs: list[Any]) -> list[Any]:
        """Replay with these inputs, which fit; `inputs` is emptied."""
        self.pool.on_current_stream()
        # Under grad mode a parameter among the sources must not make history in the buffers.
        grad = torch.is_grad_enabled()
        try:
            torch._C._set_grad_enabled(False)  # the C function, in the block: no handler of a signal comes between
            self.inputs.fill(inputs)
            self.replay()
            self.inputs.write_back(inputs)
            self.pool.replayed(self._state, self._blocks)
            self.replays += 1
            outputs = self._plan.make(inputs)
        finally:
            torch._C._set_grad_enabled(grad)
        inputs.clear()
        return outputs
