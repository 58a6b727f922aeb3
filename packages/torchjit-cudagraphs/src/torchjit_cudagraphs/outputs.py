"""How to make a call's results from the memory that a recording writes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch

__all__ = ["OutputPlan"]

_Make = Callable[[Sequence[Any], dict[int, torch.Tensor]], Any]


@final
class OutputPlan:
    """What each output of a recording is: an input, a view of an input, memory of its own, or no tensor.

    An output that is (a view of) an input becomes (a view of) the caller's input, not of the copy. Outputs that share
    memory share it in the result too.

    Args:
        outputs: what the captured run returned.
        arguments: what the captured run was given.
        reuse: hand out the recording's memory in place of a copy.
    """

    def __init__(self, outputs: Sequence[Any], arguments: Sequence[Any], reuse: bool) -> None:
        self._keep = tuple(outputs)  # the pool must not hand their memory out again
        owners = {_storage_key(a): i for i, a in enumerate(arguments) if isinstance(a, torch.Tensor)}
        fresh = [o for o in outputs if isinstance(o, torch.Tensor) and _storage_key(o) not in owners]
        sharers: dict[int, list[torch.Tensor]] = {}
        for tensor in fresh:
            sharers.setdefault(_storage_key(tensor), []).append(tensor)
        self._makers: list[_Make] = []
        for output in outputs:
            if isinstance(output, torch.Tensor) and (output.is_conj() or output.is_neg()):
                raise NotImplementedError("an output is a lazily conjugated or negated view")
            if not isinstance(output, torch.Tensor):
                self._makers.append(_constant(output))
            elif _storage_key(output) in owners:
                position = owners[_storage_key(output)]
                self._makers.append(_from_input(output, position, arguments[position]))
            elif reuse:
                self._makers.append(_over_memory(output))
            elif len(sharers[_storage_key(output)]) == 1 and _dense(output):
                self._makers.append(_copy_of(output))
            else:
                self._makers.append(_part_of_copy(output, sharers[_storage_key(output)]))

    def make(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the call with these inputs, after the replay was queued."""
        copies: dict[int, torch.Tensor] = {}
        return [make(inputs, copies) for make in self._makers]


def _storage_key(tensor: torch.Tensor) -> int:
    """The same for tensors that share memory. Empty tensors have no memory, so each is its own."""
    storage = tensor.untyped_storage()
    return storage.data_ptr() or -id(tensor)


def _dense(tensor: torch.Tensor) -> bool:
    """Would `clone` keep the strides?"""
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def _constant(value: Any) -> _Make:
    return lambda inputs, copies: value


def _from_input(output: torch.Tensor, position: int, argument: torch.Tensor) -> _Make:
    if output is argument:
        return lambda inputs, copies: inputs[position]
    size, stride = output.shape, output.stride()
    shift = output.storage_offset() - argument.storage_offset()
    if output.dtype != argument.dtype:
        return _reinterpreted_input(output, position, argument)

    def view(inputs: Sequence[Any], copies: dict[int, torch.Tensor]) -> Any:
        source = inputs[position]
        return torch.as_strided(source, size, stride, source.storage_offset() + shift)

    return view


def _reinterpreted_input(output: torch.Tensor, position: int, argument: torch.Tensor) -> _Make:
    dtype, size, stride = output.dtype, output.shape, output.stride()
    # Offsets count elements of the tensor's own dtype.
    numerator, denominator = argument.dtype.itemsize, dtype.itemsize
    shift = output.storage_offset() - argument.storage_offset() * numerator // denominator

    def view(inputs: Sequence[Any], copies: dict[int, torch.Tensor]) -> Any:
        source = inputs[position]
        offset = source.storage_offset() * numerator // denominator + shift
        return torch.empty(0, dtype=dtype, device=source.device).set_(source.untyped_storage(), offset, size, stride)

    return view


def _over_memory(output: torch.Tensor) -> _Make:
    return lambda inputs, copies: output.detach()


def _copy_of(output: torch.Tensor) -> _Make:
    return lambda inputs, copies: output.clone()


def _part_of_copy(output: torch.Tensor, sharers: Sequence[torch.Tensor]) -> _Make:
    """Copy the bytes that all `sharers` span, once per call, and view the copy as `output`."""
    storage = output.untyped_storage()
    flat = torch.empty(0, dtype=torch.uint8, device=output.device).set_(storage, 0, (storage.nbytes(),), (1,))
    key, dtype = _storage_key(sharers[0]), output.dtype
    size, stride, offset = output.shape, output.stride(), output.storage_offset()

    def part(inputs: Sequence[Any], copies: dict[int, torch.Tensor]) -> Any:
        if key not in copies:
            copies[key] = flat.clone()
        empty = torch.empty(0, dtype=dtype, device=flat.device)
        return empty.set_(copies[key].untyped_storage(), offset, size, stride)

    return part
