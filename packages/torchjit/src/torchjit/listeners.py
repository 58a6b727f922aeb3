"""Who listens to events because the environment asks for it: logs, traces, and the line on a terminal."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from torchjit.environment import BAD_VARIABLE, Environment, read_environment
from torchjit.exc import UserError
from torchjit_core import events
from torchjit_report import Recorder
from torchjit_report.progress import show_progress
from torchjit_session.callbacks import function_of
from torchjit_session.sharing import all_compilations, tell_hits

__all__ = ["set_logs", "start_from_environment"]

_started: list[Any] = []


def start_from_environment(environment: Environment) -> None:
    """Start what the variables ask for, once per process.

    Raises:
        UserError: there is no such log, or no such folder for traces; each time.
    """
    if environment.logs:
        from torchjit_report import logs  # noqa: PLC0415  for who asks for them

        logs.check_logs_variable(environment.logs)
    if _started:
        return
    recorder = None if environment.trace is None else _recorder(environment.trace)
    _started.append(recorder)
    if environment.progress:
        show_progress(function_of)
    if environment.logs:
        logs.set_logs_from_text(environment.logs)
    if recorder is not None:
        events.start_listening(recorder)
        atexit.register(lambda: tell_hits(*all_compilations()))


def set_logs(**names: bool | int) -> None:
    """Turn logs on or off by name. `TORCHJIT_LOGS`, when set, beats the call.

    Args:
        names: True or False; for `dynamo`, `aot` and `inductor` also a level of `logging`.

    Raises:
        UserError: an unknown name, of which the nearest ones are told, or a value that is no bool and no level.
    """
    from torchjit_report import logs  # noqa: PLC0415  for who asks for them

    logs.set_logs(names, read_environment().logs)


def _recorder(folder: Path) -> Recorder:
    try:
        return Recorder(folder=folder)
    except (OSError, ValueError) as error:
        raise UserError(BAD_VARIABLE, f"TORCHJIT_TRACE={str(folder)!r}: want a folder for traces ({error})") from None
