"""Binding arguments to the slots of a function."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

__all__ = ["bind", "import_from_real"]


def bind(function: FunctionType, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Any]:
    """Bind arguments to slots in the order of `co_varnames`.

    Raises:
        TypeError: as the call would, with CPython's own text.
    """
    code = function.__code__
    simple = not kwargs and not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if simple and len(args) == code.co_argcount and code.co_kwonlyargcount == 0:
        return list(args)
    # A twin with the same signature and an empty body lets CPython bind and word the errors.
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    rest = code.co_varnames[len(names) : len(names) + 2]
    positional = [*names[: code.co_posonlyargcount], "/"] if code.co_posonlyargcount else []
    positional += names[code.co_posonlyargcount : code.co_argcount]
    at = 0
    if code.co_flags & inspect.CO_VARARGS:
        positional.append("*" + rest[at])
        names.append(rest[at])
        at += 1
    elif code.co_kwonlyargcount:
        positional.append("*")
    positional += code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        positional.append("**" + rest[at])
        names.append(rest[at])
    renamed = {n: f"_{i}" for i, n in enumerate(names) if not n.isidentifier()}
    text = f"lambda {', '.join(renamed.get(p, p) for p in positional)}: [{', '.join(renamed.get(n, n) for n in names)}]"
    twin = eval(text)
    twin.__code__ = twin.__code__.replace(co_name=code.co_name, co_qualname=code.co_qualname)
    twin.__qualname__ = function.__qualname__
    twin.__defaults__, twin.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    bound: list[object] = twin(*args, **kwargs)
    return bound


def import_from_real(module: object, name: str) -> Any:
    """What IMPORT_FROM gives for a real module.

    Raises:
        ImportError: as this Python words it.
    """
    namespace: dict[str, object] = {"__builtins__": {"__import__": lambda *_: module}}
    exec(f"from module import {name}", namespace)
    return namespace[name]
