"""The registry of the corpus: small programs, each with the number of graph breaks that it is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vm_lazy import Num

__all__ = ["CORPUS", "N", "Program", "program"]

N = Num


class Program(NamedTuple):
    """A program, its arguments, and how many breaks its capture has (None: some, restarts make it vary)."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    breaks: int | None


CORPUS: list[Program] = []


def program(*args: Any, breaks: int | None = 0) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a program."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        CORPUS.append(Program(function, args, breaks))
        return function

    return register
