"""Warnings that point at the user's line, not at ours."""

from __future__ import annotations

import functools
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchjit_core.location import CodeLocation

__all__ = ["call_from", "warn_user"]


def warn_user(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """A warning about the innermost line that is neither in a package of this project nor in torch's."""
    level = 1
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and _is_not_the_users(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def _is_not_the_users(module: object) -> bool:
    package = str(module).partition(".")[0]
    return package in ("torch", "torchjit", "contextlib", "concurrent", "threading") or package.startswith("torchjit_")


def call_from(where: CodeLocation, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call `function` from a frame with the file, the line and the module of `where`.

    What it warns of, at any stack level, is then about the line of the program that calls it, falls under the program's filters and is
    shown as often as they say: not once for each place of ours from which the call is tried.
    """
    caller = types.FunctionType(_code_at(where.filename, where.lineno), _globals_of(where.filename))
    return caller(function, args, kwargs)


_CALL = (lambda function, args, kwargs: function(*args, **kwargs)).__code__


@functools.lru_cache(maxsize=1024)
def _code_at(filename: str, lineno: int) -> types.CodeType:
    return _CALL.replace(co_filename=filename, co_firstlineno=lineno)


_module_names: dict[str, str] = {}
"""By file. No more than the name is kept: a module that is deleted, or loaded again, takes its objects with it."""


def _globals_of(filename: str) -> dict[str, Any]:
    """Those of the module that was loaded from a file; for what comes from none, as a cell of a notebook, those of the program."""
    name = _module_names.get(filename)
    if name is None:
        loaded = tuple(sys.modules.items())
        found = (known for known, module in loaded if getattr(module, "__dict__", {}).get("__file__") == filename)
        name = _module_names[filename] = next(found, "__main__")
    module = sys.modules.get(name) or sys.modules["__main__"]
    return vars(module)
