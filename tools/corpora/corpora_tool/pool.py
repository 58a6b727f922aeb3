"""A process per model, forked from one that has imported everything: isolated, and without the seconds an import takes."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import attrs

__all__ = ["Job", "run_jobs"]


@final
@attrs.frozen
class Job:
    """One model in one mode."""

    corpus: str
    name: str
    mode: str


@final
@attrs.define
class _Running:
    job: Job
    pid: int
    read: int
    started: float
    data: bytearray = attrs.field(factory=bytearray)


def run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job], Iterator[dict[str, Any]]],
    *,
    processes: int,
    timeout: float,
    deadline: float | None,
    memory: int | None,
) -> Iterator[dict[str, Any]]:
    """Results in order of completion.

    Args:
        jobs: what to run, in this order.
        work: runs in the child and yields results, each JSON-able.
        processes: how many at a time.
        timeout: seconds for one job, after which it is killed and its result has the status `timeout`.
        deadline: `time.monotonic()` after which nothing starts and what runs is killed; unfinished jobs give no result.
        memory: bytes of address space that a child may add to what the parent has, or None.
    """
    waiting = list(reversed(jobs))
    running: dict[int, _Running] = {}
    while waiting or running:
        now = time.monotonic()
        late = deadline is not None and now > deadline
        if late:
            waiting.clear()
        while waiting and len(running) < processes:
            child = _start(waiting.pop(), work, memory)
            running[child.read] = child
        readable, _, _ = select.select(list(running), [], [], 0.2)
        for fd in readable:
            chunk = os.read(fd, 1 << 16)
            if chunk:
                running[fd].data += chunk
            else:
                child = running.pop(fd)
                os.close(fd)
                _, status = os.waitpid(child.pid, 0)
                yield from _finished(child, status)
        for fd, child in list(running.items()):
            over = time.monotonic() - child.started > timeout
            if over or late:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                os.close(fd)
                del running[fd]
                yield from _lines(child)
                if over and not late:
                    yield _identity(child.job) | {
                        "case": child.job.name,
                        "status": "timeout",
                        "why": f"over {timeout:.0f} s",
                    }


def _start(job: Job, work: Callable[[Job], Iterator[dict[str, Any]]], memory: int | None) -> _Running:
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        status = 1
        try:
            if memory is not None:
                used = _address_space()
                resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
            # What models print must not mix with the summary.
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, 1)
            if "CORPORA_STDERR" not in os.environ:
                os.dup2(sink, 2)
            with os.fdopen(write, "w") as out:
                for result in work(job):
                    out.write(json.dumps(result) + "\n")
                    out.flush()
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    return _Running(job, pid, read, time.monotonic())


def _address_space() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


def _identity(job: Job) -> dict[str, Any]:
    return {"corpus": job.corpus, "model": job.name, "mode": job.mode}


def _lines(child: _Running) -> Iterator[dict[str, Any]]:
    for line in bytes(child.data).split(b"\n")[:-1]:
        yield _identity(child.job) | json.loads(line)


def _finished(child: _Running, status: int) -> Iterator[dict[str, Any]]:
    yield from _lines(child)
    if status:
        what = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
        yield _identity(child.job) | {
            "case": child.job.name,
            "status": "crash",
            "why": f"the process ended with {what}",
        }
