"""What limits and errors of one region lead to: it runs eagerly from now on, or another call may try again."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import final

from torchjit_core import events
from torchjit_core.failures import cause_of, has_no_memory
from torchjit_core.reasons import InvalidIR, Reason, TorchjitError, reason
from torchjit_core.user_errors import BackendCompilerFailed, RecompileLimitExceeded
from torchjit_core.user_warnings import warn_user
from torchjit_frame import FrontDoor
from torchjit_report.recompiles import Recompile, ranked
from torchjit_session.counters import counters
from torchjit_session.specialization import Specialization
from torchjit_session.terms import Terms

__all__ = ["Failures"]

RECOMPILE_LIMIT = reason(
    "TJ-API-020",
    "the recompile limit is reached",
    "The guards of this region missed as often as the limit allows; it runs eagerly from now on, "
    "because each new specialisation costs time and memory.",
    "Look at the guards that missed (TORCHJIT_LOGS=recompiles): pass what changes as a tensor, or mark it dynamic.",
    "Raise torchjit.config.recompile_limit if the number of variants is small.",
)
INTERNAL_ERROR = reason(
    "TJ-API-021",
    "an error inside torchjit",
    "The region runs eagerly instead, so the program's results are not affected. This is a bug in torchjit.",
    "Report it with the traceback; on_error='raise' or TORCHJIT_ON_ERROR=raise shows it where it happens.",
)

POSTPONE_LIMIT = 4  # calls that a region may turn down as "not yet"
MOST_OUT_OF_MEMORY = 4  # compilations of a region that end for want of memory or stack, until it stays eager


@final
class Failures:
    """The failures of one region so far, and the policy on them.

    Args:
        name: of the region.
        terms: of the call of `compile`.
        door: of the region.
        specializations: of the region.
        has_room: do the limits allow another specialisation?

    Attributes:
        given_up: why it runs eagerly: not the error, whose frames hold what was given.
        raised_alone: graphs that raised where plain Python did not.
        caught: errors of its graphs that the program caught.
    """

    def __init__(
        self,
        name: str,
        terms: Terms,
        door: FrontDoor,
        specializations: Sequence[Specialization],
        has_room: Callable[[], bool],
    ) -> None:
        self.name, self.terms, self._door, self._specializations = name, terms, door, specializations
        self._has_room = has_room
        self.forget()

    def forget(self) -> None:
        """It is as if there had been none."""
        self.given_up: str | None = None
        self.raised_alone = self.caught = 0
        self._postponed = self._ran_out = 0
        self._door.sealed = False

    def postponed(self, error: TorchjitError) -> None:
        """Another call is to try; not for ever."""
        self._postponed += 1
        if self._postponed >= POSTPONE_LIMIT:
            self._run_eagerly(error)

    def limit_reached(
        self, said: str, counted: Sequence[Specialization], missed: Recompile | None, *, warn: bool = True
    ) -> None:
        """Run eagerly from now on, and say what missed, the most frequent first.

        Args:
            said: which limit is reached.
            counted: the specialisations that count towards it.
            missed: by the call that found no room.
            warn: another region has not said the same yet.

        Raises:
            RecompileLimitExceeded: with `fullgraph`.
        """
        causes = [r for r in (*(s.recompile for s in counted), missed) if r is not None]
        error = RecompileLimitExceeded(RECOMPILE_LIMIT, f"{said}; what missed: {ranked(causes)}" if causes else said)
        counters["recompile_limit"][self.name] += 1
        if self.terms.fullgraph:
            raise error
        self._run_eagerly(error)
        self._door.sealed = True
        if warn:
            warn_user(str(error))

    def make_anew(self, made: Specialization) -> None:
        """Another specialisation is to take this one's place, if the limits have room for it."""
        if self._has_room():
            self._remove(made)

    def drop_faulty(self, made: Specialization, why: Reason, detail: str) -> None:
        """What was made has a fault: say so once, and take it away. After the second one the region runs eagerly."""
        self.raised_alone += 1
        error = InvalidIR(why, detail)
        if self.raised_alone > 1:
            self._door.clear()
            self._run_eagerly(error)
            return
        self._remove(made)
        counters["fallback"][why.headline] += 1
        events.emit_fallback(why, detail)
        warn_user(str(error))

    def invalidate(self, why: Reason, detail: str) -> None:
        """What was made cannot be used, as it turns out: say so, and run eagerly from now on."""
        self._door.clear()
        error = InvalidIR(why, detail)
        self._run_eagerly(error)
        counters["fallback"][why.headline] += 1
        warn_user(str(error))

    def failed(self, error: Exception) -> bool:
        """Apply the failure policy: raise, or warn once and run eagerly from now on.

        Where memory or stack ran out, another call may have enough: the next ones try again.

        Returns:
            Is another call to try again?
        """
        user_backend = isinstance(error, BackendCompilerFailed) and self.terms.backend_is_users
        detail = f"{self.name}: {type(error).__name__}: {error}"
        if self.terms.on_error == "raise" or (user_backend and self.terms.on_error is None):
            if isinstance(error, TorchjitError) or has_no_memory(error):
                raise error
            raise InvalidIR(INTERNAL_ERROR, detail) from error
        if has_no_memory(error):
            self._ran_out += 1
            if self._ran_out < MOST_OUT_OF_MEMORY:
                events.emit("postponed", function=self.name, error=f"{type(error).__name__}: {error}")
                return True
        if isinstance(error, TorchjitError):
            told, detail = error, str(error)
        else:
            text = "".join(traceback.format_exception(error))
            told = InvalidIR(INTERNAL_ERROR, f"{detail}\n{text}")
        counters["fallback"][told.reason.headline] += 1
        self._run_eagerly(told, detail)
        if self.terms.failure_policy().reports(cause_of(told.reason, error)):
            warn_user(str(told))
        return False

    def _run_eagerly(self, error: TorchjitError, detail: str | None = None) -> None:
        self.given_up = str(error)
        self._door.sealed = not self._door.entries()
        events.emit_fallback(error.reason, error.detail if detail is None else detail)

    def _remove(self, made: Specialization) -> None:
        for entry in self._door.entries():
            if entry.data is made:
                self._door.remove(entry)
