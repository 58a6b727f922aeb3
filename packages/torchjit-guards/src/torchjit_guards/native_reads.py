"""Functions of libtorch that read ambient state without Python: a few nanoseconds instead of tens.

They take at most one integer and return an integer or a bool, so that calling them needs no header. Where the state
belongs to the thread, each is tried in both states before it is trusted; state of the whole process is not touched, and
must agree as it is. Python's own function is called where one is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import attrs
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchjit_guards.layout import SCALAR_CODES

__all__ = ["NativeRead", "native_read", "offer_twins", "tried_twins"]


@attrs.frozen(repr=False)
class NativeRead:
    """A C function that takes at most one integer and returns `width` (1 or 8) bytes, which must be `expected` (small)."""

    address: int
    argument: int
    width: int
    expected: int


@attrs.frozen(repr=False)
class _Source:
    """A Python function's twin in libtorch.

    Attributes:
        library, symbol: where the twin is.
        argument: for it.
        width: bytes of its result.
        code: from the Python function's result to the twin's.
        states: two contexts in which the result differs; none: the state is the process's.
    """

    library: str
    symbol: str
    argument: int
    width: int
    code: Callable[[Any], int | None]
    states: tuple[Callable[[], AbstractContextManager[Any]], ...] = ()


def _disabled(value: Any) -> int | None:
    """0 is enabled; disabled is 1 or 2 in libtorch, of which a bool does not tell which."""
    return None if value else 0


def torch_function_disabled() -> bool:
    """Is `__torch_function__` off, for subclasses or altogether?"""
    return not torch._C._is_torch_function_enabled()


def autocast_cpu() -> bool:
    """Is autocast on for the CPU?"""
    return torch.is_autocast_enabled("cpu")


def autocast_cuda() -> bool:
    """Is autocast on for CUDA devices?"""
    return torch.is_autocast_enabled("cuda")


def is_jit_tracing() -> bool:
    """Does torch.jit.trace record what this thread runs?"""
    return torch._C._dispatch_tls_is_dispatch_key_included(_TRACER)


def is_functorch_active() -> bool:
    """Is a transformation of functorch at work, such as vmap, grad or jvp?"""
    return torch._C._dispatch_tls_is_dispatch_key_included(_FUNCTORCH)


_GRAD = "aoti_torch_grad_mode_is_enabled"
_INFERENCE = "_ZN3c1013InferenceMode10is_enabledEv"
_DISABLED_STATE = "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv"
_FUNCTION_MODES = "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"
_DISPATCH_MODES = "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"
_AUTOCAST = "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE"
_CPU, _CUDA = 0, 1  # c10::DeviceType
_KEY_INCLUDED = "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE"
_TRACER = "Tracer"
_FUNCTORCH = "FuncTorchDynamicLayerFrontMode"  # included as long as the stack of interpreters is not empty
_DEFAULT_DTYPE = "_ZN3c1031get_default_dtype_as_scalartypeEv"
_CONTEXT = "_ZN2at13globalContextEv"
_DETERMINISTIC = "_ZNK2at7Context23deterministicAlgorithmsEv"
_WARN_ONLY = "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv"


@functools.cache
def _twins() -> dict[Callable[[], Any], _Source]:
    cpu, c10 = "libtorch_cpu.so", "libc10.so"
    as_is = contextlib.nullcontext
    no_subclasses = torch._C.DisableTorchFunctionSubclass
    context = _call(cpu, _CONTEXT) or 0
    return {
        torch.is_grad_enabled: _Source(cpu, _GRAD, 0, 1, int, _both(torch.set_grad_enabled)),
        torch.is_inference_mode_enabled: _Source(c10, _INFERENCE, 0, 1, int, _both(torch.inference_mode)),
        torch_function_disabled: _Source(cpu, _DISABLED_STATE, 0, 1, _disabled, (as_is, no_subclasses)),
        torch._C._len_torch_function_stack: _Source(
            cpu, _FUNCTION_MODES, 0, 8, int, (as_is, lambda: torch.device("cpu"))
        ),
        torch._C._len_torch_dispatch_stack: _Source(c10, _DISPATCH_MODES, 0, 8, int, (as_is, TorchDispatchMode)),
        is_jit_tracing: _key_included(_TRACER),
        is_functorch_active: _key_included(_FUNCTORCH),
        autocast_cpu: _Source(cpu, _AUTOCAST, _CPU, 1, int, _both(functools.partial(_autocast, "cpu"))),
        autocast_cuda: _Source(cpu, _AUTOCAST, _CUDA, 1, int, _both(functools.partial(_autocast, "cuda"))),
        torch.get_default_dtype: _Source(c10, _DEFAULT_DTYPE, 0, 1, SCALAR_CODES.get),
        torch._C._get_deterministic_algorithms: _Source(cpu, _DETERMINISTIC, context, 1, int),
        torch._C._get_deterministic_algorithms_warn_only: _Source(cpu, _WARN_ONLY, context, 1, int),
    }


def _key_included(key: str) -> _Source:
    parsed: Any = torch._C._parse_dispatch_key(key)
    return _Source("libc10.so", _KEY_INCLUDED, int(parsed), 1, int, _both(functools.partial(_included, key)))


def _both(
    switch: Callable[[bool], AbstractContextManager[Any]],
) -> tuple[Callable[[], AbstractContextManager[Any]], ...]:
    return functools.partial(switch, True), functools.partial(switch, False)


@contextlib.contextmanager
def _included(key: str, included: bool) -> Iterator[None]:
    """Only the key, without what it stands for: no operation may run meanwhile."""
    before = torch._C._dispatch_tls_is_dispatch_key_included(key)
    torch._C._dispatch_tls_set_dispatch_key_included(key, included)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_included(key, before)


@contextlib.contextmanager
def _autocast(device: str, enabled: bool) -> Iterator[None]:
    """Only the flag: torch.autocast("cuda") would look for a GPU, and warn."""
    before = torch.is_autocast_enabled(device)
    torch.set_autocast_enabled(device, enabled)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, before)


def _twin(library: str, symbol: str) -> Any:
    try:
        return getattr(ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", library)), symbol)
    except (OSError, AttributeError):
        return None


def _call(library: str, symbol: str) -> int | None:
    """The address that a function without arguments returns."""
    twin = _twin(library, symbol)
    if twin is None:
        return None
    twin.restype = ctypes.c_void_p
    address: int | None = twin()
    return address


_tried: set[str] = set()
"""Symbols that were tried in all states, here or by another process with this very build of torch."""


def tried_twins() -> tuple[str, ...]:
    """The symbols of the twins that are right in all states."""
    return tuple(sorted(_tried))


def offer_twins(symbols: Iterable[str]) -> None:
    """Say what another process with this very build of torch has tried: here the state as it is does."""
    _tried.update(symbols)


@functools.cache
def _address(read: Callable[[], Any]) -> int | None:
    """The twin's address, if it exists and agrees with `read`."""
    source = _twins()[read]
    twin = _twin(source.library, source.symbol)
    if twin is None or (source.symbol in (_DETERMINISTIC, _WARN_ONLY) and not source.argument):
        return None
    twin.restype = ctypes.c_uint8 if source.width == 1 else ctypes.c_int64
    twin.argtypes = [ctypes.c_int64]

    def agree() -> bool:
        code = source.code(read())
        return code is None or code == twin(source.argument)

    name = f"{source.symbol} {source.argument if source.states else ''}"
    right, seen = agree(), set()
    states = () if name in _tried else source.states
    for state in states:
        with state():
            right = right and agree()
            seen.add(twin(source.argument))
    if not right or len(seen) != len(states):
        return None
    _tried.add(name)
    return ctypes.cast(twin, ctypes.c_void_p).value


def native_read(read: Callable[[], Any], value: object) -> NativeRead | None:
    """The twin of `read`, and what it returns while `read` returns `value`; None: call `read`."""
    source = _twins().get(read)
    if source is None or type(value) not in (bool, int, torch.dtype):
        return None
    address, expected = _address(read), source.code(value)
    if address is None or expected is None:
        return None
    return NativeRead(address, source.argument, source.width, expected)
