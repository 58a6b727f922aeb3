"""The compiled backwards of one graph: the whole one, and those for calls in which some results got no gradient.

On disk they are what has been compiled of them. Another process calls the operators of the whole one by one if it was never compiled, and
gives zeros to it for combinations that were not met.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

from torchjit_aot.ambient import aside
from torchjit_aot.compiler_protocol import Boxed, CompiledGraph
from torchjit_aot.settings import Later
from torchjit_core.events import activity, current_compile_id
from torchjit_core.forks import new_lock
from torchjit_core.reasons import TorchjitError, reason
from torchjit_core.storing import NotYetStorable, grown, grows, part_of

__all__ = ["NOT_COMPILED", "BackwardOfSome", "Backwards", "LazyBackward", "boxed"]

NOT_COMPILED = reason(
    "TJ-STORE-040",
    "the backward has not been compiled yet",
    "An entry with a backward is kept on disk once that has been compiled, which its first call does.",
)

_MOST = 8
"""Backwards of one graph for different gradients; further combinations are given zeros."""


@final
class LazyBackward:
    """The backward graph, compiled when it is first called.

    Args:
        build: compiles it. It runs once, in the context (compile id) of the forward's compilation.
        stepwise: makes a function that calls its operators one by one, for tangents that are tensor subclasses or batched.
        later: see `AotSettings`.
    """

    def __init__(
        self,
        build: Callable[[], CompiledGraph],
        stepwise: Callable[[], CompiledGraph],
        later: Later,
    ) -> None:
        self.boxed: Boxed | None = None
        self.has_others: Callable[[], bool] = _nothing_else
        self._compiled: CompiledGraph | None = None
        self._build: Callable[[], CompiledGraph] | None = build
        self._later = later
        self._stepwise = functools.cache(lambda: boxed(stepwise()))
        self._lock = new_lock()
        self._context = contextvars.copy_context()
        self._compile_id = current_compile_id()
        part_of(self._compile_id, self)

    def compile(self) -> Boxed:
        """The compiled graph, as a function of one list that it may empty; other threads wait for the first."""
        build = self._build
        if build is not None:
            grows(self._compile_id)
        with self._lock:
            if self.boxed is None and self._build is not None:
                with activity("backward", compile_id=self._compile_id):
                    self._compiled = self._later(functools.partial(_apart, self._context, self._build))
                    self.boxed = boxed(self._compiled)
                    self._build = None
        assert self.boxed is not None
        if build is not None:
            grown(self._compile_id)
        return self.boxed

    def calls(self) -> int | None:
        """How many of torch's operators it runs, compiled now; None: it does more, or does not tell."""
        self.compile()
        return getattr(self._compiled, "calls", None)

    def check_storable(self) -> None:
        """Is there anything to store?

        Raises:
            NotYetStorable: no backward has been compiled.
        """
        if self._compiled is None and not self.has_others():
            raise NotYetStorable(NOT_COMPILED, "")

    def __stored_state__(self) -> Mapping[str, object]:
        self.check_storable()
        return {"compiled": self._compiled, "stepwise": self._stepwise()}

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        stepwise: Boxed = state["stepwise"]
        self.__init__(_built, _built, _at_once)
        self._build, self._stepwise, self._compiled = None, lambda: stepwise, state["compiled"]  # type: ignore[assignment]
        self.boxed = stepwise if self._compiled is None else boxed(self._compiled)

    def compiled_or_error(self) -> Boxed | TorchjitError:
        """As `compile`, with an error of ours given back, to be raised without the compiler's frames."""
        try:
            return self.compile()
        except TorchjitError as error:
            return error.with_traceback(None)

    def stepwise(self) -> Boxed:
        """The graph's operators one by one, for tangents that compiled code cannot read."""
        return self._stepwise()


def _nothing_else() -> bool:
    return False


def _built() -> CompiledGraph:
    raise AssertionError("it was compiled in another process")


def _at_once(build: Callable[[], Any]) -> Any:
    return build()


def _apart(context: contextvars.Context, make: Callable[..., Any], *given: Any) -> Any:
    """What `make` makes, in the context of the forward's compilation and outside of what is on where the backward runs."""
    with aside():
        return context.run(make, *given)


def boxed(compiled: CompiledGraph) -> Boxed:
    """The compiled graph's own entry that takes a list and frees its items early, or one that unpacks the list."""
    own = getattr(compiled, "boxed", None)
    if own is not None:
        return own  # type: ignore[no-any-return]

    def call(inputs: list[Any]) -> Sequence[Any]:
        return compiled(*inputs)

    return call


class BackwardOfSome(NamedTuple):
    """What is called where some tangents have not come.

    Attributes:
        backward: takes the saved values, the tangents that have come, and zeros.
        zeros: for each tangent whether it is given as zeros if it has not come; else it is left out.
    """

    backward: LazyBackward
    zeros: tuple[bool, ...]


@final
class Backwards:
    """The backwards of one graph.

    Args:
        whole: the one for all tangents.
        make: gives the one without those for which the item is true. It runs once for each combination, in the context
            (compile id) of the forward's compilation.
        later: see `AotSettings`.

    Attributes:
        whole: as above.
    """

    def __init__(
        self,
        whole: LazyBackward,
        make: Callable[[tuple[bool, ...]], BackwardOfSome],
        later: Later,
    ) -> None:
        self.whole = whole
        whole.has_others = lambda: bool(self._compiled())
        self._make, self._later = make, later
        self._made: dict[tuple[bool, ...], BackwardOfSome] = {}
        self._lock = new_lock()
        self._context = contextvars.copy_context()

    def _compiled(self) -> dict[tuple[bool, ...], BackwardOfSome]:
        """What has been made, but for what is not compiled."""
        return {missing: made for missing, made in list(self._made.items()) if made.backward.boxed is not None}

    def __stored_state__(self) -> Mapping[str, object]:
        made = {missing: (some.backward, some.zeros) for missing, some in self._compiled().items()}
        return {"whole": self.whole, "made": made}

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["whole"], self._with_zeros, _at_once)
        self._made = {missing: BackwardOfSome(*some) for missing, some in state["made"].items()}

    def _with_zeros(self, missing: tuple[bool, ...]) -> BackwardOfSome:
        return BackwardOfSome(self.whole, (True,) * len(missing))

    def of_some(self, missing: tuple[bool, ...]) -> BackwardOfSome | TorchjitError:
        """The backward without the tangents for which the item is true; an error of ours is given back, to be raised without our frames."""
        found = self._made.get(missing)
        if found is None:
            with self._lock:
                found = self._made.get(missing)
                if found is None:
                    try:
                        found = self._made[missing] = self._new(missing)
                    except TorchjitError as error:
                        return error.with_traceback(None)
        return found

    def _new(self, missing: tuple[bool, ...]) -> BackwardOfSome:
        if len(self._made) < _MOST:
            return self._later(functools.partial(_apart, self._context, self._make, missing))  # type: ignore[no-any-return]
        return self._with_zeros(missing)
