"""The schedule of trials and their verdict, without torch's part: see test_never_slower.py for calls."""

from __future__ import annotations

from typing import Any

import pytest

from torchjit_frame import Entry
from torchjit_session.trials import ORDER, WARM, Choice, Trial, Way, _thread, verdict


def test_verdicts() -> None:
    assert verdict([3.0], [1.0, 1.0]) == "compiled"
    assert verdict([3e-4], [1e-4, 1e-4]) is None  # perhaps noise
    assert verdict([1.5], [1.0, 1.0]) is None
    assert verdict([1.5, 1.3], [1.0] * 3) == "compiled"
    assert verdict([1.5, 1.1], [1.0] * 3) is None
    assert verdict([0.1, 0.1], [1.0] * 3) is None  # compiled calls, too, may have met some noise
    assert verdict([0.9, 0.8, 5.0, 5.0], [1.0] * 5) == "eager"
    assert verdict([0.5, 1.1, 1.1, 1.1], [1.0] * 5) == "compiled"  # once is noise
    assert verdict([0.98] * 4, [1.0] * 5) == "compiled"


class Script:
    """Samples that take what the script says, at once."""

    def __init__(self, eager: float, compiled: float) -> None:
        self.seconds: dict[Way, float] = {"eager": eager, "compiled": compiled}
        self.ways: list[Way] = []
        self.choices: list[Choice] = []
        self.faults: list[Exception] = []

    def trial(self, **given: Any) -> tuple[Trial, Entry]:
        script = self

        class Sample:
            def __init__(self, trial: Trial, way: Way) -> None:
                self.trial, self.way = trial, way
                script.ways.append(way)

            def done(self, *result: Any) -> None:
                if result:
                    self.trial.taken(self.way, script.seconds[self.way])
                else:
                    self.trial.lost("calls raise")

            def give_up(self) -> None: ...

        trial = Trial(Sample, given.pop("obstacle", lambda: ""), self.choices.append, self.faults.append, **given)
        entry = Entry(lambda *slots: slots, lambda *given: None)
        trial.add(entry)
        return trial, entry


def calls(entry: Entry, count: int, *result: object) -> list[bool]:
    """What each call ran: true for eager code."""
    ran = []
    for _ in range(count):
        answer = None if entry.trial is None else entry.trial(entry)
        ran.append(entry.runs_original if answer is None else answer[0])
        if answer is not None:
            answer[1](*result)
    return ran


def test_the_schedule_and_its_repetition() -> None:
    script = Script(eager=0.9, compiled=1.0)
    _, entry = script.trial()
    ran = calls(entry, 20, "result")
    assert script.ways == list(ORDER) and entry.runs_original and entry.trial is None
    (choice,) = script.choices
    assert choice.decided == WARM + len(ORDER) and choice.kept == "eager"
    assert str(choice) == "kept eager: 900 ms against 1e+03 ms compiled"
    read = Choice.of_record(choice.as_record())
    assert read == choice
    again = Script(9.0, 9.0)
    _, other = again.trial(known=read)
    assert calls(other, 20, "result") == ran and again.ways == [] and again.choices == [choice]


def test_compiled_stays_early_and_in_a_repetition() -> None:
    script = Script(eager=2.0, compiled=1.0)
    _, entry = script.trial()
    ran = calls(entry, 10, "result")
    assert ran == [False] * 5 + [True] + [False] * 4 and not entry.runs_original
    _, other = Script(0.1, 9.0).trial(known=script.choices[0])
    assert calls(other, 10, "result") == ran


def test_what_ends_a_trial() -> None:
    for given, count, result, why in (
        ({"obstacle": lambda: "no room"}, 10, ("result",), "no room"),
        ({}, 20, (), "calls raise"),
        ({"watch": lambda: lambda: "it draws"}, 1, ("result",), "it draws"),
    ):
        script = Script(0.1, 1.0)
        _, entry = script.trial(**given)
        ran = calls(entry, count, *result)
        assert script.choices[0].why_not == why and entry.trial is None and not entry.runs_original
        assert not ran[-1] and str(script.choices[0]) == f"not compared with eager: {why}"
        assert calls(script.trial(known=script.choices[0])[1], count, *result) == ran


def test_reports_only() -> None:
    script = Script(0.1, 1.0)
    trial, entry = script.trial(reported_only=True)
    calls(entry, 20, "result")
    assert not entry.runs_original and script.choices[0].is_loss
    assert str(trial.choice) == "slower than eager: 1e+03 ms against 100 ms"


def test_entries_share_a_trial_and_what_comes_of_it() -> None:
    script = Script(0.1, 1.0)
    trial, first = script.trial()
    second = Entry(lambda *slots: slots, lambda *given: None)
    trial.add(second)
    for _ in range(6):
        calls(first, 1, "result")
        calls(second, 1, "result")
    assert first.runs_original and second.runs_original and len(script.choices) == 1
    late = Entry(lambda *slots: slots, lambda *given: None)
    trial.add(late)
    assert late.runs_original and late.trial is None


def test_calls_inside_of_a_timed_one_are_not_on_trial() -> None:
    outer, inner = Script(1.0, 1.0), Script(1.0, 1.0)
    _, entry = outer.trial()
    trial, within = inner.trial()
    calls(entry, WARM, "result")
    assert entry.trial is not None
    answer = entry.trial(entry)
    assert answer is not None and trial(within) is None and trial.calls == 0
    answer[1]("result")
    trial(within)
    assert trial.calls == 1


def test_errors_in_here_end_a_trial_and_interrupts_come_out() -> None:
    def fails(*given: object) -> Any:
        raise ZeroDivisionError

    def stops(*given: object) -> Any:
        raise KeyboardInterrupt

    for place in ("obstacle", "watch", "taken", "_sample"):
        script = Script(0.1, 1.0)
        trial, entry = script.trial(**({place: fails} if place in ("obstacle", "watch") else {}))
        if place == "_sample":
            trial._sample = fails
        if place == "taken":
            trial.taken = fails  # type: ignore[method-assign, assignment]
        calls(entry, 20, "result")
        assert [type(error) for error in script.faults] == [ZeroDivisionError]
        assert entry.trial is None and script.choices[0].why_not == "an error inside torchjit"
    script = Script(0.1, 1.0)
    trial, entry = script.trial()
    trial._sample = stops
    calls(entry, WARM, "result")
    with pytest.raises(KeyboardInterrupt):
        calls(entry, 1, "result")
    assert not script.faults and not _thread.is_inside() and entry.trial is trial


@pytest.mark.parametrize("record", [{}, {"faster": "neither"}, {"faster": "eager", "eager": "x"}])
def test_records_that_are_none(record: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        Choice.of_record(record)
