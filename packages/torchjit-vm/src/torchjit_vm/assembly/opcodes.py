"""What differs between CPython versions, as far as laying out bytecode is concerned.

Everything else in this package works from the tables below. A new Python needs a look at `LOCATIONS_MERGED`,
`PAIRS` and the names in `resume.py`; the rest comes from the running interpreter's own `dis` and `opcode` modules.
"""

from __future__ import annotations

import dis
import opcode
import sys
from typing import Any, Final

__all__ = [
    "CACHES",
    "CHECKED_LOAD",
    "EXTENDED_ARG",
    "FREE_OPS",
    "JUMPS",
    "LOCALS_OPS",
    "LOCATIONS_MERGED",
    "MAX_PAIRED",
    "NO_FALLTHROUGH",
    "OPCODES",
    "PAIRS",
    "PLAIN_LOADS",
    "is_backward",
    "jump_if_true",
]

OPCODES: Final[dict[str, int]] = {name: code for name, code in dis.opmap.items() if code < 256}
"""Opcode number by name, real instructions only: the compiler's pseudo-instructions lie above 255."""

EXTENDED_ARG: Final = OPCODES["EXTENDED_ARG"]

LOCATIONS_MERGED: Final = sys.version_info >= (3, 12)
"""Does the compiler write one location entry for a run of equal locations (3.12), or one per instruction (3.11)?"""

CHECKED_LOAD: Final = "LOAD_FAST_CHECK" if "LOAD_FAST_CHECK" in OPCODES else "LOAD_FAST"
"""Loads a local and raises if it is unbound. Plain LOAD_FAST does so on 3.11 only; later it is undefined behaviour."""

PLAIN_LOADS: Final = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW"})


def _cache_table() -> tuple[int, ...]:
    """Number of inline cache units (2 bytes each) that follow each opcode. A list until 3.12, by name from 3.13."""
    table: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]  # there is no public form before 3.13
    if isinstance(table, dict):
        return tuple(int(table.get(dis.opname[code], 0)) for code in range(256))
    return tuple(int(table[code]) for code in range(256))


CACHES: Final = _cache_table()

JUMPS: Final = frozenset(code for code in dis.hasjrel if code < 256)
"""Opcodes with a relative jump target. CPython 3.11 and later have no absolute jumps."""

_BACKWARD: Final = frozenset(
    code for code in JUMPS if "BACKWARD" in dis.opname[code] or code == OPCODES.get("END_ASYNC_FOR")
)

NO_FALLTHROUGH: Final = frozenset(
    OPCODES[name]
    for name in (
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "INTERPRETER_EXIT",
    )
    if name in OPCODES
)
"""Opcodes after which the next instruction does not run."""

FREE_OPS: Final = frozenset(code for code in dis.hasfree if code < 256)
LOCALS_OPS: Final = frozenset(code for code in dis.haslocal if code < 256)
"""Opcodes whose argument is an index (or two packed ones, see `PAIRS`) into locals + cells + free variables."""

PAIRS: Final[dict[str, tuple[str, str]]] = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST_BORROW", "LOAD_FAST_BORROW"),
}
"""Instructions that stand for two (3.13 and later); their argument holds two indices of four bits, the first on top."""

MAX_PAIRED: Final = 15


def is_backward(code: int) -> bool:
    """Does the jump subtract its argument?"""
    return code in _BACKWARD


def jump_if_true() -> str:
    """Name of the forward jump that pops an exact bool."""
    return "POP_JUMP_IF_TRUE" if "POP_JUMP_IF_TRUE" in OPCODES else "POP_JUMP_FORWARD_IF_TRUE"
