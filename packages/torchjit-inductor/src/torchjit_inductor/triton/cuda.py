"""Loading and launching machine code through the CUDA driver, with little work per launch.

Triton's own launcher is generated C code, which it compiles with the system's C compiler for every new signature
(0.3 s each) and which takes tensors apart at every call. Here kernels are called through one small C
extension, the same for every kernel and every version of Triton (`csrc/launcher.c`). Where the extension could not be
built, an array of arguments is filled and `cuLaunchKernel` called through ctypes.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, final

import attrs
import torch

from torchjit_inductor.triton.compile import MachineCode
from torchjit_inductor.triton.descriptors import MAP_BYTES, Descriptor

try:
    from torchjit_inductor._c import Launcher
except ImportError:  # built without a C compiler
    Launcher = None  # type: ignore[assignment, misc]

__all__ = [
    "ALIGNED",
    "DIVISIBLE",
    "WIDE",
    "CudaDriver",
    "KernelDriver",
    "LaunchSignature",
    "LoadedKernel",
    "c_launcher",
]

ALIGNED, WIDE, DIVISIBLE = 1, 2, 4
"""What a specialisation may rely on: all addresses are multiples of 16, positions need 64 bits, the usual sizes are multiples of 16."""
_MOST_SIZES = 64  # of `csrc/launcher.c`

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PROMOTED = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B: what a copy brings into the cache at least
_EARLY_VERSION = 12030  # of CUDA, from which on graphs know kernels that begin early
_STATIC_SHARED_LIMIT = 48 * 1024  # bytes; more must be asked for


@final
@attrs.frozen
class LaunchSignature:
    """What a launcher is called with: addresses; where `programs` is 0 also sizes, the number of programs and an extent.

    Attributes:
        addresses: how many.
        programs: size of the grid; 0: the call says it.
        divisible: for each size whether it is a multiple of 16 under `DIVISIBLE`.
        early: it may begin while the kernel before it runs, and waits by itself, see `overlap`.
    """

    addresses: int
    programs: int
    divisible: tuple[bool, ...] = ()
    early: bool = False


class KernelDriver(Protocol):
    """What launching needs from the machine; tests have one without a GPU."""

    def load(self, code: MachineCode, device: int) -> LoadedKernel:
        """Make machine code callable on a device."""
        ...

    def stream(self, device: int) -> int:
        """The current stream of a device."""
        ...

    def launcher(
        self, load: Callable[[int], LoadedKernel], device: int, signature: LaunchSignature
    ) -> Callable[..., None] | None:
        """A C function that enqueues a kernel, or None where there is none.

        Args:
            load: the kernel by what it may rely on: `ALIGNED`, `WIDE` and `DIVISIBLE`, added.
            device: index.
            signature: of the kernel.
        """
        ...


@final
class LoadedKernel:
    """A kernel on a device. Its argument array is shared between calls, under a lock.

    Args:
        launch: `cuLaunchKernel` or a stand-in that takes its arguments.
        function: handle of the kernel.
        code: its machine code.
        recover: called with the error number of a failed launch and a function that tries again.
        encode: `cuTensorMapEncodeTiled`, for kernels with descriptors.
    """

    def __init__(
        self,
        launch: Callable[..., int],
        function: int,
        code: MachineCode,
        recover: Callable[[int, Callable[[], int]], None],
        encode: Callable[..., int] | None = None,
    ) -> None:
        self.name = code.name
        self._launch, self._recover = launch, recover
        self._function = ctypes.c_void_p(function)
        self._threads, self._shared = code.threads, code.shared
        self.code, self.function = code, function
        # 8 bytes per parameter: the driver reads as many as each one has, little end first.
        self._values = (ctypes.c_uint64 * code.parameters)()
        size, base = ctypes.sizeof(ctypes.c_uint64), ctypes.addressof(self._values)
        self._pointers = (ctypes.c_void_p * code.parameters)(*(base + n * size for n in range(code.parameters)))
        self._lock = threading.Lock()
        self._encode = encode
        self._maps = (ctypes.c_char * (MAP_BYTES * (len(code.descriptors) + 1)))()

    def __call__(self, programs: int, stream: int, *arguments: int) -> None:
        """Enqueue the kernel.

        Args:
            programs: size of the grid, at least 1.
            stream: raw handle.
            arguments: addresses and sizes, in order.

        Raises:
            RuntimeError: the driver refused.
        """
        with self._lock:
            self._values[: len(arguments)] = [*arguments]
            error = self._describe(arguments) if self.code.descriptors else 0
            if error:
                raise RuntimeError(f"encoding a descriptor for {self.name} failed: error {error}")
            error = self._enqueue(programs, stream)
            if error:
                self._recover(error, lambda: self._enqueue(programs, stream))

    def _describe(self, addresses: Sequence[int]) -> int:
        """Encode the descriptors of operands at these addresses, and put them behind those; the driver's error number."""
        base = ctypes.addressof(self._maps)
        base += -base % MAP_BYTES
        for number, descriptor in enumerate(self.code.descriptors):
            position, place = len(addresses) + 5 * number, base + MAP_BYTES * number
            tiles = descriptor.tiles
            self._pointers[position] = place
            self._values[position + 1 : position + 5] = [*tiles.sizes, tiles.step, 1]
            error = _encoded(self._encode, place, addresses[descriptor.argument], descriptor)
            if error:
                return error
        return 0

    def _enqueue(self, programs: int, stream: int) -> int:
        queue = ctypes.c_void_p(stream)
        return self._launch(
            self._function, programs, 1, 1, self._threads, 1, 1, self._shared, queue, self._pointers, None
        )


