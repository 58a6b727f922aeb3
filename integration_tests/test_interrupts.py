"""Exceptions that no operator raises: of handlers of signals, of Ctrl-C, of a user's backend. They come out, once, and leave nothing behind."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import _thread
import contextlib
import functools
import gc
import importlib.abc
import importlib.machinery
import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import torchjit
import torchjit_frame
import torchjit_guards
from torchjit_aot import entry
from torchjit_core import events
from torchjit_core.collector import full_collections_put_off
from torchjit_core.guards import Ambient, Predicate
from torchjit_core.paths import Arg
from torchjit_inductor.cpp import folders
from torchjit_vm.capture import operators, real_caches

LOG: list[Any] = []
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
        armed: list[Any] = []

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
        compiled: Any = torchjit.compile(lambda x: x + 1, backend="eager")
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

    compiled: Any = torchjit.compile(lambda x: x * 2, backend=backend, fullgraph=fullgraph)
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
        kept.append(full_collections_put_off())
        kept[-1].__enter__()
        torch._C._set_deterministic_algorithms(True)
        raise KeyboardInterrupt

    numbers, thresholds = torch.get_rng_state(), gc.get_threshold()
    compiled = torchjit.compile(lambda x: x * 2, backend=backend)
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.ones(3))
    assert (
        torch.is_grad_enabled()
        and gc.isenabled()
        and gc.get_freeze_count() < 10_000
        and gc.get_threshold() == thresholds
    )
    assert torch.autocast_increment_nesting() == 1 and torch.autocast_decrement_nesting() == 0
    assert torch._C._len_torch_dispatch_stack() == 0 and torch._C._len_torch_function_stack() == 0
    assert not torch.is_autocast_enabled("cpu") and torch.get_default_dtype() is torch.float32
    assert not torch.are_deterministic_algorithms_enabled() and torch.equal(numbers, torch.get_rng_state())


@pytest.mark.parametrize("error", [RecursionError, MemoryError, torch.OutOfMemoryError])
def test_want_of_memory_is_tried_again(error):
    left = [2]

    def backend(gm, inputs):
        if left[0]:
            left[0] -= 1
            raise error("not now")
        return gm.forward

    compiled: Any = torchjit.compile(lambda x: x * 3, backend=backend, on_error="eager")
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


# ------------------------------------------------------------------ what a handler raised is no outcome of anything


@contextlib.contextmanager
def interrupted_at(patch, owner, name, error=Alarm):
    """The next call of `owner.name` is interrupted by SIGUSR1 before its body; yields the list that arms it."""
    real, armed = getattr(owner, name), [True]

    def interrupted(*args, **kwargs):
        if armed:
            armed.clear()
            signal.raise_signal(signal.SIGUSR1)
        return real(*args, **kwargs)

    with handled(error):
        patch.setattr(owner, name, interrupted)
        yield armed


def shifts(x):
    width, steps = 3, 4
    return x * (width << steps)


def adds_text(x):
    return x + len("ab" + "cd" * 2)


def catches_what_operators_raise(x):
    try:
        return x * (1 << 2)
    except ArithmeticError:
        return x - 1


def rounds(x):
    return x * round(2.7)


class AlarmOfArithmetic(ArithmeticError):
    """A handler's that the program itself would catch."""


@pytest.mark.parametrize("program", [shifts, adds_text, rounds, catches_what_operators_raise], ids=lambda p: p.__name__)
@pytest.mark.parametrize("error", [Alarm, AlarmOfArithmetic])
def test_an_operator_that_was_interrupted_in_a_capture_does_not_raise_later(program, error, monkeypatch):
    """Constants are computed while a function is captured; that this was interrupted says nothing about the operator."""
    real, armed = operators.compute, [True]

    def compute(domain, function, *args):
        def interrupted(*values):
            if armed:
                armed.clear()
                signal.raise_signal(signal.SIGUSR1)
            return function(*values)

        return real(domain, interrupted, *args)

    for module in [m for m in sys.modules.values() if getattr(m, "compute", None) is real]:
        monkeypatch.setattr(module, "compute", compute)
    x = torch.ones(2)
    with handled(error):
        compiled = torchjit.compile(program, backend="eager")
        with contextlib.suppress(error):
            compiled(x)
        armed.clear()
        for _ in range(2):
            assert compiled(x).tolist() == program(x).tolist()
        assert compiled.compiled.root.given_up is None and len(compiled.compiled.specializations) == 1


def trained(x, w):
    return torch.tanh(x @ w).sum()


