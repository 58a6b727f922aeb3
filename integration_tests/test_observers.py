"""Debuggers, coverage, profilers: whoever watches, compiled functions give the same results; recursion is as deep as eager."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import bdb
import contextlib
import cProfile
import io
import pstats
import sys
import threading
import trace
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from compare import assert_same
from torch import nn

import torchjit


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.inner(x) * self.calls


def program(model: _Model, x: torch.Tensor) -> Any:
    """A module with state, a break, an exception that is caught, a generator, a comprehension."""
    y = model(x)
    torchjit.graph_break()
    parts = [y * factor for factor in (1, 2)]
    try:
        parts.append({"a": y}["b"])
    except KeyError as error:
        parts.append(y + len(error.args))
    total = sum(p.sum() for p in (part.relu() for part in parts))
    return total, parts, model.calls


@contextlib.contextmanager
def _settrace() -> Iterator[list[Any]]:
    seen: list[Any] = []

    def local(frame: Any, event: str, arg: Any) -> Any:
        seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return local

    before = sys.gettrace()
    sys.settrace(local)
    try:
        yield seen
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def _setprofile() -> Iterator[list[Any]]:
    seen: list[Any] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: seen.append(event))
    try:
        yield seen
    finally:
        sys.setprofile(before)


class _Stepper(bdb.Bdb):
    """A debugger whose user types `step` for ever, with a look at the locals each time."""

    def __init__(self) -> None:
        super().__init__(skip=["torch*", "importlib*", "sympy*"])
        self.lines: list[int] = []

    def user_line(self, frame: Any) -> None:
        self.lines.append(frame.f_lineno)
        dict(frame.f_locals)
        self.set_step()


@contextlib.contextmanager
def _debugger() -> Iterator[list[Any]]:
    stepper, before = _Stepper(), sys.gettrace()
    stepper.reset()
    sys.settrace(stepper.trace_dispatch)
    try:
        yield stepper.lines
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def _coverage() -> Iterator[list[Any]]:
    """The standard library's counter of executed lines."""
    seen: list[Any] = []
    counter, before = trace.Trace(count=1, trace=0), sys.gettrace()
    sys.settrace(counter.globaltrace)
    try:
        yield seen
    finally:
        sys.settrace(before)
    seen += counter.results().counts


@contextlib.contextmanager
def _cprofile() -> Iterator[list[Any]]:
    seen: list[Any] = []
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield seen
    finally:
        profile.disable()
    pstats.Stats(profile, stream=io.StringIO()).print_stats()
    seen += profile.getstats()


@contextlib.contextmanager
def _torch_profiler() -> Iterator[list[Any]]:
    seen: list[Any] = []
    with torch.profiler.profile(with_stack=True, record_shapes=True) as profile:
        yield seen
    seen += profile.events()


@contextlib.contextmanager
def _monitoring() -> Iterator[list[Any]]:
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009  # 3.12 and later
    seen: list[Any] = []
    events, tool = monitoring.events, monitoring.PROFILER_ID
    monitoring.use_tool_id(tool, "test")
    wanted = (events.PY_START, events.PY_RETURN, events.LINE, events.CALL, events.RAISE, events.JUMP)
    for event in wanted:
        monitoring.register_callback(tool, event, lambda *what: seen.append(what[0]))
    monitoring.set_events(tool, sum(wanted))
    try:
        yield seen
    finally:
        monitoring.set_events(tool, 0)
        for event in wanted:
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)


_OBSERVERS: dict[str, Callable[[], Any]] = {
    "settrace": _settrace,
    "setprofile": _setprofile,
    "debugger": _debugger,
    "coverage": _coverage,
    "cProfile": _cprofile,
    "torch.profiler": _torch_profiler,
    **({"monitoring": _monitoring} if hasattr(sys, "monitoring") else {}),
}


def _run(f: Callable[..., Any], model: _Model, times: int) -> list[Any]:
    return [f(model, torch.ones(2, 3) * (i + 1)) for i in range(times)]


@pytest.fixture
def model() -> Callable[[], _Model]:
    def make() -> _Model:
        torch.manual_seed(1)
        return _Model()

    return make


