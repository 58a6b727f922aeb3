"""`set_stance`: what the process does, for the time being, with everything that was or would be compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from torchjit import upstream
from torchjit.backends import lookup_backend
from torchjit.exc import UserError, unknown_name, wrong_type
from torchjit.kinds import as_switch
from torchjit_core.reasons import reason

__all__ = ["STANCES", "Stance", "current_stance", "forced_backend", "on_change", "set_stance"]

Stance: TypeAlias = Literal[
    "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile"
]
STANCES: tuple[str, ...] = get_args(Stance)
_F = TypeVar("_F", bound=Callable[..., Any])

BACKEND_AND_STANCE = reason(
    "TJ-API-041",
    "force_backend goes with the stance default only",
    "The other stances say themselves what runs.",
    "Leave one of the two out.",
)
WOULD_COMPILE = reason(
    "TJ-API-033",
    "something has to be compiled under the stance fail_on_recompile",
    "No specialisation matches this call, and the process asked to be told rather than to compile.",
    "Run calls like this one before the stance is set, or make what the message names an input that may change.",
)

_DEFAULT = upstream.Stance()
_stance = _DEFAULT
_listeners: list[Callable[[], None]] = []


def _now() -> upstream.Stance:
    """Ours, or if that is the default the one that the program set through `torch.compiler.set_stance`."""
    return upstream.stance() if _stance == _DEFAULT else _stance


def current_stance() -> str:
    """The stance of the process."""
    return _now().name


def forced_backend() -> str | Callable[..., Any] | None:
    """The backend that everything is to be compiled with for the time being, if any."""
    return _now().backend


def on_change(listener: Callable[[], None]) -> None:
    """Call `listener` whenever the stance has changed."""
    _listeners.append(listener)


def tell() -> None:
    """Call the listeners: the stance has changed."""
    for listener in _listeners:
        listener()


def _become(stance: upstream.Stance) -> None:
    global _stance
    _stance = stance
    tell()


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
        self._before = [_stance]
        _become(self.stance)

    def __call__(self, func: _F) -> _F:
        """As a decorator: the stance holds during calls of the function only."""
        _become(self._before[-1])
        return super().__call__(func)

    def _recreate_cm(self) -> set_stance:
        made = object.__new__(set_stance)
        made.stance, made._before = self.stance, [_stance]
        _become(self.stance)
        return made

    def __enter__(self) -> set_stance:
        return self

    def __exit__(self, *exc_info: object) -> None:
        _become(self._before[-1])
