"""What happens when a graph raises: the region's own code runs in its place, in plain Python, and shows what is true.

The program's effects come after the graph, so nothing of the region has happened yet. See docs/design/0028-graphs-that-raise.md.
"""

from __future__ import annotations

import functools
import signal
import traceback
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, final

import torch

from torchjit.counters import counters
from torchjit_core.events import emit
from torchjit_core.reasons import reason
from torchjit_core.writing import nothing_written

if TYPE_CHECKING:
    from torchjit.site import Site, Specialization

__all__ = ["MOST_CAUGHT", "GraphRaised", "OnRaise"]

RAISED_ALONE = reason(
    "TJ-API-023",
    "a graph raises where plain Python does not",
    "The region's own code ran in place of the graph and returned, three times. The region runs eagerly from now on.",
    "If nothing in the program caught the error, this is a bug in torchjit or in a backend: on_error='raise' shows where it is raised.",
)
_MOST_RETURNS = 3
MOST_CAUGHT = 3
"""Errors in a region with a `try` around operations that may raise, until those break the graph."""

_torch: Any = torch
_OF_OPERATIONS: frozenset[type[BaseException]] = frozenset(
    {
        RuntimeError,
        IndexError,
        ValueError,
        TypeError,
        AssertionError,
        NotImplementedError,
        ZeroDivisionError,
        OverflowError,
        _torch.linalg.LinAlgError,
        torch.OutOfMemoryError,
    }
)
"""What operations raise. Exactly these: subclasses, of which the program may raise one in a signal handler, are somebody else's."""
_OF_DEVICES = ("CUDA error", "CUDA driver error", "device-side assert", "illegal memory access", "Triton Error")
"""After such an error nothing runs on the device any more."""


@final
class GraphRaised(Exception):
    """The graph of a region raised `error`, before anything outside of the graph has changed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@final
class OnRaise:
    """What the front door asks about an exception of an entry's target.

    Args:
        site: whose entry it is.
        made: the specialisation of the entry.
        is_graph: the target is the graph itself; else it raises `GraphRaised` for the graph.
        catches: the graph holds operations whose errors the program may catch.
        in_blocks: it holds some in blocks that seldom catch errors.
        writes: it writes to memory from outside.
    """

    __slots__ = ("catches", "in_blocks", "is_graph", "made", "site", "writes")

    def __init__(
        self, site: Site, made: Specialization, *, is_graph: bool, catches: bool, in_blocks: bool, writes: bool
    ) -> None:
        self.site, self.made, self.is_graph = site, made, is_graph
        self.catches, self.in_blocks, self.writes = catches, in_blocks, writes

    def of(self, site: Site, made: Specialization) -> OnRaise:
        """The same for an entry of another site with this target."""
        return OnRaise(
            site, made, is_graph=self.is_graph, catches=self.catches, in_blocks=self.in_blocks, writes=self.writes
        )

    def __call__(self, error: BaseException) -> BaseException | Callable[[], None]:
        """The exception to raise, or what is called once the region's own code has returned."""
        if not self.is_graph:
            if type(error) is not GraphRaised:
                return error
            error = error.error
        if self.writes and not nothing_written(error):
            return error
        # Tensors that hooks were given are given once more. Past a `try` of the program nothing is worse.
        if not _is_of_an_operation(error) or not (self.catches or _no_hooks()):
            return error
        if self.catches:
            self._count()
        counters["rerun"][self.site.name] += 1
        emit(
            "rerun", function=self.site.name, error=f"{type(error).__name__}: {error}", compile_id=self.made.compile_id
        )
        traceback.clear_frames(error.__traceback__)  # what the graph had made so far needs memory
        return functools.partial(self._returned, error)

    def _count(self) -> None:
        """Where the program catches errors again and again, a graph that ends before is faster."""
        site = self.site
        if not site.owner.fullgraph:
            site.caught += 1
            if site.caught >= MOST_CAUGHT:
                site.make_anew(self.made)

    def _returned(self, error: BaseException) -> None:
        """Plain Python did not raise, or the program caught it."""
        if self.catches or self.in_blocks or type(error) is torch.OutOfMemoryError:
            return
        site = self.site
        site.raised_alone += 1
        if site.owner.on_error == "raise":
            raise error
        if site.raised_alone == _MOST_RETURNS:
            site.distrust(RAISED_ALONE, f"{site.name}: {type(error).__name__}: {error}")


def _is_of_an_operation(error: BaseException) -> bool:
    """Did an operation of the graph raise this, rather than the device, or the program in a signal handler?"""
    if type(error) not in _OF_OPERATIONS or any(text in str(error) for text in _OF_DEVICES):
        return False
    handlers = set(_codes_of_signal_handlers())
    return all(frame.f_code not in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _no_hooks() -> bool:
    """Are no hooks for saved tensors active?"""
    return _torch._C._autograd._top_saved_tensors_default_hooks(False) is None


def _codes_of_signal_handlers() -> Iterator[types.CodeType]:
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        for function in (handler, getattr(handler, "__func__", None), getattr(type(handler), "__call__", None)):  # noqa: B004
            code = getattr(function, "__code__", None)
            if isinstance(code, types.CodeType):
                yield code