@pytest.mark.parametrize("error", [Alarm, TimeoutError, KeyboardInterrupt])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_backward_that_was_interrupted_while_it_is_compiled_is_compiled_again(backend, error, monkeypatch):
    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)
    trained(x, w).backward()
    want, x.grad = x.grad, None
    fallbacks = []
    compiled = torchjit.compile(trained, backend=backend)
    loss = compiled(x, w)
    with events.listen(lambda kind, fields: fallbacks.append(kind) if kind == "fallback" else None):
        with interrupted_at(monkeypatch, entry, "_invoke", error), pytest.raises(error):
            loss.backward()
        assert torch.is_grad_enabled() and torch._C._len_torch_dispatch_stack() == 0
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL and not torchjit_frame.is_eager()
        compiled(x, w).backward()
    torch.testing.assert_close(x.grad, want)
    assert fallbacks == []


@pytest.mark.parametrize("error", [TimeoutError, OSError])
def test_a_cache_folder_is_not_given_up_for_an_alarm(error, monkeypatch):
    """An alarm of the program's is often a `TimeoutError`, which is an `OSError`: it is not the folder's."""
    x = torch.randn(5)
    with interrupted_at(monkeypatch, folders, "cache_folder", error) as armed:
        compiled = torchjit.compile(lambda x: torch.sin(x) * 1.8125, backend="inductor")
        with pytest.raises(error, match="from the handler"):
            compiled(x)
        assert armed == [] and folders._unusable == set()
        torch.testing.assert_close(compiled(x), torch.sin(x) * 1.8125)


@pytest.mark.parametrize("error", [Alarm, ValueError, KeyError, KeyboardInterrupt])
def test_a_guard_that_is_interrupted_is_no_miss(error):
    guards = [
        Predicate(Arg.of(0, "x"), lambda value: signal.raise_signal(signal.SIGUSR1) is None, "is interrupted"),
        Ambient("interrupted", lambda: signal.raise_signal(signal.SIGUSR1), None),
    ]
    with handled(error):
        for guard in guards:
            program = torchjit_guards.GuardProgram([guard], [], 1)
            with pytest.raises(error, match="from the handler"):
                program(1)
            with pytest.raises(error, match="from the handler"):
                program.explain((1,))


def test_what_a_guard_itself_raises_is_a_miss():
    def fail(value):
        raise KeyError("gone")

    with handled(Alarm):
        program = torchjit_guards.GuardProgram([Predicate(Arg.of(0, "x"), fail, "fails")], [], 1)
        assert program(1) is None and "KeyError" in program.explain((1,)).actual


class InterruptedLoader(importlib.abc.Loader):
    """The signal comes when a module's last line has run, and the import system has not noted that."""

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.done = True
        signal.raise_signal(signal.SIGUSR1)


class FinderOf(importlib.abc.MetaPathFinder):
    def __init__(self, name):
        self.name = name

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, InterruptedLoader()) if name == self.name else None


@pytest.mark.parametrize("error", [Alarm, KeyboardInterrupt])
def test_a_module_that_is_imported_meanwhile_is_imported(error, monkeypatch):
    """The exception comes out behind the import. Modules of torch's that ran to their end cannot be imported again."""
    name = f"interrupted_{error.__name__}"
    monkeypatch.setattr(sys, "meta_path", [FinderOf(name), *sys.meta_path])

    def listener(kind, fields):
        if kind == "compile_start" and name not in sys.modules:
            importlib.import_module(name)

    compiled = torchjit.compile(lambda x: x + 1, backend="eager")
    with handled(error), events.listen(listener):
        with pytest.raises(error, match="from the handler"):
            compiled(torch.ones(2))
        assert sys.modules.pop(name).done
        sys.modules[name] = None
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    sys.modules.pop(name)


@functools.lru_cache
def scale(n):
    return n * 2


@pytest.mark.parametrize("error", [Alarm, KeyError])
def test_a_hit_that_is_interrupted_in_a_guard_makes_no_specialisation(error, monkeypatch):
    def scaled(x):
        return x * scale(3)

    compiled: Any = torchjit.compile(scaled, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2)).tolist() == [6, 6]
    with interrupted_at(monkeypatch, real_caches._Holds, "__call__", error) as armed:
        with pytest.raises(error):
            compiled(torch.ones(2))
        assert armed == []
        assert compiled(torch.ones(2)).tolist() == [6, 6]
    assert len(compiled.compiled.specializations) == 1


# ------------------------------------------------------------------ modes that our own code sets around a graph


