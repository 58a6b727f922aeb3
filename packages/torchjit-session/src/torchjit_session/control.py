"""Functions that a program calls to steer its own compilation: `disable`, `graph_break`, `is_compiling` ..."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

import torch
import torch.utils._pytree as pytree

import torchjit_fx
from torchjit_core.kinds import as_switch
from torchjit_core.reasons import UserTypeError, reason
from torchjit_core.user_errors import told, wrong_type
from torchjit_session.modules import class_for_libraries

__all__ = [
    "ALLOWED_IN_GRAPH",
    "CONSTANT_RESULTS",
    "DISALLOWED",
    "FORBIDDEN",
    "OWN_CONSTANTS",
    "SUBSTITUTED",
    "allow_in_graph",
    "assume_constant_result",
    "disallow_in_graph",
    "error_on_graph_break",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "nested_compile_region",
    "nonstrict_trace",
    "skip_frame",
    "substitute_in_graph",
    "wrap_numpy",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_P = ParamSpec("_P")
_R = TypeVar("_R")

BAD_SUBSTITUTE = reason(
    "TJ-API-016",
    "a function that cannot stand for another one",
    "substitute_in_graph takes a function and decorates a Python function with the same parameters.",
    "skip_signature_check=True accepts other parameters.",
)

NO_FUNCTION = reason(
    "TJ-API-045",
    "what was marked cannot be called",
    "allow_in_graph, assume_constant_result, disallow_in_graph, forbid_in_graph, nonstrict_trace, nested_compile_region and wrap_numpy "
    "take a function.",
)

ALLOWED_IN_GRAPH: set[Callable[..., Any]] = set()
OWN_CONSTANTS: frozenset[Callable[..., Any]] = frozenset({importlib.util.find_spec, class_for_libraries})
"""What is installed does not change while a process runs, nor what a compiled module says of its class."""
CONSTANT_RESULTS: set[Callable[..., Any]] = {*OWN_CONSTANTS}
DISALLOWED: set[Callable[..., Any]] = set()
FORBIDDEN: set[Callable[..., Any]] = set()
SUBSTITUTED: dict[Callable[..., Any], object] = {}


def graph_break(msg: str = "") -> None:
    """End the graph here; outside compiled code this does nothing. `msg` is shown in reports."""


def skip_frame(msg: str = "") -> None:
    """End the graph here, as `graph_break` does, which keeps what comes before and after compiled.

    Upstream runs the whole function as plain Python; `disable` does that.
    """


class error_on_graph_break:  # named as torch names it, like torch.no_grad
    """In a `with` block or on a function: are graph breaks errors in compiled code? The innermost one counts.

    `fullgraph=True` allows no break anywhere, whatever this says.

    Args:
        error_on_graph_break: raise `torchjit.exc.Unsupported` where the graph would break, or break.
    """

    def __init__(self, error_on_graph_break: bool) -> None:
        if as_switch(error_on_graph_break) is None:
            raise wrong_type("error_on_graph_break", error_on_graph_break, "True or False")
        self.error = bool(error_on_graph_break)
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


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[_F], _F]:
    """A decorator: where captured code calls `original_fn`, the decorated Python function is interpreted instead.

    Args:
        original_fn: a function that capture cannot look into, such as one of a C extension.
        can_constant_fold_through: where all arguments are constants, call `original_fn` itself at capture: it has no effects, and its
            result follows from its arguments.
        skip_signature_check: accept a function whose parameters are named or ordered otherwise.

    Raises:
        UserError: `original_fn` is a class or cannot be called, or the signatures differ.
    """
    if isinstance(original_fn, type) or not callable(original_fn):
        raise UserTypeError(BAD_SUBSTITUTE, f"{told(original_fn)} is no function")

    def register(substitute: _F) -> _F:
        if not callable(substitute):
            raise UserTypeError(BAD_SUBSTITUTE, f"{told(substitute)} is no function")
        if not skip_signature_check and _parameters(original_fn) not in (None, _parameters(substitute)):
            raise UserTypeError(BAD_SUBSTITUTE, f"{told(original_fn)} and {told(substitute)} have other parameters")
        SUBSTITUTED[original_fn] = _foldable(original_fn, substitute) if can_constant_fold_through else substitute
        return substitute

    return register


def _foldable(original: Callable[..., Any], substitute: Callable[..., Any]) -> object:
    import torchjit_vm  # noqa: PLC0415  # the interpreter: an import of torchjit does without it

    return torchjit_vm.Foldable(original, substitute)


def _parameters(fn: Callable[..., Any]) -> list[tuple[str, Any]] | None:
    try:
        return [(p.name, p.kind) for p in inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):  # a C function that does not tell
        return None


def allow_in_graph(fn: _F) -> _F:
    """Put calls of `fn` into the graph as they are. `fn` must work on tensors only and have no side effect."""
    _named_function("allow_in_graph", fn)
    ALLOWED_IN_GRAPH.add(fn)
    return fn


def assume_constant_result(fn: _F) -> _F:
    """Take what `fn` returns at capture for constant. The caller answers for it: no guard is made."""
    _named_function("assume_constant_result", fn)
    CONSTANT_RESULTS.add(fn)
    return fn


def disallow_in_graph(fn: _F) -> _F:
    """Break the graph at calls of `fn`, which may be a function of torch's, such as `torch.sub`. What is compiled already stays."""
    _named_function("disallow_in_graph", fn)
    DISALLOWED.add(fn)
    return fn


