"""What Python 3.14 changes in the bytecode, as `decode`, the module of version differences, will take it in.

Nothing here runs yet: 3.14 is not supported. The tables say what each new instruction becomes in the canonical set and what
goes away, so that the port is a matter of translators; the tests hold them against the interpreters that are supported.

Source: CPython 3.14, Doc/library/dis.rst, Doc/whatsnew/3.14.rst ("CPython bytecode changes"), Python/bytecodes.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

__all__ = ["ADDED", "CHANGED", "REMOVED", "Upcoming"]


@final
@attrs.frozen
class Upcoming:
    """A new instruction.

    Attributes:
        canonical: the canonical instructions that it becomes; empty if it is ignored.
        missing: those of them that have no handler yet.
        note: what has to be known to translate it.
    """

    canonical: tuple[str, ...]
    note: str
    missing: tuple[str, ...] = ()


ADDED: Final[Mapping[str, Upcoming]] = {
    "BUILD_INTERPOLATION": Upcoming(("UNSUPPORTED",), "t-strings (PEP 750): an Interpolation object"),
    "BUILD_TEMPLATE": Upcoming(("UNSUPPORTED",), "t-strings (PEP 750): a Template object"),
    "LOAD_COMMON_CONSTANT": Upcoming(
        ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT"),
        "0 is AssertionError, 1 NotImplementedError, 2 tuple, 3 all, 4 any: the builtins, whatever their names mean by now",
        missing=("LOAD_COMMON_CONSTANT",),
    ),
    "LOAD_FAST_BORROW": Upcoming(("LOAD_FAST",), "borrowing is the interpreter's own affair"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": Upcoming(
        ("LOAD_FAST", "LOAD_FAST"), "indices in four bits each, the first on top"
    ),
    "LOAD_SMALL_INT": Upcoming(("LOAD_SMALL_INT",), "the argument is the number itself", missing=("LOAD_SMALL_INT",)),
    "LOAD_SPECIAL": Upcoming(
        ("LOAD_SPECIAL",),
        "0 __enter__, 1 __exit__, 2 __aenter__, 3 __aexit__; leaves the method and self (or NULL). `with` is COPY 1, LOAD_SPECIAL 1, "
        "two SWAPs, LOAD_SPECIAL 0, CALL 0 in place of BEFORE_WITH",
        missing=("LOAD_SPECIAL",),
    ),
    "NOT_TAKEN": Upcoming((), "marks the other branch of a jump, for monitoring"),
    "POP_ITER": Upcoming((), "takes an exhausted iterator off the stack, which the canonical FOR_ITER does itself"),
}
"""New instructions."""

REMOVED: Final[Mapping[str, str]] = {
    "BEFORE_ASYNC_WITH": "LOAD_SPECIAL and CALL",
    "BEFORE_WITH": "LOAD_SPECIAL and CALL",
    "BINARY_SUBSCR": "BINARY_OP 26",
    "BUILD_CONST_KEY_MAP": "BUILD_MAP over keys that are pushed one by one",
    "LOAD_ASSERTION_ERROR": "LOAD_COMMON_CONSTANT 0",
    "RETURN_CONST": "LOAD_CONST, RETURN_VALUE",
}
"""Instructions of 3.13 that are gone, and what is written in their place."""

CHANGED: Final[Mapping[str, str]] = {
    "BINARY_OP": "26 is a subscript, which becomes the canonical BINARY_SUBSCR",
    "CALL_FUNCTION_EX": "no flag: keywords, or NULL, are always on the stack",
    "END_ASYNC_FOR": "has a jump target, the SEND of its loop",
    "FOR_ITER": "an exhausted iterator leads past END_FOR to POP_ITER: the jump skips two instructions, as in 3.13",
    "SET_FUNCTION_ATTRIBUTE": "16 sets __annotate__ (PEP 649) in place of annotations",
    "WITH_EXCEPT_START": "takes one entry more, the self of __exit__, which lies below the exception",
}
"""Instructions of 3.13 that mean something else."""