@pytest.mark.parametrize("name", _OBSERVERS)
def test_results_while_observed(name: str, model: Callable[[], _Model]) -> None:
    """Compiled while observed, called while observed, called when nobody looks any more."""
    want = _run(program, model(), 5)
    fast, observed = torchjit.compile(program, backend="eager"), model()
    with torchjit.config.patch(on_error="raise"):
        with _OBSERVERS[name]() as seen:
            got = _run(fast, observed, 2)
        assert seen, "nothing was observed: the test would prove nothing"
        got += [fast(observed, torch.ones(2, 3) * (i + 1)) for i in range(2, 5)]
    assert_same(got, want)


@pytest.mark.parametrize("name", _OBSERVERS)
def test_an_observer_that_comes_later(name: str, model: Callable[[], _Model]) -> None:
    """Compiled and called before; the entries are used while observed, and nothing is compiled again for that."""
    want = _run(program, model(), 6)
    graphs: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    fast, plain = torchjit.compile(program, backend=backend), model()
    got = [fast(plain, torch.ones(2, 3) * (i + 1)) for i in range(4)]
    compiled = len(graphs)
    with _OBSERVERS[name]() as seen:
        got += [fast(plain, torch.ones(2, 3) * (i + 1)) for i in range(4, 6)]
    assert seen
    assert len(graphs) == compiled > 0
    assert_same(got, want)


def test_a_debugger_steps_through_the_lines_after_a_break(model: Callable[[], _Model]) -> None:
    """What runs as Python has the user's lines: an error's traceback and a stepping debugger show them."""

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torchjit.graph_break()
        if y.shape[0] == 2:
            raise ValueError("two")
        return y

    fast = torchjit.compile(broken, backend="eager")
    first = broken.__code__.co_firstlineno
    for _ in range(2):
        with _settrace() as seen, pytest.raises(ValueError, match="two") as caught:
            fast(torch.ones(2))
        lines = [entry.lineno + 1 for entry in caught.traceback if entry.name == "broken"]
        assert first + 4 in lines
        assert any(event == "exception" for event, _, _ in seen)


def test_a_thread_that_is_traced_and_one_that_is_not(model: Callable[[], _Model]) -> None:
    want = _run(program, model(), 3)
    fast = torchjit.compile(program, backend="eager")
    results: dict[str, Any] = {}
    models = [model(), model()]  # here: seeding is global

    def call(own: _Model) -> list[Any]:
        return [fast(own, torch.ones(2, 3) * (i + 1)) for i in range(3)]

    def traced() -> None:
        with _settrace():
            results["traced"] = call(models[0])

    def free() -> None:
        results["free"] = call(models[1])

    threads = [threading.Thread(target=work) for work in (traced, free)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert_same(results["traced"], want)
    assert_same(results["free"], want)


def _deepest(call: Callable[[int], Any]) -> int:
    """The largest n for which call(n) does not raise RecursionError."""
    low, high = 1, 4 * sys.getrecursionlimit()
    while low < high:
        middle = (low + high + 1) // 2
        try:
            call(middle)
        except RecursionError:
            high = middle - 1
        else:
            low = middle
    return low


def test_recursion_through_a_compiled_function_is_as_deep() -> None:
    """A compiled function that calls itself, with a break at every level."""

    def down(x: torch.Tensor, n: int) -> torch.Tensor:
        if n == 0:
            return x
        torchjit.graph_break()
        return again(x, n - 1)

    x = torch.ones(2)
    again: Callable[..., Any] = down
    eager = _deepest(lambda n: again(x, n))
    again = torchjit.compile(down, backend="eager")
    assert torch.equal(again(x, 5), x)
    assert _deepest(lambda n: again(x, n)) >= eager


def test_a_compiled_leaf_at_the_bottom_of_a_deep_stack() -> None:
    leaf = torchjit.compile(lambda x: torch.relu(x) * 2, backend="eager")
    x = torch.ones(2)
    leaf(x)

    def down(n: int, last: Callable[..., Any]) -> torch.Tensor:
        return last(x) if n == 0 else down(n - 1, last)

    eager = _deepest(lambda n: down(n, lambda x: torch.relu(x) * 2))
    assert _deepest(lambda n: down(n, leaf)) >= eager - 1