def modes_left_by_interrupts(function, *args):
    """The grad modes after a call that is interrupted: at each place in turn where CPython calls handlers of signals.

    That is the entry of a function, and behind the call of a C function, still inside of the blocks that the call is in.
    """
    before, left = torch.is_grad_enabled(), set()
    for count in itertools.count(1):
        seen = [0]

        def profile(frame, event, arg, seen=seen, count=count):
            if event in ("call", "c_return") and arg is not sys.setprofile:
                seen[0] += 1
                if seen[0] == count:
                    raise Stop

        sys.setprofile(profile)
        try:
            function(*args)
        except Stop:
            sys.setprofile(None)
            left.add(torch.is_grad_enabled())
            torch.set_grad_enabled(before)
            assert torchjit_frame.set_eager(False) is False, count
        else:
            return left, count
        finally:
            sys.setprofile(None)


def without_history(x, p):
    return x * 2, p.detach() + 1


def grads_begin_inside(x, p):
    with torch.enable_grad():
        y = p * 2
    return y, x + 1


def view_without_grads(x, p):
    with torch.no_grad():
        v = p.view(-1)
    return v, p * x


def second_order(x, p):
    return (p * p * x).sum()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    ("program", "grad"),
    [(without_history, True), (without_history, False), (grads_begin_inside, False), (view_without_grads, True)],
)
def test_no_moment_of_a_call_leaves_the_grad_mode_of_our_own_code(program, grad, backend):
    """Wrappers and host programs change it inside of the block that restores it."""
    x, p = torch.randn(3), torch.randn(3, requires_grad=True)
    with torch.set_grad_enabled(grad):
        compiled = torchjit.compile(program, backend=backend)
        for _ in range(2):
            compiled(x, p)
        left, count = modes_left_by_interrupts(compiled, x, p)
    assert left == {grad} and count > 4


def test_no_moment_of_a_disabled_function_leaves_others_disabled():
    """Here the flag that runs compiled functions as plain Python."""
    function = torchjit.disable(lambda x, p: abs(x.sum()) + heavy(p).sum())
    left, count = modes_left_by_interrupts(function, torch.randn(3), torch.randn(3))
    assert left == {True} and count > 4


def test_no_moment_of_a_backward_leaves_the_grad_mode_of_our_own_code():
    x, p = torch.randn(3), torch.randn(3, requires_grad=True)
    compiled = torchjit.compile(second_order, backend="inductor")
    torch.autograd.grad(compiled(x, p), p, create_graph=True)
    loss = compiled(x, p)
    node = loss.grad_fn
    left, count = modes_left_by_interrupts(lambda: node.apply(torch.ones(())))
    assert left == {True} and count > 4


# ------------------------------------------------------------------ random ones


def test_random_interrupts():
    """Some of those that `tools/interrupts.py` makes; docs/benchmarks/capture.md says what thousands have shown."""
    tool = Path(__file__).parents[1] / "tools" / "interrupts.py"
    command = [sys.executable, str(tool), "--count", "8", "--seed", "7", "--go-on"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


class Interrupting:
    """A manager whose `__enter__`, a C function, is interrupted: Python calls the handler when it looks next, inside of the block."""

    __enter__ = staticmethod(_thread.interrupt_main)

    def __init__(self, swallows):
        self.swallows = swallows

    def __exit__(self, kind, error, traceback):
        LOG.append(kind)
        return self.swallows


def entered_here(x, manager):
    with manager:
        for _ in range(3):  # Python looks for signals at each turn
            x = x * 2
        LOG.append("body")
    return x


def entered_in_a_try(x, manager):
    try:
        with manager as entered:
            for _ in range(3):
                x = x * 2
            LOG.append(entered)
    finally:
        LOG.append("finally")
    return x


def entered_by_what_is_inlined(x, manager):
    return entered_here(x.sin(), manager) + 1


def entered_while_an_error_is_handled(x, manager):
    try:
        raise ValueError
    except ValueError:
        with manager:
            for _ in range(3):
                x = x * 2
    return x + 1


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize(
    "function", [entered_here, entered_in_a_try, entered_by_what_is_inlined, entered_while_an_error_is_handled]
)
def test_a_block_whose_enter_is_a_c_function_is_left(function, swallows):
    """As in plain Python nothing comes between a lock that is taken and its block: 1 in 2,700 random interrupts left one locked."""

    def handler(number, frame):
        raise Alarm

    before = signal.signal(signal.SIGINT, handler)
    try:
        compiled = torchjit.compile(function, backend="eager")
        for call in (function, compiled, compiled):
            LOG.clear()
            with contextlib.nullcontext() if swallows else pytest.raises(Alarm):
                call(torch.ones(2), Interrupting(swallows))
            left = [entry for entry in LOG if entry not in ("body", None)]  # Python looks some instructions later
            assert left == [Alarm] + ["finally"] * (function is entered_in_a_try), call
    finally:
        signal.signal(signal.SIGINT, before)
        LOG.clear()
