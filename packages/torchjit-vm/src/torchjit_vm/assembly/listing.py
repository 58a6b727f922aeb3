"""Bytecode as data: instructions with symbolic jump targets, and the regions that exception handlers cover."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import TypeAlias, final

import attrs

__all__ = ["NO_POSITION", "Handler", "Instruction", "Item", "Label", "Listing", "Position"]

Position: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""(line, end line, column, end column) as in `co_positions()`."""

NO_POSITION: Position = (None, None, None, None)


@final
class Label:
    """A place between instructions. Labels compare by identity; one stands in a listing at most once."""

    __slots__ = ()


@final
@attrs.frozen
class Instruction:
    """One instruction, with its EXTENDED_ARG prefixes folded in and without its inline caches.

    Attributes:
        name: as in `dis.opname`.
        arg: the whole argument; 0 for a jump (`target` decides) and for instructions that take none.
        target: where a jump goes; None for all others.
        position: source range.
        offset: byte offset of the first unit (the first EXTENDED_ARG, if any) in the code it came from; None if new.
        width: least number of units, EXTENDED_ARG prefixes included. A jump backward over exactly 256 units fits with
            one prefix and without; CPython takes the wide form at times, so this is remembered.
    """

    name: str
    arg: int = 0
    target: Label | None = None
    position: Position = NO_POSITION
    offset: int | None = attrs.field(default=None, eq=False)
    width: int = attrs.field(default=1, eq=False)


@final
@attrs.frozen
class Handler:
    """An entry of the exception table: an exception between `start` and `end` continues at `target`.

    Attributes:
        start, end: the covered range, end exclusive.
        target: the first instruction of the handler.
        depth: the stack is cut to this many values first.
        lasti: push the offset of the raising instruction below the exception.
    """

    start: Label
    end: Label
    target: Label
    depth: int
    lasti: bool


Item: TypeAlias = "Label | Instruction"


@final
@attrs.frozen
class Listing:
    """A whole code object, ready to be edited and assembled again.

    Attributes:
        code: where it came from; names, constants, flags and so on are taken from it.
        items: instructions, and labels that stand before the instruction that follows them.
        handlers: the exception table. Ranges do not overlap; the order is that of `start`.
        stack_size: for `co_stacksize`; None asks the assembler to compute it.
    """

    code: CodeType
    items: tuple[Item, ...]
    handlers: tuple[Handler, ...] = ()
    stack_size: int | None = None

    def instructions(self) -> Iterator[Instruction]:
        """The instructions without the labels."""
        return (item for item in self.items if type(item) is Instruction)

    def __str__(self) -> str:
        """One line per instruction, `label: NAME argument`; labels are numbered in order."""
        names = {item: f"L{n}" for n, item in enumerate(i for i in self.items if type(i) is Label)}
        lines: list[str] = []
        pending: list[str] = []
        for item in self.items:
            if type(item) is Label:
                pending.append(names[item] + ":")
                continue
            assert type(item) is Instruction  # for the type checker: `Item` has two members
            arg = f"to {names[item.target]}" if item.target is not None else str(item.arg)
            lines.append(f"{' '.join(pending):<8}{item.name:<28}{arg}".rstrip())
            pending.clear()
        if pending:
            lines.append(" ".join(pending))
        for h in self.handlers:
            lasti = ", lasti" if h.lasti else ""
            lines.append(f"try {names[h.start]}..{names[h.end]} -> {names[h.target]} depth {h.depth}{lasti}")
        return "\n".join(lines)
