"""From a code object to a `Listing`."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from itertools import chain, islice, repeat
from types import CodeType

from torchjit_vm.assembly.listing import NO_POSITION, Handler, Instruction, Item, Label, Listing
from torchjit_vm.assembly.opcodes import CACHES, EXTENDED_ARG, JUMPS, is_backward
from torchjit_vm.assembly.tables import decode_exception_table

__all__ = ["disassemble"]


def _units(raw: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(first unit, opcode, whole argument, unit after the caches) of each instruction."""
    unit, total = 0, len(raw) // 2
    while unit < total:
        start, arg = unit, raw[2 * unit + 1]
        while raw[2 * unit] == EXTENDED_ARG:
            unit += 1
            if unit == total:
                raise ValueError("the code ends with EXTENDED_ARG")
            arg = arg << 8 | raw[2 * unit + 1]
        code = raw[2 * unit]
        unit += 1 + CACHES[code]
        yield start, code, arg, unit


def disassemble(code: CodeType) -> Listing:
    """Take a code object apart.

    `assemble(disassemble(code))` gives equal `co_code`, `co_exceptiontable` and `co_positions()`.

    Args:
        code: any code object of the running Python. Specialised and instrumented instructions are read in their plain
            form, as `co_code` gives them.

    Raises:
        ValueError: the bytecode is malformed: a jump or table entry does not point to an instruction.
    """
    decoded = list(_units(code.co_code))
    end = len(code.co_code) // 2
    entries = list(decode_exception_table(code.co_exceptiontable))
    targets: dict[int, Label] = {}

    def label(unit: int) -> Label:
        return targets.setdefault(unit, Label())

    jumps = {
        start: label(after - arg if is_backward(op) else after + arg)
        for start, op, arg, after in decoded
        if op in JUMPS
    }
    handlers = tuple(Handler(label(s), label(e), label(t), depth, lasti) for s, e, t, depth, lasti in entries)
    positions = list(islice(chain(code.co_positions(), repeat(NO_POSITION)), end))  # a table may stop early
    items: list[Item] = []
    pending = dict(targets)
    for start, op, arg, after in decoded:
        if (here := pending.pop(start, None)) is not None:
            items.append(here)
        target = jumps.get(start)
        width = after - start - CACHES[op]
        items.append(Instruction(dis.opname[op], 0 if target else arg, target, positions[start], 2 * start, width))
    if (last := pending.pop(end, None)) is not None:
        items.append(last)
    if pending:
        raise ValueError(f"{code.co_qualname}: no instruction starts at byte {2 * min(pending)}, which a jump goes to")
    return Listing(code, tuple(items), handlers, code.co_stacksize)
