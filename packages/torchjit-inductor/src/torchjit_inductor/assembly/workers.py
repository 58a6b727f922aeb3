"""Processes that compile kernels beside this one, in which Triton's Python would wait for the interpreter's lock.

They are started when a graph comes, ahead of its kernels, serve all graphs after it, and end when nothing came for
a minute or this process ends. They see no GPU. Where none can be had (few processors, an interpreter of which there is no
program, Triton's interpreter), threads of this process compile.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, final

from torchjit_core.events import emit
from torchjit_inductor.assembly.assemble import Assembled, assemble, read_message, readable, write_message

__all__ = ["CompilerDied", "Workers", "default_processes", "end_process", "shared_workers"]

_PROGRAM = Path(__file__).with_name("assemble.py")


class CompilerDied(Exception):
    """A process ended while it compiled a kernel. The text says how."""


MANY = 4
"""With so many processes nothing is compiled here: what Triton does once a process would take longer than they need for all."""


def default_processes() -> int:
    """How many are worth their memory (100 MB each) on this machine: three of four processors, at most 16, none where there are few."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    usable = bool(sys.executable) and not os.environ.get("TRITON_INTERPRET")
    return min(16, count * 3 // 4) if count >= 4 and usable else 0


@final
class Workers:
    """A pool of such processes.

    Args:
        count: how many; 0 compiles everything here.
        idle_seconds: one without a request for so long ends.
        limit_seconds: that it may take for one kernel.
    """

    def __init__(self, count: int, idle_seconds: float = 60.0, limit_seconds: float = 600.0) -> None:
        self.count = count
        self._limit_seconds = limit_seconds
        self._idle_seconds = idle_seconds
        self._state = threading.Condition()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._alive = 0  # started, or on their way
        self._here = False

    def start(self, most: int | None = None) -> None:
        """Start the processes that are missing. Returns at once; each is used when it is ready.

        Args:
            most: that there is work for; all that there may be, if it is not known.
        """
        with self._state:
            missing = (self.count if most is None else min(self.count, most)) - self._alive
            self._alive += max(missing, 0)
        for _ in range(missing):
            threading.Thread(target=self._begin, daemon=True, name="torchjit compile worker").start()

    def assemble(self, *request: Any) -> Assembled:
        """`assemble.assemble`, wherever there is room first.

        Raises:
            CompilerDied: the compiler crashed, or was ended since it took too long.
            Exception: whatever Triton raises.
        """
        while True:
            process = self._take()
            if process is None:
                try:
                    return assemble(*request)
                finally:
                    self._give(None)
            answer = self._ask(process, request)
            if answer is None:  # it had ended for want of work
                continue
            good, made = answer
            if good:
                return made  # type: ignore[no-any-return]
            return assemble(*request)  # raises here what it raised there

    def close(self) -> None:
        """End the processes that are idle."""
        with self._state:
            ended, self._idle = self._idle, []
            self._alive -= len(ended)
        for process in ended:
            end_process(process)

    # ------------------------------------------------------------------------------------------------- processes

    def _begin(self) -> None:
        process = None
        try:
            # Its own session: an interrupt from the keyboard is this process's to handle.
            process = subprocess.Popen(
                [sys.executable, str(_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            )  # fmt: skip
            write_message(_pipe(process.stdin), (sys.path, self._idle_seconds))
            read_message(_pipe(process.stdout))
        except (OSError, EOFError) as error:
            emit("compile_worker_failed", detail=f"{type(error).__name__}: {error}")
            if process is not None:
                end_process(process)
            with self._state:
                self._alive -= 1
                self.count = 0  # what failed once would fail again
                self._state.notify_all()
            return
        self._give(process)

    def _take(self) -> subprocess.Popen[bytes] | None:
        """A process that is free, or None: compile here. At most one does so while there are processes, none while there are `MANY`."""
        with self._state:
            while True:
                if self._idle:
                    return self._idle.pop()
                if not self._alive or (not self._here and self.count < MANY):
                    self._here = True
                    return None
                self._state.wait()

    def _give(self, process: subprocess.Popen[bytes] | None) -> None:
        with self._state:
            if process is None:
                self._here = False
            else:
                self._idle.append(process)
            self._state.notify_all()

    def _ask(self, process: subprocess.Popen[bytes], request: Any) -> tuple[bool, Any] | None:
        """Whether it could compile, and what it answers; None if it had ended before it was asked."""
        asked = False
        try:
            write_message(_pipe(process.stdin), request)
            asked = True
            answers = _pipe(process.stdout)  # one for each request: nothing is in its buffer
            if not readable(answers, self._limit_seconds):
                process.kill()
            answer: tuple[bool, Any] = read_message(answers)
        except (OSError, EOFError):
            status = self._lose(process)
            if status == 0 or not asked:
                return None
            raise CompilerDied(f"compiling {request[1]} ended its process with status {status}") from None
        except BaseException:  # an interrupt: its answer would be taken for the next request's
            process.kill()
            self._lose(process)
            raise
        self._give(process)
        return answer

    def _lose(self, process: subprocess.Popen[bytes]) -> int:
        """One that will not be asked again: its exit status. Whoever waits for one may have to compile himself."""
        with self._state:
            self._alive -= 1
            self._state.notify_all()
        return end_process(process)

    def forget(self) -> None:
        """In a child after a fork: the processes are the parent's."""
        self._state = threading.Condition()
        self._idle, self._alive, self._here = [], 0, False


def _pipe(stream: Any) -> Any:
    if stream is None:
        raise OSError("no pipe")
    return stream


def end_process(process: subprocess.Popen[bytes]) -> int:
    """Close a process's pipes, which ends it, and give its exit status."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        return process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


_shared = Workers(default_processes())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forget)


def shared_workers() -> Workers:
    """The pool of this process."""
    return _shared
