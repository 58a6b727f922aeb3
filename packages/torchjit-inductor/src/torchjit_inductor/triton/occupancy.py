"""Tiles by what the compiled binary says: how many registers a thread takes, so how many programs a multiprocessor runs at once.

Sums over rows are cut into about as many programs as the GPU can run, each with as much in flight as threads have registers for. How many
those are only the compiler knows: Triton 3.6 takes 66 for the gradient of a GELU by an error function, 96 for that by a hyperbolic tangent.
Where the programs of a plan do not fit onto the GPU at once, and those of half as large tiles do, these are faster: 384 programs on 132
multiprocessors take 44 us in two turns and 32 us in one. Where they fit anyway, the smaller tiles only have less in flight, and lose 11 %.
Like the table of plans, this is for an H100 or H200, whatever is compiled for: a binary has its plan from its text and compiler alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import attrs

from torchjit_inductor.triton.compile import MachineCode
from torchjit_inductor.triton.plan import MULTIPROCESSORS, THREADS, TilePlan

__all__ = ["registers_of", "resident", "settled"]

_REGISTERS = 65536  # of a multiprocessor, given to warps in units of 256
_SHARED = 227 * 1024  # bytes of one, of which a program takes 1024 besides its own
_PROGRAMS = 32  # that one holds
_LEAST = 32
"""Rows of a tile: below that a thread has less than 16 bytes of a tensor in flight."""

_SECTIONS, _SECTION_NUMBERS = 40, 58
"""Where a 64-bit ELF file says where its table of sections is, and how large its entries, how many, and which has their names."""

_NOTE, _COUNT = 4, 0x2F
"""Form and kind of the note about registers in the section `.nv.info` of a binary (EIFMT_SVAL, EIATTR_REGCOUNT)."""


def settled(plan: TilePlan, compiled: Callable[[TilePlan], MachineCode]) -> TilePlan:
    """The plan, or that with half as many rows in a tile where only its programs run all at once.

    Args:
        plan: from the table.
        compiled: machine code under a plan; not called for plans that have no such neighbour.
    """
    smaller = _smaller(plan)
    if smaller is None:
        return plan
    held = resident(compiled(plan))
    if held is None or _at_once(plan, held):
        return plan
    held = resident(compiled(smaller))
    return smaller if held is not None and _at_once(smaller, held) else plan


def resident(code: MachineCode) -> int | None:
    """How many programs a multiprocessor runs at once; None if the binary does not say."""
    registers = registers_of(code.cubin)
    if registers is None:
        return None
    each = -(-registers // 8) * 8 * code.threads
    return max(1, min(_REGISTERS // each, THREADS // code.threads, _SHARED // (code.shared + 1024), _PROGRAMS))


def registers_of(cubin: bytes) -> int | None:
    """Registers of a thread; None if this is no binary of one kernel that says so."""
    try:
        (table,) = struct.unpack_from("<Q", cubin, _SECTIONS)
        size, count, named = struct.unpack_from("<HHH", cubin, _SECTION_NUMBERS)
        sections = [struct.unpack_from("<IIQQQQ", cubin, table + n * size) for n in range(count)]
        names = sections[named][4]
        *_, position, length = next(s for s in sections if cubin.startswith(b".nv.info\0", names + s[0]))
        end, found = position + length, []
        while position < end:
            form, kind, length = struct.unpack_from("<BBH", cubin, position)
            position += 4
            if form == _NOTE:  # of the others `length` is what they say
                if kind == _COUNT:
                    found.append(struct.unpack_from("<II", cubin, position)[1])
                position += length
    except (struct.error, OverflowError, IndexError, StopIteration):
        return None
    return int(found[0]) if len(found) == 1 and found[0] > 0 else None


def _at_once(plan: TilePlan, held: int) -> bool:
    """Do all programs run at once where a multiprocessor holds so many?"""
    programs = plan.programs.value
    return programs is not None and programs <= MULTIPROCESSORS * held


def _smaller(plan: TilePlan) -> TilePlan | None:
    """The plan with half as many rows in a tile: for sums over rows in a loop that can run all at once."""
    if len(plan.axes) != 2 or plan.registers or not _at_once(plan, THREADS // (32 * plan.num_warps)):
        return None
    first, rows = plan.axes
    if rows.name != "r" or not rows.looped or rows.block // 2 < _LEAST:
        return None
    return attrs.evolve(plan, axes=(first, attrs.evolve(rows, block=rows.block // 2)))
