"""How to make a call's results from the memory that a recording writes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch

from torchjit_cudagraphs.liveness import StorageRef
from torchjit_cudagraphs.pool import Block, GraphPool

__all__ = ["Arguments", "OutputPlan"]

_Make = tuple[int, Callable[[Any], Any]]
"""The index of a storage and what makes a tensor of it; or -1 and what makes a result of the inputs."""


@final
class Arguments:
    """The tensors that a captured run is given, known again by their storages after they were let go."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self._ids = [id(argument) for argument in arguments]
        self._storages: dict[int, tuple[StorageRef, int, int]] = {}
        for position, argument in enumerate(arguments):
            if isinstance(argument, torch.Tensor):
                ref = StorageRef(argument.untyped_storage())
                self._storages.setdefault(ref.cdata, (ref, position, int(argument.storage_offset())))

    def find(self, output: torch.Tensor) -> tuple[int, int] | None:
        """The position and the offset of the argument whose storage `output` has, or None."""
        entry = self._storages.get(output.untyped_storage()._cdata)
        return None if entry is None else entry[1:]

    def is_argument(self, output: torch.Tensor, position: int) -> bool:
        """Is `output`, which has that argument's storage, that very object?"""
        return self._ids[position] == id(output)


@final
class OutputPlan:
    """What each output of a recording is: an input, a view of an input, memory of the pool, or none of these.

    An output that is (a view of) an input becomes (a view of) the caller's input. Outputs that share memory share it in
    the result too.

    Args:
        outputs: what the captured run returned.
        arguments: what it was given.
        examples: this call's inputs.
        blocks: the pool's allocations at the end of the capture.
        buffers: positions of arguments that are copies in the pool.
        pool: the memory.
        copy: should the result at this position, of so many bytes, be copied? Other results lie in the pool and use their
            blocks while they live.

    Attributes:
        owners: by address, the storages that own blocks of results, or of buffers that results are views of.
        lent: the blocks of results that are not copied.
        needs: positions of inputs that results are made of.
    """

    def __init__(
        self,
        outputs: Sequence[Any],
        arguments: Arguments,
        examples: Sequence[Any],
        blocks: Mapping[int, int],
        buffers: frozenset[int],
        pool: GraphPool,
        copy: Callable[[int, int], bool],
    ) -> None:
        self._pool = pool
        self._storages: list[tuple[Block, int]] = []
        copied: list[bool] = []
        self.owners: dict[int, StorageRef] = {}
        self.needs: set[int] = set()
        self._kept: list[torch.Tensor] = []
        self._index: dict[int, int] = {}
        self._makers: list[_Make] = []
        for position, output in enumerate(outputs):
            known = len(self._storages)
            self._makers.append(self._maker(output, arguments, examples, blocks, buffers))
            if len(self._storages) > known:
                copied.append(copy(position, self._storages[known][1]))
        self.lent = frozenset(b for (b, _), is_copied in zip(self._storages, copied, strict=True) if not is_copied)
        self._sources: list[tuple[bool, Block, Callable[[], Any]]] = [
            (not is_copied, block, self._source(block, nbytes, is_copied))
            for (block, nbytes), is_copied in zip(self._storages, copied, strict=True)
        ]

    def make(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the call with these inputs, after the replay was queued."""
        lend = self._pool.lend
        storages = [lend(block, source()) if lent else source() for lent, block, source in self._sources]
        return [make(storages[index]) if index >= 0 else make(inputs) for index, make in self._makers]

    def _maker(
        self,
        output: Any,
        arguments: Arguments,
        examples: Sequence[Any],
        blocks: Mapping[int, int],
        buffers: frozenset[int],
    ) -> _Make:
        if not isinstance(output, torch.Tensor):
            return _constant(output)
        if output.is_conj() or output.is_neg():
            raise NotImplementedError("an output is a lazily conjugated or negated view")
        storage = output.untyped_storage()
        address = storage.data_ptr()
        if address == 0 or storage.nbytes() == 0:
            return _empty(output)
        found = arguments.find(output)
        if found is not None:
            position, base = found
            if address in blocks and position in buffers:
                self.owners[address] = StorageRef(storage)
            self.needs.add(position)
            return _from_input(output, position, base, examples[position], arguments.is_argument(output, position))
        if address not in blocks:  # a constant of the callable
            self._kept.append(output)
            return -1, lambda inputs: output.detach()
        if address not in self._index:
            self._index[address] = len(self._storages)
            self._storages.append(((address, blocks[address]), storage.nbytes()))
            self.owners[address] = StorageRef(storage)
        tensor = self._pool.driver.tensor_maker(
            output.dtype, tuple(output.shape), output.stride(), int(output.storage_offset())
        )
        return self._index[address], tensor

    def _source(self, block: Block, nbytes: int, is_copied: bool) -> Callable[[], Any]:
        """What makes the storage for a call: over the block, or a copy."""
        make = self._pool.driver.storage_maker(block[0], nbytes)
        if not is_copied:
            return make
        flat = self._pool.driver.tensor_maker(torch.uint8, (nbytes,), (1,), 0)(make())
        return lambda: flat.clone().untyped_storage()


def _constant(value: Any) -> _Make:
    return -1, lambda inputs: value


def _empty(output: torch.Tensor) -> _Make:
    size, stride, dtype, device = output.shape, output.stride(), output.dtype, output.device
    return -1, lambda inputs: torch.empty_strided(size, stride, dtype=dtype, device=device)


def _from_input(output: torch.Tensor, position: int, base: int, example: torch.Tensor, same: bool) -> _Make:
    if same:
        return -1, lambda inputs: inputs[position]
    size, stride, dtype = output.shape, output.stride(), output.dtype
    # Offsets count elements of a tensor's own dtype; `base` is where the argument began.
    width, own = example.dtype.itemsize, dtype.itemsize
    shift = output.storage_offset() - base * width // own

    def view(inputs: Sequence[Any]) -> Any:
        source = inputs[position]
        offset = source.storage_offset() * width // own + shift
        if source.dtype == dtype:
            return torch.as_strided(source, size, stride, offset)
        empty = torch.empty(0, dtype=dtype, device=source.device)
        return empty.set_(source.untyped_storage(), offset, size, stride)

    return -1, view
