"""`assert` on a leaf: the leaf handler may test it in the region's graph instead of breaking for its truth.

Where nobody could tell that an assertion fails late: nothing was changed before it, and no block of the region would
see the error. Or where the region's own code runs in place of a graph that raises.
"""

from __future__ import annotations

from typing import Any, final

import attrs

from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.decode import Decoded
from torchjit_vm.frame import Frame

__all__ = ["Assertion", "current_assertion"]


@final
@attrs.frozen
class Assertion:
    """A truth that the program requires.

    Attributes:
        expected: what it must be.
        message: what the AssertionError says; None without an argument.
        in_place: somebody could tell if it failed late.
    """

    expected: bool
    message: str | None
    in_place: bool = False


def current_assertion(domain: CaptureDomain) -> Assertion | None:
    """What the instruction that runs now asserts about the value that it looks at, or None."""
    frames = domain.vm.frames
    if not frames or domain.barrier is not None or domain.interceptors or domain.generators:
        return None
    found = _asserted(frames[-1])
    if found is None:
        return None
    told = any(frame.code.handler_of(frame.pc - 1) is not None for frame in frames) or not _unchanged(domain)
    return attrs.evolve(found, in_place=found.in_place or told)


def _unchanged(domain: CaptureDomain) -> bool:
    changed = domain.touched or domain.stored_leaves or domain.class_stores or domain.reordered or domain.prelude
    return not changed and not domain.pretended and domain.vm.handled is None


def _asserted(frame: Frame[Any]) -> Assertion | None:
    """A conditional jump with an `AssertionError` at one of its two ends."""
    code, at = frame.code, frame.pc - 1
    name = code.names[at]
    if name not in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"):
        return None
    for end, reached_by in ((at + 1, name == "POP_JUMP_IF_FALSE"), (code.instrs[at][1], name == "POP_JUMP_IF_TRUE")):
        if code.names[end] == "LOAD_ASSERTION_ERROR":
            return _raised(code, end + 1, not reached_by)
    return None


def _raised(code: Decoded, at: int, expected: bool) -> Assertion:
    """The error that is raised from here on; if its message is not constant, the program must make it."""
    if code.names[at] == "RAISE_VARARGS":
        return Assertion(expected, None)
    if code.names[at : at + 3] == ["LOAD_CONST", "CALL", "RAISE_VARARGS"]:
        message = code.code.co_consts[code.instrs[at][1]]
        if type(message) is str:
            return Assertion(expected, message)
    return Assertion(expected, None, in_place=True)
