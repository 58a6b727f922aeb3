"""A device in plain memory: the same rules as CUDA's capture and allocator, so that everything else is tested anywhere.

A capture runs under a dispatch mode that gives each new tensor memory from an arena, does no work on memory outside, and
writes down what to do. A replay does that, at the same addresses. Memory of the arena is handed out again as soon as the
tensors over it are gone, during a capture too: a recording that runs when it must not does overwrite what others hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, final

import attrs
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from torchjit_cudagraphs.driver import Capture, Ground
from torchjit_cudagraphs.liveness import StorageRef
from torchjit_torch.layouts import storage_key
from torchjit_torch.operators import written_arguments

__all__ = ["SimulatedDriver"]

T = TypeVar("T")
_ALIGN = 64


@final
@attrs.frozen
class _Place:
    """A tensor of the arena, by address."""

    address: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]


@final
class SimulatedDriver:
    """A `GraphDriver` whose device is the CPU and whose pool is one arena.

    Args:
        nbytes: size of the arena.

    Attributes:
        captures, replays, warmups: how often each happened.
        current: the id of the current stream; set it to switch.
        waits: what `order_after` was told, as (earlier, current).
        inside: somebody else captures; set it to say so.
        released: there will be no more captures.
        fail: raised by the next capture, once the run is over.
        seconds: what `timed` reports for the next calls, in order; real time when empty.
    """

    device_type = "cpu"

    def __init__(self, nbytes: int = 1 << 20) -> None:
        self._arena = torch.zeros(nbytes, dtype=torch.uint8)
        self._base = self._arena.data_ptr()
        self._end = self._base + nbytes
        self._blocks: dict[int, int] = {}
        self._owners: dict[int, tuple[StorageRef, int]] = {}
        self.captures = self.replays = self.warmups = 0
        self.current = 1
        self.waits: list[tuple[int, int]] = []
        self.inside = self.released = False
        self.fail: Exception | None = None
        self.seconds: list[float] = []

    # ------------------------------------------------------------------ the protocol
    def warm_up(self, run: Callable[[], T]) -> T:
        self.warmups += 1
        return run()

    def timed(self, run: Callable[[], T]) -> tuple[T, float]:
        start = time.perf_counter()
        result = run()
        return result, self.seconds.pop(0) if self.seconds else time.perf_counter() - start

    def capture(self, run: Callable[[], T], ground: Ground) -> Capture[T]:
        self._restore(ground)
        steps: list[tuple[Any, Any, Any, list[tuple[_Place, int]]]] = []
        with _Capturing(self, steps):
            result = run()
        if self.fail is not None:
            raise self.fail
        self.captures += 1
        self._sweep()

        def replay() -> None:
            self.replays += 1
            for op, args, kwargs, results in steps:
                made = op(*self._real(args), **self._real(kwargs))
                flat = made if isinstance(made, (tuple, list)) else (made,)
                for place, index in results:
                    self._tensor(place).copy_(flat[index])

        blocks = dict(self._blocks)
        return Capture(replay, result, dict(blocks), blocks)

    def disown(self, storages: Sequence[int], blocks: Iterable[int]) -> None:
        for storage in storages:
            _, address = self._owners.pop(storage)
            del self._blocks[address]
        for address in blocks:
            del self._blocks[address]
        if any(address in self._blocks for _, address in self._owners.values()):
            raise AssertionError("a storage still owns a block of the pool")

    def storage_maker(self, address: int, nbytes: int) -> Callable[[], Any]:
        return lambda: torch._C._construct_storage_from_data_pointer(address, torch.device("cpu"), nbytes)

    def tensor_maker(
        self, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int
    ) -> Callable[[Any], torch.Tensor]:
        def make(storage: Any) -> torch.Tensor:
            with torch.inference_mode(False):
                return torch.empty(0, dtype=dtype).set_(storage, offset, tuple(size), tuple(stride))

        return make

    def release(self) -> None:
        self.released = True

    def capturing(self) -> bool:
        return self.inside

    def stream(self) -> int:
        return self.current

    def order_after(self, stream: int) -> None:
        self.waits.append((stream, self.current))

    # ------------------------------------------------------------------ the allocator
    def _restore(self, ground: Ground) -> None:
        state = dict(ground.state or {})
        lost = self._blocks.keys() - state.keys()
        if lost:
            raise AssertionError(f"blocks {sorted(lost)} are allocated and not in the checkpoint")
        self._blocks = state
        for address in ground.dead:
            del self._blocks[address]
        for cdata in ground.adopt:
            storage = torch.UntypedStorage._new_with_weak_ptr(cdata)
            if storage is None or storage.data_ptr() not in self._blocks:
                raise AssertionError("an adopted storage lies over no block")
            self._owners[cdata] = (StorageRef(storage), storage.data_ptr())

    def _sweep(self) -> None:
        """Free the blocks whose owners died."""
        for cdata, (ref, address) in list(self._owners.items()):
            if ref.expired():
                del self._owners[cdata]
                del self._blocks[address]

    def allocate(self, like: torch.Tensor) -> torch.Tensor:
        """An owning tensor of the arena with the layout of `like` (a dense copy's, if that has gaps)."""
        self._sweep()
        storage_bytes = like.untyped_storage().nbytes()
        nbytes = max(_ALIGN, -(-storage_bytes // _ALIGN) * _ALIGN)
        address = self._base
        for begin, size in sorted(self._blocks.items()):
            if begin - address >= nbytes:
                break
            address = begin + size
        if address + nbytes > self._end:
            raise MemoryError("the arena is full")
        self._blocks[address] = nbytes
        storage = self.storage_maker(address, storage_bytes)()
        self._owners[storage._cdata] = (StorageRef(storage), address)
        return self.tensor_maker(like.dtype, like.shape, like.stride(), int(like.storage_offset()))(storage)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Does the tensor lie in the arena?"""
        return self._base <= tensor.data_ptr() < self._end

    def place(self, value: torch.Tensor) -> Any:
        """What a recorded step keeps of an argument: an address, or a tensor outside."""
        if self.holds(value):
            return _Place(value.data_ptr(), value.dtype, tuple(value.shape), tuple(value.stride()))
        return value

    def _real(self, tree: Any) -> Any:
        return tree_map_only(_Place, self._tensor, tree)

    def _tensor(self, place: _Place) -> torch.Tensor:
        span = 1 + sum((n - 1) * s for n, s in zip(place.size, place.stride, strict=True))
        storage = self.storage_maker(place.address, span * place.dtype.itemsize)()
        return self.tensor_maker(place.dtype, place.size, place.stride, 0)(storage)


@final
class _Capturing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, driver: SimulatedDriver, steps: list[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._driver, self._steps = driver, steps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        driver = self._driver
        written = [args[i] for i, _ in written_arguments(func) if i < len(args)]
        if func._schema.is_mutable:
            # Recorded, not done: memory outside must not change during a capture.
            self._steps.append((func, _places(driver, args), _places(driver, kwargs), []))
            return written[0] if written else kwargs.get("out")
        results = func(*args, **kwargs)
        several = isinstance(results, (tuple, list))
        places: list[tuple[_Place, int]] = []
        made = []
        known = set(map(storage_key, _tensors((args, kwargs))))
        for index, result in enumerate(results if several else (results,)):
            if not isinstance(result, torch.Tensor) or storage_key(result) in known or result.numel() == 0:
                made.append(result)
                continue
            mine = driver.allocate(result)
            places.append((driver.place(mine), index))
            made.append(mine)
        if places and not func._schema.name.startswith("aten::empty"):  # those leave memory as it is
            self._steps.append((func, _places(driver, args), _places(driver, kwargs), places))
        return type(results)(made) if several else made[0]


def _places(driver: SimulatedDriver, tree: Any) -> Any:
    return tree_map_only(torch.Tensor, driver.place, tree)


def _tensors(tree: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    tree_map_only(torch.Tensor, found.append, tree)
    return found
