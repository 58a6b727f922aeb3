"""Functions that a program calls to steer its own compilation: `disable`, `graph_break`, `is_compiling` ..."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torchjit_fx
from torchjit_core.reasons import UserError, reason

__all__ = [
    "ALLOWED_IN_GRAPH",
    "CONSTANT_RESULTS",
    "SUBSTITUTED",
    "allow_in_graph",
    "assume_constant_result",
    "error_on_graph_break",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "substitute_in_graph",
]

_F = TypeVar("_F", bound=Callable[..., Any])

BAD_SUBSTITUTE = reason(
    "TJ-API-016",
    "a function that cannot stand for another one",
    "substitute_in_graph takes a function and decorates a Python function with the same parameters.",
    "skip_signature_check=True accepts other parameters.",
)

ALLOWED_IN_GRAPH: set[Callable[..., Any]] = set()
CONSTANT_RESULTS: set[Callable[..., Any]] = {importlib.util.find_spec}
"""What is installed does not change while a process runs."""
SUBSTITUTED: dict[Callable[..., Any], Callable[..., Any]] = {}


def graph_break(msg: str = "") -> None:
    """End the graph here; outside compiled code this does nothing. `msg` is shown in reports."""


class error_on_graph_break:  # named as torch names it, like torch.no_grad
    """In a `with` block or on a function: are graph breaks errors in compiled code? The innermost one counts.

    `fullgraph=True` allows no break anywhere, whatever this says.

    Args:
        error: raise `torchjit.exc.Unsupported` where the graph would break, or break.
    """

    def __init__(self, error: bool) -> None:
        self.error = error
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(torchjit_fx.set_breaks_are_errors(self.error))

    def __exit__(self, *exception: object) -> None:
        torchjit_fx.set_breaks_are_errors(self._before.pop())

    def __call__(self, function: _F) -> _F:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with error_on_graph_break(self.error):
                return function(*args, **kwargs)

        return cast(_F, called)


def is_compiling() -> bool:
    """True inside code that torchjit captures (it is interpreted as True there), False in plain Python."""
    return False


def is_dynamo_compiling() -> bool:
    """The same as `is_compiling`, under upstream's other name."""
    return False


def is_exporting() -> bool:
    """False: nothing is exported here."""
    return False


def substitute_in_graph(original_fn: Callable[..., Any], *, skip_signature_check: bool = False) -> Callable[[_F], _F]:
    """A decorator: where captured code calls `original_fn`, the decorated Python function is interpreted instead.

    Args:
        original_fn: a function that capture cannot look into, such as one of a C extension.
        skip_signature_check: accept a function whose parameters are named or ordered otherwise.

    Raises:
        UserError: `original_fn` is a class or cannot be called, or the signatures differ.
    """
    if isinstance(original_fn, type) or not callable(original_fn):
        raise UserError(BAD_SUBSTITUTE, f"{original_fn!r} is no function")

    def register(substitute: _F) -> _F:
        if not skip_signature_check and _parameters(original_fn) not in (None, _parameters(substitute)):
            raise UserError(BAD_SUBSTITUTE, f"{original_fn!r} and {substitute!r} have other parameters")
        SUBSTITUTED[original_fn] = substitute
        return substitute

    return register


def _parameters(fn: Callable[..., Any]) -> list[tuple[str, Any]] | None:
    try:
        return [(p.name, p.kind) for p in inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):  # a C function that does not tell
        return None


def allow_in_graph(fn: _F) -> _F:
    """Put calls of `fn` into the graph as they are. `fn` must work on tensors only and have no side effect."""
    ALLOWED_IN_GRAPH.add(fn)
    return fn


def assume_constant_result(fn: _F) -> _F:
    """Take what `fn` returns at capture for constant. The caller answers for it: no guard is made."""
    CONSTANT_RESULTS.add(fn)
    return fn
