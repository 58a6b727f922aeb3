"""Loading and launching machine code through the CUDA driver, with little work per launch.

Triton's own launcher is generated C code, which it compiles with the system's C compiler for every new signature
(0.3 s each) and which takes tensors apart at every call. Here a launch fills a preallocated array of arguments and calls
`cuLaunchKernel` through ctypes: no compiler, the same for every version of Triton.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, final

import torch

from torchjit_inductor.triton.compile import MachineCode

__all__ = ["CudaDriver", "KernelDriver", "LoadedKernel"]

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_SHARED_LIMIT = 48 * 1024  # bytes; more must be asked for


class KernelDriver(Protocol):
    """What launching needs from the machine; tests have one without a GPU."""

    def load(self, code: MachineCode, device: int) -> LoadedKernel:
        """Make machine code callable on a device."""
        ...

    def stream(self, device: int) -> int:
        """The current stream of a device."""
        ...

    def current_device(self) -> int: ...


@final
class LoadedKernel:
    """A kernel on a device. Not for two threads at once: its argument array is shared between calls.

    Args:
        launch: `cuLaunchKernel` or a stand-in.
        function: handle of the kernel.
        code: its machine code.
        explain: text of an error number.
    """

    def __init__(self, launch: Callable[..., int], function: int, code: MachineCode, explain: Callable[[int], str]):
        self.name = code.name
        self._launch, self._explain = launch, explain
        self._function = ctypes.c_void_p(function)
        self._threads, self._shared = code.threads, code.shared
        # 8 bytes per parameter: the driver reads as many as each one has, little end first.
        self.values = (ctypes.c_uint64 * code.parameters)()
        size, base = ctypes.sizeof(ctypes.c_uint64), ctypes.addressof(self.values)
        self._pointers = (ctypes.c_void_p * code.parameters)(*(base + n * size for n in range(code.parameters)))

    def __call__(self, programs: int, stream: int, *arguments: int) -> None:
        """Enqueue the kernel.

        Args:
            programs: size of the grid, at least 1.
            stream: raw handle.
            arguments: addresses and sizes, in order.

        Raises:
            RuntimeError: the driver refused.
        """
        self.values[: len(arguments)] = arguments
        error = self._launch(
            self._function, programs, 1, 1, self._threads, 1, 1, self._shared, ctypes.c_void_p(stream), self._pointers,
            None,
        )  # fmt: skip
        if error:
            raise RuntimeError(f"launch of {self.name} failed: {self._explain(error)}")


@final
class CudaDriver:
    """The NVIDIA driver, in the contexts that torch has made current."""

    def load(self, code: MachineCode, device: int) -> LoadedKernel:
        with torch.cuda.device(device):
            torch.cuda.current_stream(device)  # torch makes the context
            cuda = _library()
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            _check(cuda.cuModuleLoadData(ctypes.byref(module), code.cubin), f"loading {code.name}")
            _check(cuda.cuModuleGetFunction(ctypes.byref(function), module, code.name.encode()), code.name)
            if code.shared > _STATIC_SHARED_LIMIT:
                _check(cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, code.shared), code.name)
        if function.value is None:
            raise RuntimeError(f"the driver gave no handle for {code.name}")
        return LoadedKernel(cuda.cuLaunchKernel, function.value, code, _explain)

    def stream(self, device: int) -> int:
        return _raw_stream(device)

    def current_device(self) -> int:
        return torch.cuda.current_device()


_raw_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream
)


@cache
def _library() -> Any:
    # PyDLL keeps the GIL during a call, so no other thread refills the arguments before the driver has read them.
    return ctypes.PyDLL("libcuda.so.1")


def _explain(error: int) -> str:
    text = ctypes.c_char_p()
    _library().cuGetErrorString(error, ctypes.byref(text))
    return f"CUDA error {error}: {text.value.decode() if text.value else 'unknown'}"


def _check(error: int, what: str) -> None:
    if error:
        raise RuntimeError(f"{what}: {_explain(error)}")
