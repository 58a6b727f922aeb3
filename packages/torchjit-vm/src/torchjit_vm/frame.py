"""Frames of the interpreter, and what handlers say to its loop."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from torchjit_vm.decode import Decoded

__all__ = ["NULL", "Completion", "Frame", "Raised", "Signal", "V", "delegate_of", "finish_delegation"]

V = TypeVar("V")
NULL: Final[Any] = None
"""A place on the stack that holds no value; only the instructions that call look at it."""


@final
class Signal(enum.Enum):
    """What a handler tells the loop."""

    RETURN = "return"
    YIELD = "yield"
    GENERATOR = "generator"


@final
class Completion(enum.IntEnum):
    """What the caller's frame does with the value that a frame returns."""

    PUSH = 0
    PUSH_THEN_NULL = 1
    PUSH_INSTEAD = 2
    """Push `Frame.instead`: the object whose `__init__` has run."""
    DISCARD = 3
    REPLACE = 4
    """Push `Frame.instead`, whatever the frame returns."""


@final
class Raised(Exception):
    """The interpreted program raised `value`; `again`: it went through this frame before, whose entry its traceback has."""

    def __init__(self, value: Any, again: bool = False) -> None:
        super().__init__(value)
        self.value = value
        self.again = again


@final
class Frame(Generic[V]):
    """An activation of a code object over values of type V.

    Attributes:
        code: decoded.
        instrs: those of the code, as they are run.
        pc: index of the instruction to run next.
        fast: locals, then cells and free variables (cells as values); None is unbound.
        stack: the value stack; it may hold `NULL`.
        consts: the constants, as values.
        globals: the real module dict of global names.
        function: the function that runs, if there is one.
        namespace: the namespace of a class body or module; None in functions.
        completion, instead: what the caller does with the result.
        result: set when the frame returns or yields.
        suspended: it has yielded, and not returned.
        generator: the generator whose body this is.
        born: the step in which the frame was made.
        handled: the exception that was being handled when the frame was entered.
        on_raise: told of an exception that leaves the frame, if set; it may give a value, or a frame, in the place of the
            frame's result, or raise another exception.
    """

    __slots__ = (
        "born", "code", "completion", "consts", "fast", "function", "generator", "globals",
        "handled", "instead", "instrs", "namespace", "on_raise", "pc", "result", "stack", "suspended",
    )  # fmt: skip

    def __init__(
        self,
        code: Decoded,
        fast: list[V | None],
        consts: list[V],
        globals: dict[str, Any],
        function: V | None = None,
    ) -> None:
        self.code = code
        self.instrs = code.instrs
        self.fast = fast
        self.consts = consts
        self.globals = globals
        self.function = function
        self.pc = 0
        self.stack: list[V] = []
        self.namespace: V | None = None
        self.completion = Completion.PUSH
        self.instead: V = NULL
        self.result: V = NULL
        self.generator: V | None = None
        self.suspended = False
        self.born = 0
        self.handled: V | None = None
        self.on_raise: Callable[[V], V | Frame[V] | None] | None = None

    def forget(self) -> None:
        """Let go of the values, and of the generator, which names its frame: it will not run any more."""
        self.fast.clear()
        self.stack.clear()
        self.instead = self.result = NULL
        self.function = self.namespace = self.generator = self.handled = None
        self.on_raise = None


def delegate_of(frame: Frame[V]) -> V | None:
    """The iterator that a suspended generator's frame takes its items from in `yield from`, or None."""
    names, pc = frame.code.names, frame.pc
    if pc < 2 or pc >= len(names) or names[pc - 1] != "YIELD_VALUE" or names[pc] != "JUMP":
        return None
    sends = names[pc - 2] in ("SEND", "SEND_KEEPING") and frame.code.instrs[pc][1] == pc - 2
    return frame.stack[-1] if sends else None


def finish_delegation(frame: Frame[V]) -> None:
    """Go on behind a `yield from` whose iterator has ended; the caller pushes its result."""
    if frame.code.names[frame.pc - 2] == "SEND":
        del frame.stack[-1]
    frame.pc = frame.code.instrs[frame.pc - 2][1]
