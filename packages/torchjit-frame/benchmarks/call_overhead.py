"""Call overhead of a front door: python benchmarks/call_overhead.py

Nanoseconds per call, the minimum over repeats; the guards are C programs compiled here (a C compiler is needed).
The target is the function itself, so that the difference to a plain call is what the door adds.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import sysconfig
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchjit_frame import Entry, FrontDoor, hook_scope

NAME = b"torchjit.guard.v1"
LOOPS = 200_000
REPEATS = 25


class Program(ctypes.Structure):
    """torchjit_guard_v1 of csrc/guard_abi.h."""

    _fields_ = [("abi", ctypes.c_uint), ("self", ctypes.c_void_p), ("n", ctypes.c_ssize_t), ("check", ctypes.c_void_p)]


class TypeGuard:
    """Slot 0 has exactly this type; every slot is gathered."""

    def __init__(self, library: ctypes.CDLL, kind: type, nslots: int) -> None:
        check = ctypes.cast(library.type_is, ctypes.c_void_p)
        self.keep = library
        self.program = Program(1, id(kind), nslots, check)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.__torchjit_guard__ = new(ctypes.addressof(self.program), NAME, None)


def build() -> ctypes.CDLL:
    """Compile the guard programs of the tests."""
    source = Path(__file__).parent.parent / "tests" / "guard_programs.c"
    library = Path(tempfile.mkdtemp()) / "guards.so"
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def function(a: Any, b: Any = None) -> Any:
    """The payload: as little as possible."""
    return a


def nanoseconds(call: Callable[..., Any], text: str = "call(1, 2)") -> float:
    """Time of one call, less that of an empty loop."""
    timer = timeit.Timer(text, globals={"call": call})
    empty = timeit.Timer("pass")
    least = min(timer.repeat(REPEATS, LOOPS)) - min(empty.repeat(REPEATS, LOOPS))
    return least / LOOPS * 1e9


def door_with(*entries: Entry) -> FrontDoor:
    """A door over `function` that never compiles."""
    door = FrontDoor(function, lambda door, slots: None)
    door.sealed = True
    for entry in entries:
        door.append(entry)
    return door


def main() -> None:
    """Print the table."""
    library = build()
    hit, *misses = (Entry(TypeGuard(library, kind, 2), function) for kind in (int, str, float))
    python_guard = Entry(lambda *slots: slots, function)
    plain = nanoseconds(function)
    rows = [
        ("plain call", plain),
        ("door, no entry (sealed)", nanoseconds(door_with())),
        ("door, 1 entry, C guard", nanoseconds(door_with(hit))),
        ("door, 3 entries, C guards, last hits", least_last(misses, hit)),
        ("door, 1 entry, Python guard", nanoseconds(door_with(python_guard))),
        ("plain call, keyword", nanoseconds(function, "call(1, b=2)")),
        ("door, 1 entry, keyword", nanoseconds(door_with(hit), "call(1, b=2)")),
        ("plain call, default", nanoseconds(function, "call(1)")),
        ("door, 1 entry, default", nanoseconds(door_with(hit), "call(1)")),
        *hook_rows(),
    ]
    print(f"Python {sys.version.split()[0]}")
    for name, value in rows:
        print(f"  {name:<40} {value:7.1f} ns   {value - plain:+7.1f}")


def least_last(misses: list[Entry], hit: Entry) -> float:
    """Three entries, kept in an order where the one that holds comes last."""
    call = door_with(*misses, hit)
    # Another entry hits in between, so that the last one does not collect the streak that moves it to the front.
    pair = nanoseconds(call, "call(1, 2); call('', 2)")
    return pair - nanoseconds(call, "call('', 2)")


def hook_rows() -> list[tuple[str, float]]:
    """Calls under an active hook: left alone, and swapped in place."""

    def swapped(a: Any, b: Any = None) -> Any:
        return a

    def callback(seen: Callable[..., Any]) -> Any:
        return swapped.__code__.replace(co_consts=(None, 1)) if seen is swapped else None

    with hook_scope(callback):
        return [("hook on, frame left alone", nanoseconds(function)), ("hook on, frame swapped", nanoseconds(swapped))]


if __name__ == "__main__":
    main()
