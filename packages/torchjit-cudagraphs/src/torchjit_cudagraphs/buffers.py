"""Fixed addresses for the inputs that change from call to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch

__all__ = ["InputBuffers", "signature"]


@final
class InputBuffers:
    """One buffer per input tensor that is not static, laid out as the input; other inputs pass through.

    A recording made with these fits calls whose tensors have the same sizes and strides and whose other arguments are
    equal: `matches` says so.

    Args:
        inputs: of the call that is recorded.
        static: positions whose address is part of the recording.
    """

    def __init__(self, inputs: Sequence[Any], static: frozenset[int]) -> None:
        self.arguments: list[Any] = list(inputs)
        self._positions: list[int] = []
        self._layouts: list[tuple[int, torch.Size, tuple[int, ...]]] = []
        self._numbers: list[tuple[int, type, Any]] = []
        self._static = sorted(i for i in static if isinstance(inputs[i], torch.Tensor))
        addressed = frozenset(self._static)
        self._addresses = [v.data_ptr() if i in addressed else 0 for i, v in enumerate(inputs)]
        targets: list[torch.Tensor] = []
        for position, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                self._numbers.append((position, type(value), value))
            elif position not in static:
                buffer = _buffer_like(value)
                self.arguments[position] = buffer
                self._positions.append(position)
                self._layouts.append((position, value.shape, value.stride()))
                targets.append(buffer)
        self._targets = [_without_repeats(t) for t in targets]
        self._expanded = [i for i, t in enumerate(targets) if self._targets[i] is not t]

    def static_unmoved(self, inputs: Sequence[Any]) -> bool:
        """Are the static inputs where they were at the recording?"""
        return _addresses_equal(list(inputs), self._addresses, self._static)

    def matches(self, inputs: Sequence[Any]) -> bool:
        """Do sizes, strides and numbers equal those of the recording?"""
        for position, shape, stride in self._layouts:
            value = inputs[position]
            if value.shape != shape or value.stride() != stride:
                return False
        for position, kind, number in self._numbers:
            value = inputs[position]
            if type(value) is not kind or value != number:
                return False
        return True

    def fill(self, inputs: Sequence[Any]) -> None:
        """Copy the inputs of this call to the fixed addresses, in one launch where torch has one."""
        sources = [inputs[i] for i in self._positions]
        for i in self._expanded:
            sources[i] = _without_repeats(sources[i])
        if len(sources) == 1:
            self._targets[0].copy_(sources[0])
        elif sources:
            torch._foreach_copy_(self._targets, sources)


def signature(inputs: Sequence[Any], static: frozenset[int]) -> tuple[Any, ...]:
    """What decides which recording fits: sizes and strides of tensors that are not static, and the other arguments."""
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
        if value.numel() == 0:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        span = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
        # Zeros, not garbage: whatever lies in gaps between elements is at least always the same.
        flat = torch.zeros(span, dtype=value.dtype, device=value.device)
        return flat.as_strided(value.shape, value.stride())


def _without_repeats(value: torch.Tensor) -> torch.Tensor:
    """`value` with every dimension of stride 0 cut to one element: the same memory, written once."""
    repeated = [dim for dim, stride in enumerate(value.stride()) if stride == 0 and value.shape[dim] > 1]
    for dim in repeated:
        value = value.narrow(dim, 0, 1)
    return value
