"""`on_compile_start` and `on_compile_end`: the program is told when it waits for the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, final

import attrs

from torchjit_core import events
from torchjit_core.reasons import UserTypeError, reason
from torchjit_core.user_errors import told
from torchjit_session.sharing import all_compilations

__all__ = [
    "Callback",
    "CompileEvent",
    "Phase",
    "function_of",
    "on_compile_end",
    "on_compile_start",
]

Phase = Literal["capture", "backward", "autotuning", "cudagraph"]

NO_CALLBACK = reason(
    "TJ-API-070",
    "a callback that cannot be called",
    "on_compile_start and on_compile_end take a function of one argument, a torchjit.CompileEvent.",
)


@final
@attrs.frozen
class CompileEvent:
    """What begins or has ended.

    Attributes:
        phase: `capture`: a function, or a part of it, is captured and compiled. `backward`: the backward of a graph is compiled, when it
            is first called. `autotuning`: ways to compute the same are timed. `cudagraph`: a CUDA graph is recorded.
        compile_id: such as `0/1`; that of the capture for what comes of it. None where no compilation asked.
        function: name of what is compiled; that of its module, for one.
        filename, lineno: where its code starts.
        seconds: how long it took; None where it begins.
        ok: did it come to its end? None where it begins.
    """

    phase: Phase
    compile_id: str | None
    function: str | None = None
    filename: str | None = None
    lineno: int | None = None
    seconds: float | None = None
    ok: bool | None = None


@final
class Callback:
    """What `on_compile_start` and `on_compile_end` return: the function still, which is called until `remove`.

    As a context manager it is called within the block.
    """

    def __init__(self, kind: str, function: Callable[[CompileEvent], object]) -> None:
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__doc__ = getattr(function, "__doc__", None)
        events.start_listening(self._hear, (kind,))

    def __call__(self, event: CompileEvent) -> object:
        return self.__wrapped__(event)

    def _hear(self, kind: str, fields: dict[str, Any]) -> None:
        place, told = _place_of(fields["compile_id"]), (fields.get("seconds"), fields.get("ok"))
        event = CompileEvent(fields["name"], fields["compile_id"], *place, *told)
        try:
            self.__wrapped__(event)
        except Exception as error:
            # The program's own, which no policy for errors of torchjit is about.
            error.__torchjit_listener__ = self.__wrapped__  # type: ignore[attr-defined]
            raise

    def remove(self) -> None:
        """Do not call it any more; nothing if it was removed before."""
        events.stop_listening(self._hear)

    def __enter__(self) -> Callback:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def function_of(compile_id: str | None) -> str | None:
    """The name of the function that a compilation is about; None if it is gone."""
    return _place_of(compile_id)[0]


def _place_of(compile_id: str | None) -> tuple[str | None, str | None, int | None]:
    """Name, file and first line of the code that a compilation is about; None for each if it is gone."""
    for compilation in all_compilations():
        for site in compilation.sites:
            for made in site.specializations:
                if made.compile_id == compile_id:
                    return site.name, made.filename, made.lineno
    return None, None, None


def on_compile_start(callback: Callable[[CompileEvent], object]) -> Callback:
    """Call a function whenever the program begins to wait for the compiler; also a decorator.

    It is called in the thread that compiles. What it raises is the program's: it reaches the call that compiles (or that runs a backward),
    whatever `on_error` says, and nothing is compiled, so that the next call begins anew.

    Returns:
        The function, with `remove()`.

    Raises:
        UserError: it cannot be called.
    """
    return _registered(events.ACTIVITY_START, callback)


def on_compile_end(callback: Callable[[CompileEvent], object]) -> Callback:
    """Call a function whenever what `on_compile_start` told of has ended, well or not; also a decorator.

    What it raises reaches the call that compiles; what was compiled is kept.

    Returns:
        The function, with `remove()`.

    Raises:
        UserError: it cannot be called.
    """
    return _registered(events.ACTIVITY_END, callback)


def _registered(kind: str, callback: Callable[[CompileEvent], object]) -> Callback:
    if not callable(callback):
        raise UserTypeError(NO_CALLBACK, f"got {told(callback)}")
    return Callback(kind, callback)
