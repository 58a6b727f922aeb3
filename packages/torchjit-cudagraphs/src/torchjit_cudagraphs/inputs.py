"""Fixed addresses for the inputs of a recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch

from torchjit_cudagraphs.driver import GraphDriver
from torchjit_cudagraphs.pool import PooledTensor

__all__ = ["RecordedInputs", "signature"]


@final
class RecordedInputs:
    """What a recording needs to know of its inputs.

    An input is *static* (a parameter: its address is part of the recording), *pooled* (an output of another recording,
    in the pool: likewise), *copied* (to a buffer in the pool, before each replay), or no tensor (its value is part of
    the recording).

    Args:
        inputs: of the call that is recorded.
        static: positions of static inputs.
        pooled: positions and descriptions of pooled ones.
        mutated: positions that the call writes to.
        fixed_layouts: need sizes and strides not be compared?
        driver: the device.
    """

    def __init__(
        self,
        inputs: Sequence[Any],
        static: frozenset[int],
        pooled: Mapping[int, PooledTensor],
        mutated: frozenset[int],
        fixed_layouts: bool,
        driver: GraphDriver,
    ) -> None:
        self.pooled = dict(pooled)
        self._driver = driver
        self._static = {i: v for i, v in enumerate(inputs) if i in static and isinstance(v, torch.Tensor)}
        self._fixed = sorted({*self._static, *self.pooled})
        fixed = frozenset(self._fixed)
        self._addresses = [v.data_ptr() if i in fixed else 0 for i, v in enumerate(inputs)]
        self._layouts: list[tuple[int, torch.Size, tuple[int, ...]]] = []
        self._numbers: list[tuple[int, type, Any]] = []
        self.copied: list[int] = []
        self._likes: list[torch.Tensor] = []
        for position, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                self._numbers.append((position, type(value), value))
            elif position not in self._static:
                if not fixed_layouts:
                    self._layouts.append((position, value.shape, value.stride()))
                if position not in fixed:
                    self.copied.append(position)
                    self._likes.append(value)
        self._targets: list[torch.Tensor] = []
        self._whole: list[torch.Tensor] = []
        self._expanded: list[int] = []
        self._back = [(k, i) for k, i in enumerate(self.copied) if i in mutated]
        self._spans: list[tuple[int, int]] = []

    # ------------------------------------------------------------------ during the capture
    def arguments(self, inputs: Sequence[Any], pooled: Mapping[int, torch.Tensor]) -> list[Any]:
        """What the captured call is given. Called within the capture: the buffers come from the pool.

        Args:
            inputs: the call's.
            pooled: the tensors at the pooled positions.
        """
        made: list[Any] = list(inputs)
        for position, tensor in pooled.items():
            made[position] = tensor
        self._spans.clear()
        for position, like in zip(self.copied, self._likes, strict=True):
            buffer = made[position] = _buffer_like(like)
            storage = buffer.untyped_storage()
            self._spans.append((storage.data_ptr(), storage.nbytes()))
        return made

    def settle(self) -> None:
        """After the capture: keep tensors over the buffers' memory that do not own it."""
        for (address, nbytes), like in zip(self._spans, self._likes, strict=True):
            maker = self._driver.tensor_maker(like.dtype, tuple(like.shape), like.stride(), 0)
            self._whole.append(maker(self._driver.storage_maker(address, nbytes)()))
        self._targets = [_without_repeats(t) for t in self._whole]
        self._expanded = [i for i, t in enumerate(self._whole) if self._targets[i] is not t]
        self._likes.clear()

    # ------------------------------------------------------------------ at each call
    def fits(self, inputs: list[Any]) -> bool:
        """Are the fixed inputs where they were, and sizes, strides and numbers those of the recording?"""
        if not _addresses_equal(inputs, self._addresses, self._fixed):
            return False
        for position, shape, stride in self._layouts:
            value = inputs[position]
            if value.shape != shape or value.stride() != stride:
                return False
        for position, kind, number in self._numbers:
            value = inputs[position]
            if type(value) is not kind or value != number:
                return False
        return True

    def moved(self, inputs: Sequence[Any]) -> list[int]:
        """Positions of static inputs that are not where they were."""
        return [i for i, v in self._static.items() if inputs[i].data_ptr() != self._addresses[i]]

    def fill(self, inputs: Sequence[Any]) -> None:
        """Copy the inputs of this call to the fixed addresses, in one launch where torch has one."""
        sources = [inputs[i] for i in self.copied]
        for i in self._expanded:
            sources[i] = _without_repeats(sources[i])
        if len(sources) == 1:
            self._targets[0].copy_(sources[0])
        elif sources:
            torch._foreach_copy_(self._targets, sources)

    def write_back(self, inputs: Sequence[Any]) -> None:
        """Give the caller's tensors what the call wrote to their buffers."""
        for k, position in self._back:
            inputs[position].copy_(self._whole[k])

    def bytes_copied(self) -> int:
        """Bytes that `fill` copies."""
        return sum(t.numel() * t.element_size() for t in self._targets)


def signature(inputs: Sequence[Any], static: frozenset[int]) -> tuple[Any, ...]:
    """What decides which recordings may fit: sizes and strides of tensors that are not static, and the other arguments."""
    return tuple(
        (value.shape, value.stride()) if isinstance(value, torch.Tensor) else (type(value), value)
        for position, value in enumerate(inputs)
        if position not in static or not isinstance(value, torch.Tensor)
    )


def _python_addresses_equal(tensors: list[Any], addresses: list[int], positions: list[int]) -> bool:
    return all(tensors[position].data_ptr() == addresses[position] for position in positions)


# Private to torch, in 2.11 and 2.15: the same loop in C++, for models of hundreds of parameters.
_addresses_equal: Callable[[list[Any], list[int], list[int]], bool] = getattr(
    torch._C, "_tensors_data_ptrs_at_indices_equal", _python_addresses_equal
)


def _buffer_like(value: torch.Tensor) -> torch.Tensor:
    """An uninitialised tensor with the sizes and strides of `value`, gaps and stride 0 included, no grad."""
    # An inference tensor could not be written to outside inference mode, and this one outlives the call.
    with torch.inference_mode(False), torch.no_grad():
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def _without_repeats(value: torch.Tensor) -> torch.Tensor:
    """`value` with every dimension of stride 0 cut to one element: the same memory, written once."""
    repeated = [dim for dim, stride in enumerate(value.stride()) if stride == 0 and value.shape[dim] > 1]
    for dim in repeated:
        value = value.narrow(dim, 0, 1)
    return value
