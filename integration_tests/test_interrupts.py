"""Exceptions that no operator raises: of handlers of signals, of Ctrl-C, of a user's backend. They come out, once, and leave nothing behind."""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import torchjit
import torchjit_frame
from torchjit_core import events

LOG = []
LOCK = threading.Lock()


class Stop(BaseException):
    """A handler's."""


class Alarm(Exception):
    """A handler's that looks like an error of an operation."""


def heavy(y):
    return torch.tanh(y * 0.5) + 1


def in_finally(x):
    y = x + 1
    try:
        LOG.append("in")
        torchjit.graph_break()
        y = heavy(y)
    finally:
        LOG.append("out")
    return y


def in_lock(x):
    with LOCK:
        LOG.append("in")
        torchjit.graph_break()
        y = heavy(x)
        LOG.append("out")
    return y


def in_no_grad(x):
    with torch.no_grad():
        torchjit.graph_break()
        y = heavy(x)
    return y + 1


def in_nested_blocks(x):
    with contextlib.ExitStack() as stack:
        stack.callback(LOG.append, "callback")
        try:
            with torch.autocast("cpu"):
                torchjit.graph_break()
                x = heavy(x)
        finally:
            LOG.append("out")
            torchjit.graph_break()
            LOG.append("behind")
    return x


def inner(x):
    try:
        torchjit.graph_break()
        return heavy(x)
    finally:
        LOG.append("inner")


def in_an_inlined_call(x):
    try:
        return inner(x) + 1
    finally:
        LOG.append("outer")


def caught(x):
    try:
        torchjit.graph_break()
        x = heavy(x)
    except (Stop, Alarm, KeyboardInterrupt) as error:
        LOG.append(type(error).__name__)
        torchjit.graph_break()
        return x - 1
    return x


def behind_an_exception(x):
    try:
        try:
            torchjit.graph_break()
            raise ValueError("first")
        except ValueError:
            torchjit.graph_break()
            x = heavy(x)
    finally:
        LOG.append("out")
    return x


PROGRAMS = [
    in_finally, in_lock, in_no_grad, in_nested_blocks, in_an_inlined_call, caught, behind_an_exception
]  # fmt: skip


def outcome(function, x):
    """What a call gives or raises, what it has logged, and what it has left."""
    LOG.clear()
    try:
        said = ("returned", function(x).tolist())
    except BaseException as error:
        said = ("raised", type(error).__name__, str(error), type(error.__context__).__name__)
    left = LOCK.locked(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torchjit_frame.is_eager()
    torch.set_grad_enabled(True)
    if LOCK.locked():
        LOCK.release()
    return said, list(LOG), left


@contextlib.contextmanager
def handled(error):
    """SIGUSR1 raises an exception while the block runs."""

    def handler(number, frame):
        raise error("from the handler")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("error", [Stop, Alarm, KeyboardInterrupt])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_blocks_are_left_where_a_graph_is_interrupted(program, error):
    """Each graph in turn raises what a handler would; the blocks run as they do where the operator's place is interrupted."""

    x = torch.ones(3)
    for asynchronous in (False, True):
        armed = []

        def backend(gm, inputs, armed=armed, asynchronous=asynchronous):
            if not any(node.target is torch.tanh for node in gm.graph.nodes):
                return gm.forward

            def run(*values):
                if armed:
                    if asynchronous:
                        _thread.interrupt_main(signal.SIGUSR1)
                    else:
                        raise error("from the handler")
                return gm.forward(*values)

            return run

        with handled(error):
            compiled = torchjit.compile(program, backend=backend)
            plain = outcome(program, x)
            assert outcome(compiled, x) == plain
            assert outcome(compiled, x) == plain
            armed.append(True)
            got = outcome(compiled, x)
            armed.clear()
            want = interrupted_eagerly(program, error, x)
            assert got == want, asynchronous
            assert outcome(compiled, x) == plain


def interrupted_eagerly(program, error, x):
    """The outcome in plain Python if `heavy` is interrupted."""
    with pytest.MonkeyPatch.context() as patch:

        def stopped(y):
            raise error("from the handler")

        patch.setitem(globals(), "heavy", stopped)
        return outcome(program, x)


@pytest.mark.parametrize("error", [Stop, Alarm, KeyboardInterrupt])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_blocks_are_left_where_the_capture_of_the_rest_is_interrupted(program, error):
    """The backend is interrupted while it compiles the graph behind the break."""
    x = torch.ones(3)
    armed = [True]

    def backend(gm, inputs):
        if armed and any(node.target is torch.tanh for node in gm.graph.nodes):
            armed.clear()
            signal.raise_signal(signal.SIGUSR1)
        return gm.forward

    with handled(error):
        compiled = torchjit.compile(program, backend=backend, on_error="eager")
        assert outcome(compiled, x) == interrupted_eagerly(program, error, x)
        assert outcome(compiled, x) == outcome(program, x)
        assert all(site.given_up is None for site in compiled.compiled.sites)


def test_an_interrupt_that_is_caught_on_the_way_comes_out():
    """Whoever catches errors of operations on fakes does not keep the program's own."""
    armed = [True]

    def listener(kind, fields):
        if kind == "compile_start" and armed:
            armed.clear()
            with contextlib.suppress(Exception):
                signal.raise_signal(signal.SIGUSR1)

    with handled(Alarm), events.listen(listener):
        compiled = torchjit.compile(lambda x: x + 1, backend="eager")
        with pytest.raises(Alarm, match="from the handler"):
            compiled(torch.ones(2))
        assert compiled(torch.ones(2)).tolist() == [2, 2]
        assert compiled.compiled.root.given_up is None and len(compiled.compiled.specializations) == 1


def test_a_listeners_error_comes_out():
    def listener(kind, fields):
        if kind == "compile_start":
            raise ValueError("mine")

    compiled = torchjit.compile(lambda x: x + 1, backend="eager")
    with events.listen(listener), pytest.raises(ValueError, match="mine"):
        compiled(torch.ones(2))
    assert compiled(torch.ones(2)).tolist() == [2, 2]


def test_a_backend_may_use_signals():
    """What it catches itself is not raised again."""

    def backend(gm, inputs):
        with contextlib.suppress(Alarm):
            signal.raise_signal(signal.SIGUSR1)
        return gm.forward

    with handled(Alarm):
        compiled = torchjit.compile(lambda x: x * 2, backend=backend)
        assert compiled(torch.ones(2)).tolist() == [2, 2]
        assert signal.getsignal(signal.SIGUSR1).__name__ == "handler"


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop, SystemExit, GeneratorExit])
def test_interrupted_compilations_do_not_count(error, fullgraph):
    calls = []

    def backend(gm, inputs):
        calls.append(1)
        if len(calls) <= 12:
            raise error
        return gm.forward

    compiled = torchjit.compile(lambda x: x * 2, backend=backend, fullgraph=fullgraph)
    for _ in range(12):
        with pytest.raises(error):
            compiled(torch.ones(3))
    assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
    assert len(compiled.compiled.specializations) == 1


