"""A region: a stretch of one code object that is captured as a unit, and how its flat slots are laid out."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import ClassVar, final

import attrs

from torchjit_core.paths import Arg

__all__ = ["Region"]


@final
@attrs.frozen(eq=False)
class Region:
    """Where a capture starts, and what each slot holds.

    At a function's entry (`offset` is None) the slots are the bound arguments in the order of `co_varnames`:
    positional, keyword-only, the `*args` tuple, the `**kwargs` dict. The free variables are those of `function`.

    In the middle of a code object (a continuation) the slots are, in this order:

    1. the stack values from the bottom up, leaving out the entries where `stack` is False (those are NULL);
    2. the plain locals, one per index in `locals`; every other plain local is unbound (or dead);
    3. the cell objects themselves (`types.CellType`), one per index in `cells`: variables of this code that closures
       share, and its free variables;
    4. if `handled`: the exception that is being handled at this point (what `sys.exception()` gives);
    5. if `throwing`: the exception that the instruction at `offset` raises; execution goes to the handler of that
       instruction, or leaves the frame with it. `stack` is then the stack as it was before that instruction (it may
       be deeper than what the handler keeps).

    Indices count as the arguments of `LOAD_FAST` and `LOAD_DEREF` do since 3.11: `co_varnames`, then the cell
    variables that are no arguments, then `co_freevars`.

    Attributes:
        code: the original code object.
        globals: the module dict that its global names refer to.
        function: the function, for an entry region; None for a continuation.
        offset: bytecode offset of the instruction to start at (of its first EXTENDED_ARG, if any); None at the entry.
        stack: per stack entry from the bottom, True for a value, False for NULL.
        locals: indices of the plain locals that have a slot, ascending.
        cells: indices of the locals that hold a cell, ascending.
        handled: an exception is being handled.
        throwing: the region starts with an exception.
        forwarded: if the function passes its `*args` and `**kwargs` on, the names of the positional parameters behind
            them, for people.
    """

    __stored_exactly__: ClassVar = ("globals",)
    """For entries on disk: a dict of a module, not one like it."""

    code: CodeType
    globals: dict[str, object]
    function: FunctionType | None = None
    offset: int | None = None
    stack: tuple[bool, ...] = ()
    locals: tuple[int, ...] = ()
    cells: tuple[int, ...] = ()
    handled: bool = False
    throwing: bool = False
    forwarded: tuple[str, ...] | None = None

    @staticmethod
    def of_function(function: FunctionType, forwarded: tuple[str, ...] | None = None) -> Region:
        """The entry of a function."""
        return Region(function.__code__, function.__globals__, function, forwarded=forwarded)

    @property
    def key(self) -> tuple[object, ...]:
        """What tells regions apart: the identity of code and globals, the place, the layout."""
        return (
            id(self.code), id(self.globals), id(self.function), self.offset,
            self.stack, self.locals, self.cells, self.handled, self.throwing,
        )  # fmt: skip

    @property
    def nslots(self) -> int:
        """How many slots the front door takes."""
        if self.offset is None:
            code = self.code
            flags = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
            return code.co_argcount + code.co_kwonlyargcount + flags
        return sum(self.stack) + len(self.locals) + len(self.cells) + self.handled + self.throwing

    @property
    def slot_names(self) -> tuple[str, ...]:
        """A name for each slot, for people: argument and variable names, `stack0`, `handled`, `thrown`."""
        names = local_names(self.code)
        if self.offset is None:
            return names[: self.nslots]
        stack = tuple(f"stack{i}" for i, filled in enumerate(self.stack) if filled)
        variables = tuple(names[i] for i in self.locals) + tuple(names[i] for i in self.cells)
        return stack + variables + ("handled",) * self.handled + ("thrown",) * self.throwing

    @property
    def slot_paths(self) -> list[Arg]:
        """The path of each slot."""
        plain = self.code.co_argcount + self.code.co_kwonlyargcount
        return [Arg.of(i, n, self.forwarded if i >= plain else None) for i, n in enumerate(self.slot_names)]


def local_names(code: CodeType) -> tuple[str, ...]:
    """The names of all locals in the order of the frame: `co_varnames`, other cell variables, free variables."""
    arguments = set(code.co_varnames)
    return code.co_varnames + tuple(n for n in code.co_cellvars if n not in arguments) + code.co_freevars
