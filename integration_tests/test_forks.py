"""Processes forked while another thread compiles: they compile and collect garbage as if nothing had been."""

# mypy: allow-untyped-calls

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import torchjit
import torchjit_session.capture

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
TIMEOUT = 40


def in_child(says: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(TIMEOUT)
            os._exit(0 if says() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def compiling_elsewhere(monkeypatch: pytest.MonkeyPatch, where: str) -> Iterator[Callable[..., Any]]:
    """Another thread is in the middle of a capture, or in a backend. Gives the function that it compiles."""
    inside, leave = threading.Event(), threading.Event()

    def stop(*_: Any) -> None:
        if threading.current_thread() is thread:
            inside.set()
            leave.wait(TIMEOUT)

    real = torchjit_session.capture.capture

    def capture(*args: Any, **kwargs: Any) -> Any:
        if where == "capture":
            stop()
        return real(*args, **kwargs)

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        stop()
        return gm.forward

    monkeypatch.setattr(torchjit_session.capture, "capture", capture)
    compiled = torchjit.compile(lambda x: x * 3, backend="eager" if where == "capture" else backend)
    thread = threading.Thread(target=compiled, args=(torch.ones(2),))
    thread.start()
    assert inside.wait(TIMEOUT)
    try:
        yield compiled
    finally:
        leave.set()
        thread.join(TIMEOUT)


def compiles() -> bool:
    """Compiles with the default backend, and compares. Torch allows no backward in a child where its parent has had one."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * 3).sum(-1) + 1

    x = torch.linspace(0, 1, 6).view(2, 3)
    compiled: Any = torchjit.compile(f)
    return torch.allclose(compiled(x), f(x)) and compiled.compiled.root.given_up is None


@pytest.mark.parametrize("where", ["capture", "backend"])
def test_a_child_compiles_and_collects(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    collects = gc.isenabled()
    with compiling_elsewhere(monkeypatch, where) as compiled:

        def says() -> bool:
            ours = gc.isenabled() == collects
            same = compiled(torch.full((2,), 2.0)).tolist() == [6.0, 6.0]  # what the parent's thread is compiling
            return ours and same and compiles()

        assert in_child(says)
    assert gc.isenabled() == collects
    assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]


def _put(queue: Any) -> None:
    queue.put(compiles())


class _Rows(torch.utils.data.Dataset[torch.Tensor]):
    """Compiles in the workers, what the main process has compiled too and what it has not."""

    def __init__(self) -> None:
        self.common = torchjit.compile(lambda x: x * 2 + 1, backend="eager")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, position: int) -> torch.Tensor:
        own = torchjit.compile(lambda x: x.cos(), backend="eager")
        result: torch.Tensor = self.common(torch.tensor([float(position)])) + own(torch.zeros(1))
        return result


def test_processes_and_workers_of_data_loaders_while_another_thread_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _Rows()
    rows.common(torch.ones(1))
    with compiling_elsewhere(monkeypatch, "capture"):
        loader = torch.utils.data.DataLoader(rows, batch_size=2, num_workers=1, multiprocessing_context="fork")
        assert torch.cat(list(loader)).flatten().tolist() == [2.0, 4.0, 6.0, 8.0]
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=_put, args=(queue,))
        process.start()
        assert queue.get(timeout=TIMEOUT)
        process.join(TIMEOUT)


def test_a_backend_forks() -> None:
    """The child comes back from the backend in the middle of a compilation, and goes on with it."""
    children = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        children.append(os.fork())
        return gm.forward

    collects = gc.isenabled()
    compiled = torchjit.compile(lambda x: x + 1, backend=backend)
    try:
        right = compiled(torch.ones(1)).tolist() == [2.0] and gc.isenabled() == collects
        if children[0] == 0:
            signal.alarm(TIMEOUT)
            os._exit(0 if right and compiles() else 1)
    finally:
        if children and children[0] == 0:
            os._exit(2)
    assert right
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
