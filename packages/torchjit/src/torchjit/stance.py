"""`set_stance`: what the process does, for the time being, with everything that was or would be compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from torchjit.backends import lookup_backend
from torchjit.exc import UserError, unknown_name, wrong_type
from torchjit_core.kinds import as_switch
from torchjit_core.reasons import reason
from torchjit_session import upstream
from torchjit_session.stance import STANCES, Stance, become, own_stance

__all__ = ["STANCES", "set_stance"]

_F = TypeVar("_F", bound=Callable[..., Any])

BACKEND_AND_STANCE = reason(
    "TJ-API-041",
    "force_backend goes with the stance default only",
    "The other stances say themselves what runs.",
    "Leave one of the two out.",
)


class set_stance(contextlib.ContextDecorator):  # upstream's name
    """Set the stance at once; as a context manager or a decorator, restore the one before at the end.

    * `default`: compile what has no specialisation.
    * `force_eager`: run everything that is compiled as plain Python.
    * `eager_on_recompile`: use what is compiled, run the rest as plain Python.
    * `fail_on_recompile`: use what is compiled, raise where something would have to be compiled.
    * `eager_then_compile`: run each region's first call as plain Python, and compare its sizes and numbers with the second
      call's, so that what changes is symbolic at once.
    * `aot_eager_then_compile`: the same, with the backend `aot_eager` for the first call, so that checkpoints of activations save
      memory in it too.

    The stance is the process's: it holds in all threads. One that is set through `torch.compiler.set_stance` holds as well,
    unless one is set here.

    Args:
        stance: one of these.
        skip_guard_eval_unsafe: taken for upstream's sake, without effect: guards are always asked, so results stay right.
        force_backend: with the stance `default`: compile everything with this backend instead of its own, and do not use what was
            compiled with another one.

    Raises:
        UserError: an unknown stance or backend (the nearest ones are told), or a backend with another stance than `default`.
    """

    def __init__(
        self,
        stance: Stance = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: str | Callable[..., Any] | None = None,
    ) -> None:
        if not isinstance(stance, str):
            raise wrong_type("stance", stance, "a str, the name of a stance")
        if as_switch(skip_guard_eval_unsafe) is None:
            raise wrong_type("skip_guard_eval_unsafe", skip_guard_eval_unsafe, "True or False")
        if stance not in STANCES:
            raise unknown_name("stance", stance, STANCES)
        if force_backend is not None:
            if stance != "default":
                raise UserError(BACKEND_AND_STANCE, f"stance={stance!r}, force_backend={force_backend!r}")
            lookup_backend(force_backend)
        self.stance = upstream.Stance(stance, force_backend)
        self._before = [own_stance()]
        become(self.stance)

    def __call__(self, func: _F) -> _F:
        """As a decorator: the stance holds during calls of the function only."""
        become(self._before[-1])
        return super().__call__(func)

    def _recreate_cm(self) -> set_stance:
        made = object.__new__(set_stance)
        made.stance, made._before = self.stance, [own_stance()]
        become(self.stance)
        return made

    def __enter__(self) -> set_stance:
        return self

    def __exit__(self, *exc_info: object) -> None:
        become(self._before[-1])
