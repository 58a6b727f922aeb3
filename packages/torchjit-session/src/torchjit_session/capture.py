"""One capture of a region: the VM interprets it over a tensor domain, whose graphs go to the backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import attrs
import torch

import torchjit_fx.domain  # with all that captures: see `loading`
import torchjit_guards
import torchjit_vm
from torchjit_core import events
from torchjit_core.failures import has_no_memory
from torchjit_core.reasons import GraphBreak, TorchjitError, reason
from torchjit_core.user_errors import BackendCompilerFailed, Unsupported
from torchjit_frame import FrontDoor, unhooked
from torchjit_report.cures import cures
from torchjit_session.backend_calls import aot_eager, call_backend, is_ours
from torchjit_session.capture_policy import capture_policy, fx_settings
from torchjit_session.function_marks import Asked
from torchjit_session.interrupts import CompilationScope
from torchjit_session.terms import Terms
from torchjit_vm.capture.api import Captured, capture

__all__ = ["CaptureOrigin", "hand_over", "interpret"]

BACKEND_FAILED = reason(
    "TJ-API-022",
    "the backend raised while it compiled a graph",
    "The graph was captured; the compiler that it was given to failed. Its own error is the cause of this one.",
    "Try backend='eager' to see whether capture alone works; on_error='eager' falls back to eager.",
)


@final
@attrs.frozen(eq=False, repr=False)
class CaptureOrigin:
    """What a capture has made an entry of, for its form on disk.

    Attributes:
        captured: of the VM.
        relied_on: user code that ran meanwhile and that no guard is about, by id; what runs later, in the compilation of a backward, is added.
        asked: the functions about which it asked whether they are marked.
    """

    captured: Captured
    relied_on: dict[int, Any]
    asked: Asked


def interpret(
    region: torchjit_vm.Region,
    slots: tuple[Any, ...],
    terms: Terms,
    history: torchjit_guards.SizeHistory,
    graphs: list[torch.fx.GraphModule],
    compile_graph: Callable[..., Callable[..., Any]],
    continuations: Callable[[torchjit_vm.Region], FrontDoor],
    asked: Asked,
    *,
    errors_in_tries: bool,
) -> tuple[Captured, torchjit_fx.TensorDomain, torchjit_guards.ShapeEnv]:
    """What the VM makes of a region for such a call, the domain that it ran over, and the sizes that vary.

    A break that cannot be resumed where it lies makes the VM start again and break further out.

    Args:
        history: sizes that were seen at earlier calls.
        graphs: emptied at each start.
        compile_graph: what the domain gives its graphs to, which puts them there.
        continuations: the front doors of regions that go on after this one.
        asked: told of the functions about which it asks whether they are marked.
        errors_in_tries: as of `FxSettings`.

    Raises:
        Unsupported: the program allows no break, and there is one.
        GraphBreak: nothing of the region can be captured.
    """
    started: list[tuple[torchjit_fx.TensorDomain, torchjit_guards.ShapeEnv]] = []

    def start() -> tuple[torchjit_fx.TensorDomain, torchjit_fx.TensorDomain]:
        graphs.clear()
        sizes = torchjit_guards.ShapeEnv(history, dynamic=terms.dynamic)
        domain = torchjit_fx.TensorDomain(compile_graph, sizes, fx_settings(terms, errors_in_tries=errors_in_tries))
        # The break's own call is not followed again.
        domain.needs_history = bool(started) and started[-1][0].needs_history
        started.append((domain, sizes))
        return domain, domain

    def attempt() -> Captured | None:
        """None: a module was imported under way."""
        leaves, compiler = start()
        try:
            return capture(
                region,
                slots,
                leaves=leaves,
                compiler=compiler,
                continuations=continuations,
                policy=capture_policy(terms, asked),
                restart=start,
            )
        except torchjit_vm.ModuleImported:
            return None

    try:
        while (captured := attempt()) is None:
            pass
    except GraphBreak as error:
        if not terms.fullgraph:
            raise
        raise _unsupported(error) from None
    except torchjit_vm.BreakForbidden as forbidden:
        raise _unsupported(forbidden.why) from None
    finally:
        for domain, _ in started:
            domain.release()
    return captured, *started[-1]


def hand_over(
    terms: Terms,
    scope: CompilationScope | None,
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    by_aot_eager: bool,
) -> Callable[..., Any]:
    """What the backend makes of a graph.

    Raises:
        BackendCompilerFailed: the backend raised.
        TorchjitError: of ours, and what a handler of a signal or a listener raised.
    """
    # A backend of the user's may use signals itself.
    forget = scope.forgives() if scope is not None and terms.backend_is_users else None
    try:
        made = call_backend(aot_eager if by_aot_eager else terms.backend, gm, example_inputs)
    except TorchjitError:
        raise
    except Exception as error:
        if (scope is not None and scope.raised) or events.raised_by_listener(error):
            raise
        if has_no_memory(error) and not terms.backend_is_users:
            raise
        raise BackendCompilerFailed(BACKEND_FAILED, f"{type(error).__name__}: {error}") from error
    if forget is not None:
        forget()
    # It is no code of the program: the frame hook leaves all that it does alone.
    return made if is_ours(terms.backend) else unhooked(made)


def _unsupported(why: GraphBreak) -> Unsupported:
    """A break as the error that it is where the program allows none."""
    made = Unsupported(why.reason, why.detail, why.location)
    made.hints = cures(why.reason, why.detail)
    return made
