"""What happens when a graph raises: the region's own code runs in its place, in plain Python, and shows what is true.

The program's effects come after the graph, so nothing of the region has happened yet. See docs/design/0028-graphs-that-raise.md.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import attrs
import torch

from torchjit_core import events
from torchjit_core.handlers import raised_in_handler
from torchjit_core.reasons import InvalidIR, TorchjitError, reason
from torchjit_core.writing import WRITES_FROM, nothing_written
from torchjit_session.backend_calls import GraphRaised
from torchjit_session.counters import counters

if TYPE_CHECKING:
    from torchjit_session.failures import Failures
    from torchjit_session.specialization import Specialization

__all__ = ["MOST_CAUGHT", "OnRaise", "is_of_our_code"]

RAISED_ALONE = reason(
    "TJ-API-023",
    "a graph raises where plain Python does not",
    "The region's own code ran in place of the graph and returned, three times. The region runs eagerly from now on.",
    "If nothing in the program caught the error, this is a bug in torchjit or in a backend: on_error='raise' shows where it is raised.",
)
FAULT = reason(
    "TJ-API-049",
    "a compiled graph has a fault",
    "It raised an error that no operator raises. Where nothing had been written yet, the region's own code ran in its place.",
    "This is a bug in torchjit: please report it with the traceback. backend='eager' runs the captured graph as it is.",
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
_OF_FAULTS: frozenset[type[BaseException]] = frozenset(
    {AttributeError, KeyError, NameError, UnboundLocalError, SystemError, ImportError, InvalidIR}
)
"""What no operator raises."""
_RUN_GRAPHS = ("torchjit_aot.", "torchjit_fx.", "torchjit_inductor.", "torchjit_cudagraphs.")
_OF_DEVICES = ("CUDA error", "CUDA driver error", "device-side assert", "illegal memory access", "Triton Error")
"""After such an error nothing runs on the device any more."""


@final
@attrs.frozen(eq=False, repr=False)
class OnRaise:
    """What the front door asks about an exception of an entry's target.

    Attributes:
        failures: of the region whose entry it is.
        made: the specialisation of the entry.
        is_graph: the target is the graph itself; else it raises `GraphRaised` for the graph.
        catches: the graph holds operations whose errors the program may catch.
        in_blocks: it holds some in blocks that seldom catch errors.
        writes: it writes to memory from outside.
        repeats: the region's own code may run in place of the graph.
    """

    failures: Failures
    made: Specialization
    is_graph: bool
    catches: bool
    in_blocks: bool
    writes: bool
    repeats: bool = True

    def of(self, failures: Failures, made: Specialization) -> OnRaise:
        """The same for an entry of another region with this target."""
        return attrs.evolve(self, failures=failures, made=made)

    def __call__(self, error: BaseException) -> BaseException | Callable[[], None]:
        """The exception to raise, or what is called once the region's own code has returned."""
        if not self.is_graph and self.repeats:
            return self._of_graph(error.error) if type(error) is GraphRaised else error
        return self._of_graph(error)

    def _of_graph(self, error: BaseException) -> BaseException | Callable[[], None]:
        if events.raised_by_listener(error):
            return error
        fault = is_of_our_code(error)
        if not self.repeats or (self.writes and not nothing_written(error)):
            return self._told(error) if fault else error
        # Tensors that hooks were given are given once more. Past a `try` of the program nothing is worse.
        if not (fault or _is_of_an_operation(error)) or not (self.catches or _no_hooks()):
            return error
        if self.catches and not fault:
            self._count()
        counters["rerun"][self.failures.name] += 1
        events.emit(
            "rerun",
            function=self.failures.name,
            error=f"{type(error).__name__}: {error}",
            compile_id=self.made.compile_id,
        )
        if fault:
            return functools.partial(self._dropped, error, "".join(traceback.format_exception(error)))
        traceback.clear_frames(error.__traceback__)  # what the graph had made so far needs memory
        return functools.partial(self._returned, error)

    def _told(self, error: BaseException) -> TorchjitError:
        """A fault where the region's own code cannot run any more."""
        why = "after it had written to an input" if self.writes else "after what cannot be done twice, perhaps"
        told = InvalidIR(FAULT, f"{self.failures.name}, {why}: {type(error).__name__}: {error}")
        told.__cause__ = error
        return told

    def _dropped(self, error: BaseException, text: str) -> None:
        """The region's own code has run in place of a graph with a fault."""
        detail = f"{self.failures.name}: {type(error).__name__}: {error}"
        if self.failures.terms.on_error == "raise":
            raise InvalidIR(FAULT, detail) from error
        self.failures.drop_faulty(self.made, FAULT, f"{detail}\n{text}")

    def _count(self) -> None:
        """Where the program catches errors again and again, a graph that ends before is faster."""
        failures = self.failures
        if not failures.terms.fullgraph:
            failures.caught += 1
            if failures.caught >= MOST_CAUGHT:
                failures.make_anew(self.made)

    def _returned(self, error: BaseException) -> None:
        """Plain Python did not raise, or the program caught it."""
        if self.catches or self.in_blocks or type(error) is torch.OutOfMemoryError:
            return
        failures = self.failures
        failures.raised_alone += 1
        if failures.terms.on_error == "raise":
            raise error
        if failures.raised_alone == _MOST_RETURNS:
            failures.invalidate(RAISED_ALONE, f"{failures.name}: {type(error).__name__}: {error}")


def _is_of_an_operation(error: BaseException) -> bool:
    """Did an operation of the graph raise this, rather than the device, or the program in a signal handler?"""
    if type(error) not in _OF_OPERATIONS or any(text in str(error) for text in _OF_DEVICES):
        return False
    return not raised_in_handler(error)


def is_of_our_code(error: BaseException) -> bool:
    """Is it a fault of a compiled graph: of a class that no operator raises, by generated code or by what runs that?"""
    if type(error) not in _OF_FAULTS or raised_in_handler(error):
        return False
    *_, (frame, _line) = [(None, 0), *traceback.walk_tb(error.__traceback__)]
    if frame is None:
        return False
    return WRITES_FROM in frame.f_globals or str(frame.f_globals.get("__name__", "")).startswith(_RUN_GRAPHS)


def _no_hooks() -> bool:
    """Are no hooks for saved tensors active?"""
    return _torch._C._autograd._top_saved_tensors_default_hooks(False) is None