def test_nothing_is_left_by_a_backend_that_changes_everything():
    """All state of torch, of warnings and of the collector is as it was, whatever was set when the interrupt came."""
    from torch._subclasses import FakeTensorMode  # noqa: PLC0415  # private

    kept = []

    def backend(gm, inputs):
        torch.set_grad_enabled(False)
        kept.append(FakeTensorMode().__enter__())
        kept.append(torch.amp.autocast("cpu").__enter__())
        kept.append(torch.device("meta").__enter__())
        torch.set_default_dtype(torch.float64)
        gc.freeze()
        torch._C._set_deterministic_algorithms(True)
        raise KeyboardInterrupt

    numbers = torch.get_rng_state()
    frozen = gc.get_freeze_count()
    compiled = torchjit.compile(lambda x: x * 2, backend=backend)
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.ones(3))
    assert torch.is_grad_enabled() and gc.isenabled() and gc.get_freeze_count() == frozen
    assert torch._C._len_torch_dispatch_stack() == 0 and torch._C._len_torch_function_stack() == 0
    assert not torch.is_autocast_enabled("cpu") and torch.get_default_dtype() is torch.float32
    assert not torch.are_deterministic_algorithms_enabled() and torch.equal(numbers, torch.get_rng_state())
    torch.autocast_decrement_nesting()


@pytest.mark.parametrize("error", [RecursionError, MemoryError, torch.OutOfMemoryError])
def test_want_of_memory_is_tried_again(error):
    left = [2]

    def backend(gm, inputs):
        if left[0]:
            left[0] -= 1
            raise error("not now")
        return gm.forward

    compiled = torchjit.compile(lambda x: x * 3, backend=backend, on_error="eager")
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == [3, 3]
    assert left == [0] and compiled.compiled.root.given_up is None
    assert len(compiled.compiled.specializations) == 1


def test_want_of_memory_is_not_tried_for_ever():
    calls = []

    def backend(gm, inputs):
        calls.append(1)
        raise MemoryError

    compiled = torchjit.compile(lambda x: x * 3, backend=backend, on_error="eager")
    with pytest.warns(RuntimeWarning, match="the backend raised"):
        for _ in range(12):
            assert compiled(torch.ones(2)).tolist() == [3, 3]
    assert len(calls) == 4


def test_random_interrupts():
    """Some of those that `tools/interrupts.py` makes; docs/benchmarks/capture.md says what 2,000 have shown."""
    tool = Path(__file__).parents[1] / "tools" / "interrupts.py"
    command = [sys.executable, str(tool), "--count", "60", "--seed", "7", "--backend", "eager", "aot_eager", "--go-on"]
    command += ["--program", "no_break", "try_finally", "lock", "inlined_breaks", "data_dependent", "training"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
