"""What a failure of the compiler does: it is shown, or eager PyTorch takes over. Said once for a compilation and all that comes of it."""

from __future__ import annotations

import contextlib
import contextvars
import traceback
from collections.abc import Iterator
from typing import final

import attrs

from torchjit_core.events import emit_fallback, note, raised_by_listener
from torchjit_core.handlers import let_through
from torchjit_core.reasons import InvalidIR, Reason, TorchjitError
from torchjit_core.user_warnings import warn_user

__all__ = [
    "FailurePolicy",
    "cause_of",
    "current_policy",
    "degraded",
    "failures_are_raised",
    "has_no_memory",
    "using_policy",
]


@final
@attrs.define
class FailurePolicy:
    """Of one compiled callable.

    Attributes:
        raises: failures are raised; else something slower stands in for what has failed.
        reported: causes that a warning has told of.
    """

    raises: bool = False
    reported: set[tuple[object, ...]] = attrs.field(factory=set)

    def reports(self, cause: tuple[object, ...]) -> bool:
        """Is a failure with this cause to be told of? The first one is."""
        if cause in self.reported:
            return False
        self.reported.add(cause)
        return True


_policy: contextvars.ContextVar[FailurePolicy] = contextvars.ContextVar("torchjit_failure_policy")
_OF_THE_PROCESS = FailurePolicy()
"""Where a package is used alone."""


def current_policy() -> FailurePolicy:
    """The policy of the compilation that this thread works on. Keep it for what fails at a later call."""
    return _policy.get(_OF_THE_PROCESS)


def failures_are_raised() -> bool:
    """Does the compilation that this thread works on show its failures? Ask where eager PyTorch would take over."""
    return current_policy().raises


@contextlib.contextmanager
def using_policy(policy: FailurePolicy) -> Iterator[None]:
    """Inside, and in what is compiled later in a copy of the context (a backward), failures are treated so."""
    token = _policy.set(policy)
    try:
        yield
    finally:
        _policy.reset(token)


def degraded(
    why: Reason,
    detail: str,
    error: Exception,
    policy: FailurePolicy | None = None,
    *,
    repeats: bool = False,
    **of: object,
) -> None:
    """A part of the compiler has failed, and something slower can stand in for it: say so once for one cause, or raise.

    Args:
        why: says what failed and what stands in for it.
        detail: what happened this time, one line.
        error: what was raised. It was caught here first.
        policy: of the compilation; the current one if None.
        repeats: would it fail in each process? Then what stands in for it may be kept on disk.
        of: what the event says besides, such as its compile id.

    Raises:
        BaseException: the program's own, of a listener or of a handler of a signal.
        TorchjitError: failures are raised, and this one's cause is `error`.
        Exception: `error` itself, where there was no memory and failures are raised.
    """
    let_through()
    if raised_by_listener(error):
        raise error
    policy = policy or current_policy()
    if policy.raises:
        if isinstance(error, TorchjitError) or has_no_memory(error):
            raise error
        raise InvalidIR(why, detail) from error
    note("fallback", reason=why.id, detail=detail, repeats=repeats)
    emit_fallback(why, detail, **of)
    if policy.reports(cause_of(why, error)):
        warn_user(str(InvalidIR(why, detail)))


def cause_of(why: Reason, error: BaseException) -> tuple[object, ...]:
    """What is reported once: an error of one kind at one place."""
    error = error.__cause__ or error
    places = [f"{frame.f_code.co_filename}:{line}" for frame, line in traceback.walk_tb(error.__traceback__)]
    return why.id, type(error), places[-1] if places else None


def has_no_memory(error: BaseException | None) -> bool:
    """Is the cause that there was no memory, or no room on the stack, this time?"""
    while error is not None:
        if isinstance(error, RecursionError | MemoryError) or type(error).__name__ == "OutOfMemoryError":
            return True
        if "can't allocate memory" in str(error):
            return True
        error = error.__cause__
    return False
