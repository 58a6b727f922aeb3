"""What letting go of a suspended generator does: CPython raises `GeneratorExit` at its `yield`."""

from __future__ import annotations

import builtins
import inspect

from torchjit_vm.capture.values import GeneratorValue
from torchjit_vm.decode import Decoded

__all__ = ["must_close"]

_MOVES = frozenset({"PUSH_EXC_INFO", "CHECK_EXC_MATCH", "COPY", "POP_EXCEPT", "POP_TOP", "SWAP"})
"""What a handler does that finds out that it does not apply."""


def must_close(generator: GeneratorValue) -> bool:
    """Would CPython run more of its code when it lets go of this generator: is it suspended inside a `try` or `with`?

    An `except` of builtin exceptions other than `GeneratorExit` and its bases does not apply and runs nothing.
    """
    coroutine = generator.frame.code.code.co_flags & inspect.CO_COROUTINE
    if coroutine and not (generator.started or generator.finished):
        return True  # a warning says that it was never awaited
    if not generator.started or generator.finished or generator.running:
        return False
    code, at = generator.frame.code, generator.frame.pc - 1
    for _ in range(len(code.names)):
        row = code.handler_of(at)
        if row is None or code.names[row.target] == "STOPITERATION_ERROR":
            return False
        if code.names[row.target] == "CLEANUP_THROW":  # of a `yield from`, which adds nothing
            at = row.target
            continue
        raised = _passes(code, row.target, generator.frame.globals)
        if raised is None:
            return True
        at = raised
    return True


def _passes(code: Decoded, at: int, names: dict[str, object]) -> int | None:
    """Where a handler raises `GeneratorExit` again without having done anything; None if it may do something."""
    while True:
        name, argument = code.names[at], code.instrs[at][1]
        if name == "RERAISE":
            return at
        if name == "LOAD_GLOBAL":
            kind = getattr(builtins, str(argument), None)
            if argument in names or not isinstance(kind, type) or not issubclass(kind, BaseException):
                return None
            if issubclass(GeneratorExit, kind):
                return None
        elif name == "POP_JUMP_IF_FALSE":
            at = argument
            continue
        elif name not in _MOVES:
            return None
        at += 1
