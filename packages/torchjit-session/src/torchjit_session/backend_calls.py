"""Calls of backends: whose they are, what they return, and one at a time."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch

import torchjit_aot
from torchjit_core.forks import new_lock
from torchjit_core.reasons import UserTypeError, reason
from torchjit_core.turns import others_may_go_on
from torchjit_core.user_errors import told

__all__ = ["Backend", "GraphRaised", "Runs", "aot_eager", "call_backend", "is_ours", "runs_of", "with_arguments"]

Backend: TypeAlias = Callable[..., Callable[..., Any]]
"""`backend(gm, example_inputs) -> callable`; the callable takes the inputs positionally and returns a sequence."""

RETURNS_NO_CALLABLE = reason(
    "TJ-API-008",
    "the backend returned nothing that can be called",
    "A backend is given a captured graph and example inputs, and returns what computes the graph.",
    "Return gm.forward to run the graph as it is, or a function of its inputs that returns a sequence of its outputs.",
)
NO_ARGUMENTS = reason(
    "TJ-API-043",
    "this backend takes no mode or options",
    "A backend of your own is called as backend(gm, example_inputs, mode=..., options=...) where compile was given these.",
    "Give the function the keyword, or leave mode and options out.",
)


_OURS = ("torchjit.backends", "torchjit_backends.pipeline", "torchjit_backends.later", __name__)


@final
class GraphRaised(Exception):
    """The graph of a region raised `error`, before anything outside of the graph has changed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def aot_eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """AOT autograd, its graphs run by eager ops."""
    return torchjit_aot.compile(gm, example_inputs, compiler=torchjit_aot.run_eagerly)


def is_ours(compiler: Backend) -> bool:
    """Is it a backend of this package, and not one that somebody registered or passed?"""
    return getattr(compiler, "__module__", None) in _OURS


@final
@attrs.frozen
class Runs:
    """How what a backend makes runs beside eager code; an attribute `runs` of the backend.

    Attributes:
        draws_as_eager: its random numbers are those of eager code.
        records: it records CUDA graphs, which rest on the order of calls.
    """

    draws_as_eager: bool
    records: bool


def runs_of(compiler: Backend) -> Runs | None:
    """The same, of somebody else's backend with what is not known; None for those of ours that nobody takes for their speed."""
    found = getattr(compiler, "runs", None)
    if isinstance(found, Runs):
        return found
    return None if is_ours(compiler) else Runs(draws_as_eager=False, records=False)


def call_backend(compiler: Backend, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """What the backend makes of a graph. While one of somebody else works, other threads may capture; it is called once at a time.

    Raises:
        UserError: it returned nothing that can be called.
        Exception: whatever it raises.
    """
    if is_ours(compiler):
        return compiler(gm, example_inputs)
    with others_may_go_on(), _alone(compiler):
        made = compiler(gm, example_inputs)
    if not callable(made):
        name = getattr(compiler, "__qualname__", None) or type(compiler).__qualname__
        raise UserTypeError(RETURNS_NO_CALLABLE, f"backend {name} returned {told(made)}")
    return made


def with_arguments(compiler: Backend, mode: str | None, options: Mapping[str, Any] | None) -> Backend:
    """A backend of somebody else's that is given these, as keywords `mode` and `options`, where they say anything.

    Raises:
        UserError: it does not take them.
    """
    keywords: dict[str, Any] = {}
    if mode is not None and mode != "default":
        keywords["mode"] = mode
    if options:
        keywords["options"] = dict(options)
    if not keywords:
        return compiler
    try:
        inspect.signature(compiler).bind(None, None, **keywords)
    except TypeError as error:
        name = getattr(compiler, "__qualname__", None) or type(compiler).__qualname__
        raise UserTypeError(NO_ARGUMENTS, f"backend {name}: {error}") from None
    except ValueError:  # a C function that does not tell
        pass
    return functools.partial(compiler, **keywords)


_locks: weakref.WeakKeyDictionary[Backend, Any] = weakref.WeakKeyDictionary()
_lock = new_lock()  # of backends that no dictionary takes
_inside = threading.local()


@contextlib.contextmanager
def _alone(compiler: Backend) -> Iterator[None]:
    """No other thread is in this backend. A thread that is in another one waits for nobody, who might be waiting for it."""
    if getattr(_inside, "any", False):
        yield
        return
    try:
        lock = _locks.setdefault(compiler, new_lock())
    except TypeError:  # it cannot be hashed or referred to weakly
        lock = _lock
    _inside.any = True
    try:
        with lock:
            yield
    finally:
        _inside.any = False
