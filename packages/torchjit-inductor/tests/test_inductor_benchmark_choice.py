"""Races between two ways to compute the same: what their clocks count, and where results are kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

from torchjit_inductor import benchmark_choice
from torchjit_inductor.benchmark_choice import AutotuneCache


def test_races_are_kept_for_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # with several, other load decides how long a race is
    calls = []

    def contest() -> tuple[Callable[[], None], Callable[[], None]]:
        return lambda: calls.append(1), lambda: calls.append(2)

    first = AutotuneCache(str(tmp_path)).times(("a", 1), contest)
    count = len(calls)
    assert count >= 4
    assert AutotuneCache(str(tmp_path)).times(("a", 1), contest) == first
    assert len(calls) == count
    (tmp_path / "c" / "races.json").write_text("{not json")
    AutotuneCache(str(tmp_path)).times(("a", 1), contest)
    assert len(calls) > count


class Machine:
    """A processor whose clocks a test sets; what runs on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
        self.processor, self.elapsed, self.switches, self.busy = 0.0, 0.0, 0, False
        monkeypatch.setattr(benchmark_choice, "process_time", lambda: self.processor)
        monkeypatch.setattr(benchmark_choice, "perf_counter", lambda: self.elapsed)
        monkeypatch.setattr(benchmark_choice, "_switches", lambda: self.switches)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)

    def run(self, processor: float, elapsed: Iterable[float]) -> Callable[[], None]:
        """A way that takes so many milliseconds of a processor, and in its runs so many; 10 or longer is a run that was disturbed."""
        times = itertools.cycle(elapsed)

        def way() -> None:
            took = next(times)
            self.processor, self.elapsed = self.processor + processor / 1e3, self.elapsed + took / 1e3
            self.switches += took >= 10 or self.busy

        return way


def test_races_of_one_thread_count_processor_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine(monkeypatch, threads=1)
    ways = machine.run(1, [30]), machine.run(2, [20])
    first, second = AutotuneCache(str(tmp_path)).times(("a",), lambda: ways)
    assert (round(first, 6), round(second, 6)) == (0.001, 0.002)


def test_races_of_several_threads_count_undisturbed_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first way keeps a second thread busy with waiting, and other programs take the processor now and then."""
    machine = Machine(monkeypatch, threads=2)
    ways = machine.run(4, [40, 11, 3, 12, 2]), machine.run(3, [40, 5, 13, 30])
    first, second = AutotuneCache(str(tmp_path)).times(("a",), lambda: ways)
    assert (round(first, 6), round(second, 6)) == (0.002, 0.005)
    assert AutotuneCache(str(tmp_path)).times(("a",), lambda: pytest.fail("it is known")) == (first, second)


def test_races_on_a_busy_machine_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine, known = Machine(monkeypatch, threads=2), AutotuneCache(str(tmp_path))
    machine.busy = True
    ways = machine.run(1, [3, 9]), machine.run(2, [4, 1])
    first, second = known.times(("a",), lambda: ways)
    assert (round(first, 6), round(second, 6)) == (0.001, 0.002)
    assert known.times(("a",), lambda: pytest.fail("it is known")) == (first, second)
    machine.busy = False
    assert round(AutotuneCache(str(tmp_path)).times(("a",), lambda: ways)[1], 6) == 0.001
