"""From a `Listing` to a code object: jump widths, caches, tables, stack size."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any

from torchjit_vm.assembly.listing import Instruction, Label, Listing
from torchjit_vm.assembly.opcodes import CACHES, EXTENDED_ARG, JUMPS, LOCATIONS_MERGED, OPCODES, is_backward
from torchjit_vm.assembly.stack import stack_size
from torchjit_vm.assembly.tables import encode_exception_table, encode_locations

__all__ = ["assemble"]


def assemble(listing: Listing, **changes: Any) -> CodeType:
    """Lay out the instructions and make a code object.

    Args:
        listing: what to assemble.
        changes: further fields for `code.replace`, such as `co_argcount`.

    Raises:
        ValueError: an unknown instruction, a jump without a target or against its direction, a label that is missing
            or stands twice, or a jump or handler range that reaches outside the code.
    """
    layout = _Layout(listing)
    layout.relax()
    entries = [
        (layout.place(h.start), layout.place(h.end), layout.place(h.target), h.depth, h.lasti) for h in listing.handlers
    ]
    size = stack_size(listing) if listing.stack_size is None else listing.stack_size
    fields: dict[str, Any] = {
        "co_code": layout.encode(),
        "co_exceptiontable": encode_exception_table(e for e in entries if e[0] < e[1]),
        "co_linetable": encode_locations(
            layout.runs(), changes.get("co_firstlineno", listing.code.co_firstlineno), merge=LOCATIONS_MERGED
        ),
        "co_stacksize": size,
    }
    return listing.code.replace(**fields, **changes)


def _width(arg: int) -> int:
    """Units that an instruction with this argument takes, EXTENDED_ARG included, caches not."""
    if not 0 <= arg < 1 << 32:
        raise ValueError(f"the argument {arg} does not fit 32 bits")
    return max(1, (arg.bit_length() + 7) // 8)


class _Layout:
    """Instructions with their places, in code units."""

    def __init__(self, listing: Listing) -> None:
        self.instructions: list[Instruction] = []
        self.labels: dict[Label, int] = {}  # index of the instruction that follows
        for item in listing.items:
            if type(item) is Label:
                if item in self.labels:
                    raise ValueError("a label stands twice in the listing")
                self.labels[item] = len(self.instructions)
            elif type(item) is Instruction:
                self.instructions.append(item)
        self.codes = [_opcode(i) for i in self.instructions]
        self.args = [i.arg for i in self.instructions]
        self.widths = [max(i.width, _width(i.arg)) for i in self.instructions]
        self.starts: list[int] = []

    def place(self, label: Label) -> int:
        """The unit that the label stands at."""
        try:
            return self.starts[self.labels[label]]
        except KeyError:
            raise ValueError("a jump or handler goes to a label that is not in the listing") from None

    def relax(self) -> None:
        """Find the least widths that hold all jump distances: start narrow (see `Instruction.width`) and widen until nothing changes."""
        jumps = [k for k, code in enumerate(self.codes) if code in JUMPS]
        while True:
            self._locate()
            stable = True
            for k in jumps:
                self.args[k] = self._distance(k)
                if (width := _width(self.args[k])) > self.widths[k]:
                    self.widths[k] = width
                    stable = False
            if stable:
                return

    def _locate(self) -> None:
        self.starts = [0]
        for width, code in zip(self.widths, self.codes, strict=True):
            self.starts.append(self.starts[-1] + width + CACHES[code])

    def _distance(self, k: int) -> int:
        jump = self.instructions[k]
        if jump.target is None:
            raise ValueError(f"{jump.name} has no target")
        after = self.starts[k + 1]
        place = self.place(jump.target)
        distance = after - place if is_backward(self.codes[k]) else place - after
        if distance < 0:
            raise ValueError(f"{jump.name} at line {jump.position[0]} jumps the wrong way")
        if place >= self.starts[-1]:
            raise ValueError(f"{jump.name} at line {jump.position[0]} jumps behind the last instruction")
        return distance

    def encode(self) -> bytes:
        out = bytearray()
        for code, arg, width in zip(self.codes, self.args, self.widths, strict=True):
            for shift in range(8 * (width - 1), 0, -8):
                out += bytes((EXTENDED_ARG, arg >> shift & 255))
            out += bytes((code, arg & 255))
            out += bytes(2 * CACHES[code])
        return bytes(out)

    def runs(self) -> Sequence[tuple[int, Any]]:
        """(units, position) of each instruction."""
        return [
            (self.starts[k + 1] - self.starts[k], instruction.position)
            for k, instruction in enumerate(self.instructions)
        ]


def _opcode(instruction: Instruction) -> int:
    code = OPCODES.get(instruction.name)
    if code is None or code == EXTENDED_ARG:
        raise ValueError(f"{instruction.name} is no instruction of this Python, or one that the assembler adds itself")
    if instruction.target is not None and code not in JUMPS:
        raise ValueError(f"{instruction.name} is no jump, but has a target")
    return code
