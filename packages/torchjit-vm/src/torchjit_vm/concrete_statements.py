"""Statements of CPython over real objects, as functions: their rules and the texts of their errors are this Python's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["class_pattern", "raised_by", "unpacking"]


def _function(name: str, *lines: str) -> Any:
    namespace: dict[str, Any] = {}
    exec("\n    ".join((f"def {name}:", *lines)), namespace)
    return namespace[name.partition("(")[0]]


@functools.cache
def unpacking(before: int, after: int | None = None) -> Callable[[object], list[object]]:
    """`a, b = value` with so many targets, or `a, *b, c = value` with a starred one between them; what each is given."""
    names = [f"v{i}" for i in range(before + (0 if after is None else after + 1))]
    targets = ", ".join("*" * (i == before) + name for i, name in enumerate(names))
    made: Callable[[object], list[object]] = _function(
        "unpack(value)", f"[{targets}] = value", f"return [{', '.join(names)}]"
    )
    return made


@functools.cache
def class_pattern(count: int, names: tuple[str, ...]) -> Callable[[object, object], tuple[object, ...] | None]:
    """`case cls(a, b, name=c)`: what so many positional sub-patterns, and those of attributes, are matched with; None without a match."""
    given = [f"v{i}" for i in range(count + len(names))]
    patterns = [*given[:count], *(f"{name}={value}" for name, value in zip(names, given[count:], strict=True))]
    case = f"        case cls({', '.join(patterns)}): return ({', '.join(given)}{',' if given else ''})"
    made: Callable[[object, object], tuple[object, ...] | None] = _function(
        "match(subject, cls)", "match subject:", case
    )
    return made


def raised_by(exception: BaseException | type[BaseException], *cause: BaseException | None) -> BaseException:
    """What `raise exception`, or `raise exception from cause`, raises. It has a traceback, another one each time."""
    context = exception.__context__ if isinstance(exception, BaseException) else None
    try:
        if cause:
            raise exception from cause[0]
        raise exception
    except BaseException as error:
        error.__context__ = context
        return error
