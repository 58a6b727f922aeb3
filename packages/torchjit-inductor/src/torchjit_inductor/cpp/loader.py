"""Loading compiled files: each kernel becomes a builtin function of ints.

The C files include no Python header. They define functions of CPython's METH_FASTCALL signature, get the few
interpreter functions that they call as addresses, and are wrapped here by `PyCFunction_NewEx`.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from torchjit_core.handlers import let_through
from torchjit_inductor.cpp import vector_math

__all__ = ["load", "opened", "wrapped"]

METH_FASTCALL = 0x0080


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


# Method definitions and libraries live as long as the process: function objects point into them.
_alive: list[object] = []


def load(library: Path, names: Sequence[str]) -> list[Callable[..., None]]:
    """Load a library and wrap its kernels.

    Args:
        names: of the kernels; the library exports `py_<name>`.

    Returns:
        Functions that take addresses and sizes as ints. They release the interpreter lock while they run.
    """
    return wrapped(opened(library), names)


def opened(library: Path) -> ctypes.CDLL:
    """A library, which stays loaded."""
    handle = ctypes.CDLL(str(library))
    handle.tj_init(ctypes.byref(_table()))
    _alive.append(handle)
    return handle


def wrapped(handle: ctypes.CDLL, names: Sequence[str]) -> list[Callable[..., None]]:
    """Kernels of a library that is loaded; see `load`.

    Raises:
        AttributeError: it has no such kernel.
    """
    make = _maker_of_builtins()
    functions: list[Callable[..., None]] = []
    for name in names:
        try:
            address = ctypes.addressof(ctypes.c_char.in_dll(handle, f"py_{name}"))
        except ValueError as error:
            raise AttributeError(f"py_{name}: {error}") from None
        definition = _MethodDef(name.encode(), address, METH_FASTCALL, b"")
        _alive.append(definition)
        functions.append(make(ctypes.addressof(definition), None, None))
    return functions


@functools.cache
def _maker_of_builtins() -> Any:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return make


@functools.cache
def _table() -> Any:
    """Addresses that a library needs, in the order in which `tj_init` reads them."""
    python = ctypes.pythonapi
    entries = [
        _parallel_for(),
        _address(python.PyLong_AsLongLong),
        _address(python.PyEval_SaveThread),
        _address(python.PyEval_RestoreThread),
        _address(python.Py_IncRef),
        id(None),
        _address(python.PyErr_Format),
        id(IndexError),
        id(RuntimeError),
        ctypes.addressof(vector_math.table(_libtorch())),
        _address(python.PyMem_RawMalloc),
        _address(python.PyMem_RawFree),
    ]
    return (ctypes.c_void_p * len(entries))(*entries)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def _libtorch() -> ctypes.CDLL | None:
    """torch's own library, which has the thread pool that aten uses and vector functions; None where it is not found."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        try:
            return ctypes.CDLL(os.path.join(folder, name))
        except OSError:
            let_through()
    return None


def _parallel_for() -> int:
    """torch's own thread pool, so that ours and aten's ops share threads."""
    try:
        return _address(_libtorch().torch_parallel_for)  # type: ignore[union-attr]  # None has no such attribute either
    except AttributeError:
        return 0
