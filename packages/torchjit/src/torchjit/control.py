"""Functions that a program calls to steer its own compilation: `disable`, `graph_break`, `is_compiling` ..."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import torchjit_frame
import torchjit_fx
from torchjit_core.reasons import Reason, UserError, reason

__all__ = [
    "ALLOWED_IN_GRAPH",
    "CONSTANT_RESULTS",
    "DISABLED",
    "EXPLICIT_BREAK",
    "SUBSTITUTED",
    "allow_in_graph",
    "assume_constant_result",
    "disable",
    "disabled_reason",
    "error_on_graph_break",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "substitute_in_graph",
]

_F = TypeVar("_F", bound=Callable[..., Any])

DISABLED = reason(
    "TJ-API-010",
    "call of a function under torchjit.disable",
    "The function asked to run as plain Python, so the graph ends before the call and a new one starts after it.",
    "Remove torchjit.disable if the function can be captured.",
)
EXPLICIT_BREAK = reason(
    "TJ-API-011",
    "torchjit.graph_break()",
    "The program asked for a graph break here.",
    "Remove the call when it is no longer needed.",
)

BAD_SUBSTITUTE = reason(
    "TJ-API-016",
    "a function that cannot stand for another one",
    "substitute_in_graph takes a function and decorates a Python function with the same parameters.",
    "skip_signature_check=True accepts other parameters.",
)

_DISABLED = "_torchjit_disabled"

ALLOWED_IN_GRAPH: set[Callable[..., Any]] = set()
CONSTANT_RESULTS: set[Callable[..., Any]] = {importlib.util.find_spec}
"""What is installed does not change while a process runs."""
SUBSTITUTED: dict[Callable[..., Any], Callable[..., Any]] = {}


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Run `fn` as plain Python wherever it is called, also from compiled code.

    Args:
        fn: a function, or None to use this as a decorator with arguments.
        recursive: also what `fn` calls is not compiled; else only `fn` itself.
        reason: for people, shown in reports of the graph break.

    Returns:
        A function with the signature of `fn`.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    inner = getattr(fn, "__wrapped__", fn) if isinstance(fn, torchjit_frame.FrontDoor) else fn
    if not recursive:

        @functools.wraps(inner)
        def called_plainly(*args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

        setattr(called_plainly, _DISABLED, reason or "torchjit.disable(recursive=False)")
        # The function itself too, as upstream does: the frame hook meets it when the wrapper calls it.
        setattr(inner, _DISABLED, reason or "torchjit.disable(recursive=False)")
        return called_plainly

    @functools.wraps(inner)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        before = torchjit_frame.set_eager(True)
        try:
            return inner(*args, **kwargs)
        finally:
            torchjit_frame.set_eager(before)

    setattr(disabled, _DISABLED, reason or "torchjit.disable")
    return disabled


def disabled_reason(fn: object) -> Reason | None:
    """Why calls of `fn` must not be captured, or None."""
    if fn is graph_break:
        return EXPLICIT_BREAK
    cls = type(fn)
    # Code of the program that answers for missing attributes is not asked: a metaclass may say yes to everything.
    asks = hasattr(cls, "__getattr__") or isinstance(cls.__getattribute__, FunctionType)
    found = inspect.getattr_static(fn, _DISABLED, None) if asks else getattr(fn, _DISABLED, None)
    return None if found is None else DISABLED


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
