"""The table of canonical instructions: name, declared stack effect, handler."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, final

import attrs

from torchjit_vm.frame import Frame, V

if TYPE_CHECKING:
    from torchjit_vm.frame import Signal
    from torchjit_vm.interpreter import Interpreter

__all__ = ["INSTRUCTIONS", "Handler", "Instruction", "of_top", "opcode", "pushed"]

Handler: TypeAlias = "Callable[[Interpreter[Any], Frame[Any], Any], Frame[Any] | Signal | None]"
"""Runs one instruction. Returns a frame to enter, a signal, or None to go on.

A handler leaves the stack untouched until nothing can fail any more: a graph break sees the state before it.
"""


@final
@attrs.frozen
class Instruction:
    """A canonical instruction.

    Attributes:
        name: as in `dis`, where `dis` has it.
        effect: `inputs -- outputs`, top of the stack last; `x[n]` stands for n entries, an expression over `oparg`.
            A second effect after `| jump:` holds when the instruction jumps.
        handler: the function.
    """

    name: str
    effect: str
    handler: Handler

    def net(self, oparg: Any, *, jump: bool = False) -> int:
        """How many entries it adds to the stack, for this canonical argument."""
        effects = self.effect.split("| jump:")
        before, after = effects[-1 if jump else 0].split("--")
        return _count(after, oparg) - _count(before, oparg)


def _count(side: str, oparg: Any) -> int:
    total = 0
    for entry in filter(None, (part.strip() for part in re.split(r",(?![^\[]*\])", side))):
        match = re.fullmatch(r"\w+(?:\[(.*)\])?", entry)
        if match is None:
            raise ValueError(f"malformed stack effect {side!r}")
        # The expressions are written in this package's source, beside the handlers.
        total += 1 if match[1] is None else int(eval(match[1], {"oparg": oparg}))
    return total


INSTRUCTIONS: dict[str, Instruction] = {}


def pushed(frame: Frame[V], result: V | Frame[V]) -> Frame[V] | None:
    """Push the result of a call; a frame is entered instead, and pushes its own."""
    if type(result) is Frame:
        return result
    frame.stack.append(result)
    return None


def opcode(name: str, effect: str) -> Callable[[Handler], Handler]:
    """Register a handler with its stack effect."""

    def register(handler: Handler) -> Handler:
        if name in INSTRUCTIONS:
            raise ValueError(f"instruction {name} is declared twice")
        INSTRUCTIONS[name] = Instruction(name, effect, handler)
        return handler

    return register


def of_top(operation: str) -> Handler:
    """A handler that puts what an operation of the domain makes of the top of the stack in its place."""

    def run(vm: Interpreter[V], frame: Frame[V], arg: object) -> None:
        frame.stack[-1] = getattr(vm.domain, operation)(frame.stack[-1])

    return run
