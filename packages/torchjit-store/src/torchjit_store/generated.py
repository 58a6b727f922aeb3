"""Functions that torchjit has generated: emitted code, wrappers, host programs. They are stored as code, with what they read.

Positions in the code are those of the user's file when the entry was stored; see `moved_code`.
"""

from __future__ import annotations

import builtins
import marshal
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, Final

from torchjit_core.writing import WRITES_FROM
from torchjit_store.document import FormatError

__all__ = ["always_kept", "code_bytes", "code_from", "globals_read", "is_generated", "moved_code", "new_globals"]

_ALWAYS: Final = ("__name__", "__emitted__", WRITES_FROM)
"""Globals that other code looks at, too."""


def is_generated(function: FunctionType) -> bool:
    """Has torchjit made its code?"""
    if "__emitted__" in function.__globals__ or function.__code__.co_filename.startswith("<torchjit "):
        return True
    return "__torchjit_source__" in function.__dict__


def globals_read(code: CodeType, namespace: dict[str, Any]) -> Iterator[str]:
    """The names in a function's globals that it, or a function in it, may read."""
    yield from (name for name in code.co_names if name in namespace)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from globals_read(constant, namespace)


def always_kept(namespace: dict[str, Any]) -> list[str]:
    """Names of globals that are kept for whoever looks at frames."""
    return [name for name in _ALWAYS if name in namespace]


def new_globals() -> dict[str, Any]:
    """Globals as `exec` would begin them."""
    return {"__builtins__": builtins.__dict__}


def code_bytes(code: CodeType) -> bytes:
    """The code for `code_from`.

    Raises:
        ValueError: it has a constant that no compiler makes.
    """
    return marshal.dumps(code)


def code_from(data: bytes) -> CodeType:
    """The code again. Python itself trusts the bytes: the caller has verified whose they are.

    Raises:
        FormatError: it is no code.
    """
    try:
        found = marshal.loads(data)
    except (EOFError, ValueError, TypeError) as error:
        raise FormatError("damaged code") from error
    if not isinstance(found, CodeType):
        raise FormatError("no code")
    return found


def moved_code(code: CodeType, moved: Callable[[str, int], tuple[str, int]]) -> CodeType:
    """The code with its file and lines where the user's function is now. Positions count from the first line."""
    filename, line = moved(code.co_filename, code.co_firstlineno)
    if (filename, line) == (code.co_filename, code.co_firstlineno):
        return code
    return _at(code, filename, line - code.co_firstlineno)


def _at(code: CodeType, filename: str, further: int) -> CodeType:
    constants = tuple(_at(c, filename, further) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=filename, co_firstlineno=code.co_firstlineno + further, co_consts=constants)