@final
class CudaDriver:
    """The NVIDIA driver, in the primary contexts that torch uses."""

    def load(self, code: MachineCode, device: int) -> LoadedKernel:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        cuda = _library()
        context = _primary_context(device)
        module, function, before = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        _check(cuda.cuCtxGetCurrent(ctypes.byref(before)), "asking for the context")
        _check(cuda.cuCtxSetCurrent(context), "setting the context")
        try:
            _check(cuda.cuModuleLoadData(ctypes.byref(module), code.cubin), f"loading {code.name}")
            _check(cuda.cuModuleGetFunction(ctypes.byref(function), module, code.name.encode()), code.name)
            if code.shared > _STATIC_SHARED_LIMIT:
                _check(cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, code.shared), code.name)
        finally:
            if before.value:
                cuda.cuCtxSetCurrent(before)
        if function.value is None:
            raise RuntimeError(f"the driver gave no handle for {code.name}")

        def recover(error: int, again: Callable[[], int]) -> None:
            current = ctypes.c_void_p()
            cuda.cuCtxGetCurrent(ctypes.byref(current))
            if current.value == context.value:
                raise RuntimeError(f"launch of {code.name} failed: {_explain(error)}")
            # A thread that has not talked to CUDA yet, or that is on another device.
            with torch.cuda.device(device):
                _check(cuda.cuCtxSetCurrent(context), "setting the context")
                _check(again(), f"launch of {code.name}")

        encode = cuda.cuTensorMapEncodeTiled if code.descriptors else None
        return LoadedKernel(cuda.cuLaunchKernel, function.value, code, recover, encode)

    def stream(self, device: int) -> int:
        return _raw_stream(device)

    def launcher(
        self, load: Callable[[int], LoadedKernel], device: int, signature: LaunchSignature
    ) -> Callable[..., None] | None:
        return c_launcher(launch_address(), load, device, signature, encode_address, early_address)


def c_launcher(
    launch: int,
    load: Callable[[int], LoadedKernel],
    device: int,
    signature: LaunchSignature,
    encode: Callable[[], int] = lambda: 0,
    early: Callable[[], int] = lambda: 0,
) -> Callable[..., None] | None:
    """`CudaDriver.launcher` with `cuLaunchKernel`, or a stand-in, at an address, and `cuTensorMapEncodeTiled` and `cuLaunchKernelEx` likewise."""
    sizes = signature.divisible
    if Launcher is None or len(sizes) > _MOST_SIZES:
        return None

    def parts(which: int) -> tuple[int, int, int, int, LoadedKernel, int, bytes]:
        kernel = load(which)
        code = kernel.code
        packed = b"".join(d.packed for d in code.descriptors)
        encoder = encode() if packed else 0
        return kernel.function, code.threads, code.shared, code.parameters, kernel, encoder, packed

    made: Callable[..., None] = Launcher(
        launch, _raw_stream, device, parts, signature.addresses, signature.programs, len(sizes),
        sum(1 << n for n, divides in enumerate(sizes) if divides), early() if signature.early else 0,
    )  # fmt: skip
    return made


def launch_address() -> int:
    """Where `cuLaunchKernel` is."""
    return ctypes.cast(_library().cuLaunchKernel, ctypes.c_void_p).value or 0


def early_address() -> int:
    """Where `cuLaunchKernelEx` is; 0 where the driver is too old for kernels that begin early: they begin when those before them have ended."""
    version = ctypes.c_int()
    _check(_library().cuDriverGetVersion(ctypes.byref(version)), "asking for the driver's version")
    if version.value < _EARLY_VERSION:
        return 0
    return ctypes.cast(_library().cuLaunchKernelEx, ctypes.c_void_p).value or 0


def encode_address() -> int:
    """Where `cuTensorMapEncodeTiled` is."""
    return ctypes.cast(_library().cuTensorMapEncodeTiled, ctypes.c_void_p).value or 0


def _encoded(encode: Callable[..., int] | None, place: int, address: int, descriptor: Descriptor) -> int:
    """Write a `CUtensorMap`; the driver's error number. As in `csrc/launcher.c`."""
    _, offset, kind, rows, columns, _, step, *box, swizzle = struct.unpack("<10Q", descriptor.packed)
    if encode is None:
        raise RuntimeError("nothing that encodes descriptors")
    pair, wide = ctypes.c_uint32 * 2, ctypes.c_uint64 * 2
    return encode(
        ctypes.c_void_p(place), kind, 2, ctypes.c_void_p(address + offset), wide(columns, rows),
        (ctypes.c_uint64 * 1)(step), pair(box[1], box[0]), pair(1, 1), 0, swizzle, _PROMOTED, 0,
    )  # fmt: skip


_raw_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream
)


@cache
def _library() -> Any:
    # PyDLL keeps the GIL during a call: a launch takes a microsecond, giving the GIL up and taking it back may take more.
    cuda = ctypes.PyDLL("libcuda.so.1")
    _check(cuda.cuInit(0), "initialising CUDA", cuda)
    return cuda


@cache
def _primary_context(device: int) -> ctypes.c_void_p:
    cuda, handle, context = _library(), ctypes.c_int(), ctypes.c_void_p()
    _check(cuda.cuDeviceGet(ctypes.byref(handle), device), f"finding device {device}")
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), f"the context of device {device}")
    return context


def _explain(error: int, cuda: Any = None) -> str:
    text = ctypes.c_char_p()
    (cuda or _library()).cuGetErrorString(error, ctypes.byref(text))
    return f"CUDA error {error}: {text.value.decode() if text.value else 'unknown'}"


def _check(error: int, what: str, cuda: Any = None) -> None:
    if error:
        raise RuntimeError(f"{what}: {_explain(error, cuda)}")
