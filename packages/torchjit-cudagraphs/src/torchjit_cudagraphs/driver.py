"""The few things that recording needs from CUDA, behind a protocol, so that the rest runs without a GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, final

import torch

__all__ = ["GraphDriver", "TorchGraphDriver"]

T = TypeVar("T")


class GraphDriver(Protocol):
    """Streams, capture and replay of one device."""

    @property
    def device_type(self) -> str:
        """The `torch.device.type` whose work can be captured."""
        ...

    def warm_up(self, run: Callable[[], T]) -> T:
        """Call `run` on a side stream, ordered after and before the current stream's work."""
        ...

    def capture(self, run: Callable[[], T]) -> tuple[Callable[[], None], T]:
        """Call `run` once, recording its device work without doing it.

        Returns:
            A function that does the recorded work on the current stream, and the result of `run`. The memory that
            `run` allocated keeps its address for as long as that function lives.

        Raises:
            Exception: whatever `run` or the capture raised. Nothing was done then.
        """
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
    """The real thing: one device, one side stream, one private memory pool for all recordings of one callable.

    Recordings that share the pool reuse each other's scratch memory: they must not run at the same time. `Recorded`
    sees to that with a lock and `order_after`.

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

    def warm_up(self, run: Callable[[], T]) -> T:
        current = torch.cuda.current_stream(self._device)
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            result = run()
        current.wait_stream(self._side)
        # The results were allocated on the side stream: the allocator must know that this stream uses them as well.
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor) and value.is_cuda:
                value.record_stream(current)
        return result

    def capture(self, run: Callable[[], T]) -> tuple[Callable[[], None], T]:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        # Workspaces of cuBLAS made before would be freed by whoever clears them next, under the recording's feet:
        # with none there, the capture allocates its own from the pool. Likewise afterwards, for the others.
        _clear_blas_workspaces()
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
            _clear_blas_workspaces()
        return graph.replay, result

    def capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def stream(self) -> int:
        return _raw_stream(self._index)

    def order_after(self, stream: int) -> None:
        other = torch.cuda.ExternalStream(stream, device=self._device)  # type: ignore[no-untyped-call]
        torch.cuda.current_stream(self._device).wait_stream(other)


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    try:
        graph.capture_end()
    except RuntimeError:
        pass  # the capture was invalid already; the caller hears of the first error


def _clear_blas_workspaces() -> None:
    clear: Any = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()


def _raw_stream(index: int) -> int:
    raw: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return int(raw(index)) if raw is not None else torch.cuda.current_stream(index).cuda_stream
