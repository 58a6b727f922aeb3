"""Which local variables an instruction, or anything that can run after it, may still read, and which blocks wait for it to end."""

from __future__ import annotations

from torchjit_vm.decode import JUMPS, Decoded, decode
from torchjit_vm.region import Region

__all__ = ["blocks_wait", "live_locals"]

_ENDS = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP"})
_READS = frozenset({"LOAD_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "MAKE_CELL"})
_WRITES = frozenset({"STORE_FAST"})


def live_locals(code: Decoded, index: int) -> frozenset[int]:
    """The locals that are live before instruction `index`. All of them in code that calls `locals()`."""
    if code.liveness is None:
        code.liveness = _solve(code)
    return code.liveness[index]


def blocks_wait(region: Region) -> bool:
    """Does the region start inside of a `try` or `with` of its code, which an exception has to leave in order?"""
    if region.offset is None:
        return False
    code = decode(region.code)
    return code.handler_of(code.index_of[region.offset]) is not None


def _solve(code: Decoded) -> list[frozenset[int]]:
    count = len(code.instrs)
    everything = frozenset(range(len(code.locals)))
    if {"locals", "vars", "eval", "exec", "dir"} & set(code.code.co_names):
        return [everything] * count
    after: list[list[int]] = []
    for i, name in enumerate(code.names):
        following = [] if name in _ENDS or i + 1 >= count else [i + 1]
        if name in JUMPS:
            following.append(code.instrs[i][1])
        row = code.handler_of(i)
        if row is not None:
            following.append(row.target)
        after.append(following)
    # super() without arguments reads the first argument behind the compiler's back.
    always: frozenset[int] = frozenset({0}) if "__class__" in code.code.co_freevars else frozenset()
    live: list[frozenset[int]] = [always] * count
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            new: frozenset[int] = always.union(*(live[j] for j in after[i]))
            name = code.names[i]
            if name in _WRITES:
                row = code.handler_of(i)
                kept = live[row.target] if row is not None else frozenset()
                new = (new - {code.instrs[i][1]}) | kept | always
            elif name in _READS:
                new = new | {code.instrs[i][1]}
            if new != live[i]:
                live[i] = new
                changed = True
    return live
