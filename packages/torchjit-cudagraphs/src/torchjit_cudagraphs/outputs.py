"""How to make a call's results from the memory that a recording writes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_cudagraphs.liveness import Lent, LentAgain, StorageRef
from torchjit_cudagraphs.pool import Block, GraphPool
from torchjit_torch.layouts import storage_key

__all__ = ["Arguments", "OutputPlan"]

_Make = Callable[[Sequence[Any], list[Any]], Any]
"""What makes a result of the call's inputs and of the storages that are copied for it."""
_SMALL = 1 << 16
"""Bytes that one block of a GPU's threads copies as fast as a copy of its own begins."""


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
        entry = self._storages.get(storage_key(output))
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
        self.owners: dict[int, StorageRef] = {}
        self.needs: set[int] = set()
        self._kept: list[torch.Tensor] = []
        self._results: list[Any] = [None] * len(outputs)
        self._storages: dict[int, _Storage] = {}
        self._others: list[tuple[int, _Make]] = []
        for position, output in enumerate(outputs):
            storage = self._storage_of(position, output, arguments, blocks, copy)
            if storage is None:
                self._others.append((position, self._maker(output, arguments, examples, blocks, buffers)))
            else:
                form = (output.dtype, tuple(output.shape), output.stride(), int(output.storage_offset()))
                storage.tensors.append((position, pool.driver.tensor_maker(*form)))
        copied: list[_Storage] = [storage for storage in self._storages.values() if storage.copied]
        for index, storage in enumerate(copied):
            self._others += [(p, _of_copy(index, make)) for p, make in storage.tensors]
        self._copied = _Copied([self._memory_of(storage) for storage in copied])
        self._in_pool = [s for s in self._storages.values() if not s.copied]
        self.lent = frozenset(s.block for s in self._in_pool)
        self._loans: dict[bool, _Loan] = {}

    def make(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the call with these inputs, after the replay was queued."""
        results = self._results.copy()
        if self._in_pool:
            # An inference tensor is made in inference mode only.
            mode = torch.is_inference_mode_enabled()
            loan = self._loans.get(mode)
            if loan is None:
                loan = self._loans[mode] = _Loan(self._in_pool, self._pool)
            for position, template in loan.templates:
                results[position] = template.data
            self._pool.lend_all(loan.lent)
        if self._others:
            copies = self._copied.made()
            for position, make in self._others:
                results[position] = make(inputs, copies)
        return results

    def _storage_of(
        self,
        position: int,
        output: Any,
        arguments: Arguments,
        blocks: Mapping[int, int],
        copy: Callable[[int, int], bool],
    ) -> _Storage | None:
        """The storage of an output that lies in the pool and is no input's; None for others."""
        if not isinstance(output, torch.Tensor) or output.is_conj() or output.is_neg():
            return None
        storage = output.untyped_storage()
        address = storage.data_ptr()
        if storage.nbytes() == 0 or address not in blocks or arguments.find(output) is not None:
            return None
        if address not in self._storages:
            self.owners[address] = StorageRef(storage)
            nbytes = storage.nbytes()
            self._storages[address] = _Storage((address, blocks[address]), nbytes, copy(position, nbytes))
        return self._storages[address]

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
        # A constant of the callable.
        self._kept.append(output)
        return lambda inputs, copies: output.detach()

    def _memory_of(self, storage: _Storage) -> torch.Tensor:
        """A storage of the pool as a row of numbers."""
        driver, wide = self._pool.driver, storage.nbytes % 8 == 0
        dtype, count = (torch.int64, storage.nbytes // 8) if wide else (torch.uint8, storage.nbytes)
        made = driver.tensor_maker(dtype, (count,), (1,), 0)
        row: torch.Tensor = made(driver.storage_maker(storage.block[0], storage.nbytes)())
        return row


@final
@attrs.define(eq=False)
class _Storage:
    """A storage that a recording writes to: where, how large, whether results are copied out of it, and how to make them."""

    block: Block
    nbytes: int
    copied: bool
    tensors: list[tuple[int, Callable[[Any], torch.Tensor]]] = attrs.field(factory=list)


@final
class _Copied:
    """Copies of memory of the pool, a storage each. Small ones are made together: a training step has hundreds of small gradients."""

    def __init__(self, rows: Sequence[torch.Tensor]) -> None:
        self._rows = rows
        small = [i for i, row in enumerate(rows) if row.nbytes <= _SMALL]
        groups = [[i for i in small if rows[i].dtype is dtype] for dtype in (torch.int64, torch.uint8)]
        self._groups = [(group, [rows[i] for i in group]) for group in groups if len(group) > 1]
        together = {i for group, _ in self._groups for i in group}
        self._alone = [i for i in range(len(rows)) if i not in together]

    def made(self) -> list[Any]:
        """New storages, in the order of the rows, after the work is queued that writes to these."""
        storages: list[Any] = [None] * len(self._rows)
        for i in self._alone:
            storages[i] = self._rows[i].clone().untyped_storage()
        for group, rows in self._groups:
            copies = [torch.empty_like(row) for row in rows]
            torch._foreach_copy_(copies, rows)
            for i, copy in zip(group, copies, strict=True):
                storages[i] = copy.untyped_storage()
        return storages


@final
class _Loan:
    """The results that lie in the pool, once, to be copied as objects at each replay: position and tensor.

    Attributes:
        templates: the position of each result, and the tensor.
        lent: their storages.
    """

    __slots__ = ("lent", "templates")

    def __init__(self, storages: Sequence[_Storage], pool: GraphPool) -> None:
        self.templates: list[tuple[int, torch.Tensor]] = []
        self.lent: list[Lent] = []
        for storage in storages:
            memory = pool.driver.storage_maker(storage.block[0], storage.nbytes)()
            made = [(position, make(memory)) for position, make in storage.tensors]
            self.templates += made
            lent = LentAgain(storage.block, memory, [t for _, t in made])
            del memory
            lent.settle()
            self.lent.append(lent)


def _constant(value: Any) -> _Make:
    return lambda inputs, copies: value


def _empty(output: torch.Tensor) -> _Make:
    size, stride, dtype, device = output.shape, output.stride(), output.dtype, output.device
    return lambda inputs, copies: torch.empty_strided(size, stride, dtype=dtype, device=device)


def _of_copy(index: int, make: Callable[[Any], torch.Tensor]) -> _Make:
    return lambda inputs, copies: make(copies[index])


def _from_input(output: torch.Tensor, position: int, base: int, example: torch.Tensor, same: bool) -> _Make:
    if same:
        return lambda inputs, copies: inputs[position]
    size, stride, dtype = output.shape, output.stride(), output.dtype
    # Offsets count elements of a tensor's own dtype; `base` is where the argument began.
    width, own = example.dtype.itemsize, dtype.itemsize
    shift = output.storage_offset() - base * width // own

    def view(inputs: Sequence[Any], copies: list[Any]) -> Any:
        source = inputs[position]
        offset = source.storage_offset() * width // own + shift
        if source.dtype == dtype:
            return torch.as_strided(source, size, stride, offset)
        empty = torch.empty(0, dtype=dtype, device=source.device)
        return empty.set_(source.untyped_storage(), offset, size, stride)

    return view
