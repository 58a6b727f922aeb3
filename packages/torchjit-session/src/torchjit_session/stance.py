"""The stance: what the process does, for the time being, with everything that was or would be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

from torchjit_core.reasons import reason
from torchjit_session import upstream

__all__ = ["STANCES", "Stance", "become", "current_stance", "forced_backend", "on_change", "own_stance", "tell"]

Stance: TypeAlias = Literal[
    "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile"
]
STANCES: tuple[str, ...] = get_args(Stance)

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


def own_stance() -> upstream.Stance:
    """The one that was set here, not through `torch.compiler.set_stance`."""
    return _stance


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


def become(stance: upstream.Stance) -> None:
    """Set it at once."""
    global _stance
    _stance = stance
    tell()
