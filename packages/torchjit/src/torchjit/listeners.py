"""Who listens to events because the environment asks for it: logs and traces."""

from __future__ import annotations

from typing import Any

from torchjit import logs
from torchjit.environment import Environment
from torchjit_core import events
from torchjit_report import Recorder

__all__ = ["start_from_environment"]

_started: list[Any] = []


def start_from_environment(environment: Environment) -> None:
    """Start what the variables ask for, once per process."""
    if _started:
        return
    _started.append(True)
    if environment.logs:
        logs.set_logs_from_text(environment.logs)
    if environment.trace is not None:
        recorder = Recorder(folder=environment.trace)
        _started.append(recorder)
        events.start_listening(recorder)
