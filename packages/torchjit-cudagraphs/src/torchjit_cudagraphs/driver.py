"""The few things that recording needs from a device, behind a protocol, so that the rest runs without a GPU."""

from __future__ import annotations

import functools
import gc
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, final

import attrs
import torch

__all__ = ["Capture", "GraphDriver", "Ground", "TorchGraphDriver"]

T = TypeVar("T")


@final
@attrs.frozen(eq=False)
class Ground:
    """What a pool's memory must look like when a capture begins.

    Attributes:
        state: the checkpoint to go back to (`Capture.state` of an earlier capture); None for a pool that was never used.
        dead: addresses that are allocated in `state` but whose owners are gone; the capture may use their memory.
        adopt: ids (`UntypedStorage._cdata`) of storages over memory that is allocated in `state`: if one dies during the
            capture, what the capture does from then on may use its memory.
    """

    state: Any = None
    dead: Sequence[int] = ()
    adopt: Sequence[int] = ()


@final
@attrs.frozen(eq=False)
class Capture(Generic[T]):
    """A captured run.

    Attributes:
        replay: does the recorded work on the current stream. The memory that it uses stays reserved while it lives.
        result: what the run returned; its contents are undefined until the first replay.
        state: the pool's allocations at the end.
        blocks: the same as addresses with sizes in bytes.
    """

    replay: Callable[[], None]
    result: T
    state: Any
    blocks: Mapping[int, int]


class GraphDriver(Protocol):
    """Streams, capture, replay and the memory pool of one device.

    Between captures the allocator regards the whole pool as free: what is in use is `GraphPool`'s to know.
    """

    @property
    def device_type(self) -> str:
        """The `torch.device.type` whose work can be captured."""
        ...

    def warm_up(self, run: Callable[[], T]) -> T:
        """Call `run` as a rehearsal: libraries load and choose their algorithms, memory comes from the usual place."""
        ...

    def timed(self, run: Callable[[], T]) -> tuple[T, float]:
        """Call `run` and wait for the device. Returns its result and the seconds from an idle device to an idle device."""
        ...

    def capture(self, run: Callable[[], T], ground: Ground) -> Capture[T]:
        """Call `run` once, recording its device work without doing it; memory comes from the pool.

        Raises:
            Exception: whatever `run` or the capture raised. Nothing was done then, and the pool must not be used again
                for captures.
        """
        ...

    def disown(self, storages: Sequence[int], blocks: Iterable[int]) -> None:
        """After a capture: every block of the pool is free again for the allocator.

        Args:
            storages: ids of the storages that own a block. They stay usable and no longer free anything when they die.
            blocks: addresses of the other blocks.
        """
        ...

    def storage_maker(self, address: int, nbytes: int) -> Callable[[], Any]:
        """A function that makes a storage over memory of the pool, which does not own it."""
        ...

    def tensor_maker(
        self, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int
    ) -> Callable[[Any], torch.Tensor]:
        """A function that makes a tensor over a storage; `offset` counts elements."""
        ...

    def release(self) -> None:
        """There will be no more captures: the pool's memory is free once no recording uses it."""
        ...

    def capturing(self) -> bool:
        """Is somebody capturing the current stream already?"""
        ...

    def stream(self) -> int:
        """An id of the current stream."""
        ...

    def order_after(self, stream: int) -> None:
        """Work queued on the current stream from now on waits for what is queued on `stream`."""
        ...


@final
class TorchGraphDriver:
    """The real thing: one CUDA device, one side stream, one private memory pool.

    The allocator's checkpoint functions that it uses are private to torch; they are the same in 2.11 and 2.15.

    Args:
        device: a CUDA device.
    """

    device_type = "cuda"

    def __init__(self, device: torch.device) -> None:
        index = device.index if device.index is not None else torch.cuda.current_device()
        self._device = torch.device("cuda", index)
        self._index = index
        self._side: torch.cuda.Stream = torch.cuda.Stream(device=self._device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        # An empty graph keeps the pool's memory while other graphs come and go.
        anchor = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device), torch.cuda.stream(self._side), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is empty
            anchor.capture_begin(self._pool, capture_error_mode="thread_local")
            anchor.capture_end()
        self._anchor: torch.cuda.CUDAGraph | None = anchor

    def warm_up(self, run: Callable[[], T]) -> T:
        return run()

    def timed(self, run: Callable[[], T]) -> tuple[T, float]:
        torch.cuda.synchronize(self._device)
        start = time.perf_counter()
        result = run()
        torch.cuda.synchronize(self._device)
        return result, time.perf_counter() - start

    def capture(self, run: Callable[[], T], ground: Ground) -> Capture[T]:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        # Workspaces of cuBLAS made before would be freed by whoever clears them next, under the recording's feet:
        # with none there, the capture allocates its own from the pool. Likewise afterwards, for the others.
        torch._C._cuda_clearCublasWorkspaces()
        # What the rehearsals allocated, workspaces included, is of no use any more, and the pool takes about as much.
        torch.cuda.empty_cache()
        if ground.state is not None:
            torch._C._cuda_setCheckpointPoolState(self._index, ground.state, [], list(ground.adopt))
            for address in ground.dead:
                torch._C._cuda_cudaCachingAllocator_raw_delete(address)
        collecting = gc.isenabled()
        gc.disable()  # a finalizer that talks to CUDA would spoil the capture
        try:
            with torch.cuda.device(self._device), torch.cuda.stream(self._side):
                graph.capture_begin(self._pool, capture_error_mode="thread_local")
                try:
                    result = run()
                except BaseException:
                    _abandon(graph)
                    raise
                graph.capture_end()
        finally:
            if collecting:
                gc.enable()
            torch._C._cuda_clearCublasWorkspaces()
        state = torch._C._cuda_getCheckpointState(self._index, self._pool)
        return Capture(graph.replay, result, state, self._blocks())

    def _blocks(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for segment in torch.cuda.memory_snapshot():  # type: ignore[no-untyped-call]
            if tuple(segment["segment_pool_id"]) != tuple(self._pool):
                continue
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    found[address] = block["size"]
                address += block["size"]
        return found

    def disown(self, storages: Sequence[int], blocks: Iterable[int]) -> None:
        for storage in storages:
            torch._C._free_And_Remove_DeleterFn(storage)
        for address in blocks:
            torch._C._cuda_cudaCachingAllocator_raw_delete(address)

    def storage_maker(self, address: int, nbytes: int) -> Callable[[], Any]:
        return functools.partial(torch._C._construct_storage_from_data_pointer, address, self._device, nbytes)

    def tensor_maker(
        self, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int
    ) -> Callable[[Any], torch.Tensor]:
        metadata = {
            "device": self._device, "dtype": dtype, "size": size, "stride": stride, "storage_offset": offset,
        }  # fmt: skip
        # One C++ call: hundreds of tensors are made at each step of a training loop.
        return functools.partial(torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata, metadata)

    def release(self) -> None:
        self._anchor = None

    def capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def stream(self) -> int:
        return torch._C._cuda_getCurrentRawStream(self._index)

    def order_after(self, stream: int) -> None:
        other = torch.cuda.ExternalStream(stream, device=self._device)  # type: ignore[no-untyped-call]
        torch.cuda.current_stream(self._device).wait_stream(other)


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    try:
        graph.capture_end()
    except RuntimeError:
        pass  # the capture was invalid already; the caller hears of the first error
