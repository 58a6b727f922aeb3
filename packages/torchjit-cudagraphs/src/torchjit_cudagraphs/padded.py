"""Batches of every size through recordings of a few sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_core.events import emit
from torchjit_cudagraphs.recordable import LARGER_THAN_ALL, Recordable, run_compiled

__all__ = ["Batch", "Padded"]


def _has_inputs(_: object, attribute: attrs.Attribute[Any], value: Mapping[int, int]) -> None:
    if not value:
        raise ValueError(f"{attribute.name} must name at least one input")


@final
@attrs.frozen
class Batch:
    """Where the batch is. No row of a result may depend on another row: rows of zeros are added to fill a recording.

    Attributes:
        inputs: by position, the dimension of each input that runs along the batch.
        outputs: likewise for results.
    """

    inputs: Mapping[int, int] = attrs.field(validator=_has_inputs)
    outputs: Mapping[int, int]


@final
class Padded:
    """A recorded callable that is called with batches of the given sizes only.

    Args:
        recorded: the callable with its recordings.
        compiled: what runs larger batches.
        sizes: in ascending order.
        batch: where the batch is.
    """

    def __init__(self, recorded: Any, compiled: Recordable, sizes: Sequence[int], batch: Batch) -> None:
        clash = sorted(set(batch.inputs) & compiled.static_inputs)
        if clash:
            raise ValueError(f"inputs {clash} are static: they cannot run along the batch")
        self.recorded, self.compiled, self.sizes, self.batch = recorded, compiled, tuple(sizes), batch
        self._written = tuple(sorted(set(batch.inputs) & compiled.mutated_inputs))
        self._told = False

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        return self.boxed(list(inputs))

    def boxed(self, inputs: list[Any]) -> Sequence[Any]:
        """Call with the inputs in a list, which is emptied."""
        found = {int(inputs[p].shape[dim]) for p, dim in self.batch.inputs.items()}
        if len(found) != 1:
            raise ValueError(f"the inputs {sorted(self.batch.inputs)} have batches of different sizes: {sorted(found)}")
        (count,) = found
        size = next((s for s in self.sizes if s >= count), None)
        if size is None:
            if not self._told:
                self._told = True
                detail = f"{count} rows, the largest size is {self.sizes[-1]}"
                emit("fallback", reason=LARGER_THAN_ALL.id, headline=LARGER_THAN_ALL.headline, detail=detail)
            return run_compiled(self.compiled, inputs)
        call: Callable[[list[Any]], Sequence[Any]] = self.recorded.boxed
        if size == count:
            return call(inputs)
        with torch.no_grad():
            written = []
            for position, dim in self.batch.inputs.items():
                given = inputs[position]
                inputs[position] = _filled(given, dim, size)
                if position in self._written:
                    written.append((given, inputs[position].narrow(dim, 0, count)))
            results = list(call(inputs))
            for given, changed in written:
                given.copy_(changed)
            for position, dim in self.batch.outputs.items():
                results[position] = results[position].narrow(dim, 0, count)
        return results


def _filled(value: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """A copy with rows of zeros behind, which every operation takes, embeddings too."""
    shape = list(value.shape)
    shape[dim] = size
    made = value.new_zeros(shape)
    made.narrow(dim, 0, value.shape[dim]).copy_(value)
    return made
