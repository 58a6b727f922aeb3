"""Guards in C for the tests, compiled once per session."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NAME = b"torchjit.guard.v1"  # the capsule keeps this pointer


class GuardProgram(ctypes.Structure):
    """The struct of csrc/guard_abi.h."""

    _fields_ = [
        ("abi", ctypes.c_uint),
        ("self", ctypes.c_void_p),
        ("ngathered", ctypes.c_ssize_t),
        ("check", ctypes.c_void_p),
    ]


class CapsuleGuard:
    """An object with a guard capsule; not callable, so only the C path can use it."""

    def __init__(self, program: GuardProgram, keep: object) -> None:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.program = program
        self.keep = keep
        self.__torchjit_guard__ = new(ctypes.addressof(program), NAME, None)


MakeGuard = Callable[..., CapsuleGuard]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ctypes.CDLL]:
    """compiled(name): a C file of this folder as a loaded library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")

    def build(name: str) -> ctypes.CDLL:
        library = tmp_path_factory.mktemp("compiled") / "library.so"
        source = Path(__file__).parent / name
        include = sysconfig.get_path("include")
        command = [compiler, "-O2", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        return ctypes.PyDLL(str(library))

    return build


@pytest.fixture(scope="session")
def capsule_guard(compiled: Callable[[str], ctypes.CDLL]) -> MakeGuard:
    """make(symbol, ngathered, self=object) over a function of guard_programs.c."""
    functions = compiled("guard_programs.c")

    def make(symbol: str, ngathered: int, own: Any = None, abi: int = 1) -> CapsuleGuard:
        address = ctypes.cast(getattr(functions, symbol), ctypes.c_void_p)
        pointer = ctypes.c_void_p(id(own))
        return CapsuleGuard(GuardProgram(abi, pointer, ngathered, address), (functions, own))

    return make
