"""A process of `torchjit bench`: one script under one compiler, its calls timed.

python -m torchjit.commands.timed_script COMPILER RESULT [-m] SCRIPT [ARGUMENTS ...]
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import torch

import torchjit
from torchjit.commands.script import Script

__all__ = ["main"]


@final
class _Clock:
    """How long the first call of each compiled callable took, and when each later call of the first of them began."""

    def __init__(self) -> None:
        self.first_seconds = 0.0
        self.begun: list[float] = []
        self._inside = False
        self._leader: set[int] | None = None

    def call(self, seen: set[int], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call and note; what a timed call calls is part of it."""
        if self._leader is None:
            self._leader = seen  # a step goes from one of its calls to the next, whatever else the loop calls
        if self._inside:
            return function(*args, **kwargs)
        self._inside = True
        start = time.perf_counter()
        try:
            result = function(*args, **kwargs)
            if not seen:
                _wait()
                seen.add(1)
                self.first_seconds += time.perf_counter() - start
            elif seen is self._leader:
                self.begun.append(start)
            return result
        finally:
            self._inside = False


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _compiler(name: str, clock: _Clock) -> Callable[..., Any]:
    real: Any = {"eager": lambda model, **kwargs: model, "torchjit": torchjit.compile, "torch.compile": torch.compile}[
        name
    ]

    def compile(model: Any = None, **keywords: Any) -> Any:
        if model is None:
            return functools.partial(compile, **keywords)
        return _timed(real(model, **keywords), clock)

    return compile


def _timed(compiled: Any, clock: _Clock) -> Any:
    """The callable, or a module of a class below its own, with a `__call__` that is timed."""
    seen: set[int] = set()
    if not isinstance(compiled, torch.nn.Module):
        return functools.wraps(compiled)(lambda *args, **kwargs: clock.call(seen, compiled, *args, **kwargs))
    cls = type(compiled)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return clock.call(seen, compiled, *args, **kwargs)

    shell: Any = object.__new__(type(cls.__name__, (cls,), {"__call__": call}))
    object.__setattr__(shell, "__dict__", compiled.__dict__)
    return shell


def main(arguments: list[str]) -> int:
    """Run the script and write the times as JSON."""
    name, result, *own = arguments
    is_module = own[0] == "-m"
    script, own = Script(own[is_module], is_module), own[is_module + 1 :]
    clock = _Clock()
    made: Any = _compiler(name, clock)
    torch.compile = torchjit.compile = made
    start = time.perf_counter()
    script.run(own)
    _wait()
    end = time.perf_counter()
    steps = [after - before for before, after in zip(clock.begun, [*clock.begun[1:], end], strict=True)]
    times = {
        "first_seconds": clock.first_seconds,
        "steps": len(steps),
        "step_seconds": statistics.median(steps) if steps else None,
        "seconds": end - start,
    }
    Path(result).write_text(json.dumps(times))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
