"""Functions of libtorch that read ambient state without Python: a few nanoseconds instead of tens.

They take at most one integer and return an integer or a bool, so that calling them needs no header; each is tried in
both states before it is trusted, and Python's own function is called where one is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import attrs
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchjit_guards.tensors import NativeRead

__all__ = ["native_read"]


@attrs.frozen
class _Source:
    """A Python function's twin in libtorch.

    Attributes:
        library, symbol: where the twin is.
        argument: for it.
        width: bytes of its result.
        code: from the Python function's result to the twin's.
        other: a context in which the result differs from the usual one.
    """

    library: str
    symbol: str
    argument: int
    width: int
    code: Callable[[Any], int | None]
    other: Callable[[], AbstractContextManager[Any]]


def _enabled(value: Any) -> int | None:
    """0 is enabled; not enabled is 1 or 2 in libtorch, and Python's function tells which no more."""
    return 0 if value else None


def autocast_cpu() -> bool:
    """Is autocast on for the CPU?"""
    return torch.is_autocast_enabled("cpu")


def autocast_cuda() -> bool:
    """Is autocast on for CUDA devices?"""
    return torch.is_autocast_enabled("cuda")


_INFERENCE = "_ZN3c1013InferenceMode10is_enabledEv"
_DISABLED_STATE = "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv"
_FUNCTION_MODES = "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"
_DISPATCH_MODES = "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"
_AUTOCAST = "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE"
_CPU, _CUDA = 0, 1  # c10::DeviceType


@functools.cache
def _twins() -> dict[Callable[[], Any], _Source]:
    cpu, c10 = "libtorch_cpu.so", "libc10.so"
    no_subclasses = torch._C.DisableTorchFunctionSubclass
    return {
        torch.is_grad_enabled: _Source(cpu, "aoti_torch_grad_mode_is_enabled", 0, 1, int, torch.no_grad),
        torch.is_inference_mode_enabled: _Source(c10, _INFERENCE, 0, 1, int, torch.inference_mode),
        torch._C._is_torch_function_enabled: _Source(cpu, _DISABLED_STATE, 0, 1, _enabled, no_subclasses),
        torch._C._len_torch_function_stack: _Source(cpu, _FUNCTION_MODES, 0, 8, int, lambda: torch.device("cpu")),
        torch._C._len_torch_dispatch_stack: _Source(c10, _DISPATCH_MODES, 0, 8, int, TorchDispatchMode),
        autocast_cpu: _Source(cpu, _AUTOCAST, _CPU, 1, int, lambda: torch.autocast("cpu")),
        autocast_cuda: _Source(cpu, _AUTOCAST, _CUDA, 1, int, _autocast_cuda_on),
    }


@contextlib.contextmanager
def _autocast_cuda_on() -> Iterator[None]:
    """Only the flag: torch.autocast("cuda") would look for a GPU, and warn."""
    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before)


@functools.cache
def _address(read: Callable[[], Any]) -> int | None:
    """The twin's address, if it exists and agrees with `read` in both states."""
    source = _twins()[read]
    try:
        twin = getattr(ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", source.library)), source.symbol)
    except (OSError, AttributeError):
        return None
    twin.restype = ctypes.c_uint8 if source.width == 1 else ctypes.c_int64
    twin.argtypes = [ctypes.c_int64]

    def agree() -> bool:
        code = source.code(read())
        return code is None or code == twin(source.argument)

    usual = twin(source.argument)
    with source.other():
        inside, differs = agree(), twin(source.argument) != usual
    return ctypes.cast(twin, ctypes.c_void_p).value if agree() and inside and differs else None


def native_read(read: Callable[[], Any], value: object) -> NativeRead | None:
    """The twin of `read`, and what it returns while `read` returns `value`; None: call `read`."""
    source = _twins().get(read)
    if source is None or type(value) not in (bool, int):
        return None
    address, expected = _address(read), source.code(value)
    if address is None or expected is None:
        return None
    return NativeRead(address, source.argument, source.width, expected)