def forbid_in_graph(fn: _F) -> _F:
    """Raise `torchjit.exc.UserError` where compiled code calls `fn`. What is compiled already stays."""
    _named_function("forbid_in_graph", fn)
    FORBIDDEN.add(fn)
    return fn


def _named_function(name: str, fn: object) -> None:
    if not callable(fn):
        raise UserTypeError(NO_FUNCTION, f"{name} got {told(fn)}")


def nonstrict_trace(traceable_fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function whose calls go into the graph as they are, as with `allow_in_graph`; `traceable_fn` itself is left alone.

    Raises:
        UserError: it cannot be called.
    """
    _named_function("nonstrict_trace", traceable_fn)

    @functools.wraps(traceable_fn)
    def traced(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return traceable_fn(*args, **kwargs)

    ALLOWED_IN_GRAPH.add(traced)
    return traced


@overload
def nested_compile_region(
    fn: _F, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Callable[..., Any] | None = None
) -> _F: ...
@overload
def nested_compile_region(
    fn: None = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Callable[..., Any] | None = None
) -> Callable[[_F], _F]: ...
def nested_compile_region(
    fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Callable[..., Any] | None = None
) -> Any:
    """Upstream's mark of a block that is compiled once and reused. Here equal blocks are found in the graph that calls them, marked or not, and
    from five on a few are compiled for all (option `repeated_blocks`): the mark is accepted and changes nothing.

    Raises:
        UserError: `fn` cannot be called.
    """
    if fn is None:
        return lambda marked: nested_compile_region(marked)
    _named_function("nested_compile_region", fn)
    return fn


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy arrays as one of tensors, also in lists and dicts. Compiled, what NumPy computes is
    part of the graph. The tensors are on the CPU and require no gradients, as `Tensor.numpy` wants them.

    Raises:
        UserError: `fn` cannot be called.
    """
    _named_function("wrap_numpy", fn)

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(torch.Tensor, _to_array, (args, kwargs))
        return pytree.tree_map(_to_tensor, fn(*args, **kwargs))

    return wrapped


def _to_array(tensor: torch.Tensor) -> Any:
    return tensor.numpy()


def _to_tensor(value: Any) -> Any:
    numpy = sys.modules.get("numpy")
    return torch.as_tensor(value) if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)) else value
