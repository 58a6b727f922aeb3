"""The schedule of trials and their verdict, without torch's part: see test_never_slower.py for calls."""

from __future__ import annotations

from typing import Any

import pytest

import torchjit_guards
from torchjit_frame import Entry
from torchjit_session.trials import (
    ORDER,
    WARM,
    WARM_LATER,
    Choice,
    Trial,
    Trials,
    TrialTerms,
    Way,
    _thread,
)
from torchjit_session.trials import verdict as verdict_of


def verdict(eager: list[float], compiled: list[float]) -> Way | None:
    return verdict_of([(seconds, 0) for seconds in eager], [(seconds, 0) for seconds in compiled])


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
        self.kept: list[Choice] = []
        self.sizes: object = None
        self.faults: list[Exception] = []

    def trials(self, **given: Any) -> tuple[Trials, Entry]:
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

        known = given.pop("known", None)
        terms = TrialTerms(
            given.pop("sample", Sample), given.pop("obstacle", lambda product: ""), self.choices.append, self.faults.append,
            known if callable(known) else lambda size_class: known, self.kept.append, **given,
        )  # fmt: skip
        trials = Trials(terms, self.sizes)
        entry = new_entry()
        trials.add(entry)
        return trials, entry


def new_entry() -> Entry:
    return Entry(lambda *slots: slots, lambda *given: None)


def calls(entry: Entry, count: int, *result: object, product: int = 0) -> list[bool]:
    """What each call ran: true for eager code."""
    ran = []
    for _ in range(count):
        answer = None if entry.trial is None else entry.trial(entry, product)
        ran.append(entry.runs_original if answer is None else answer[0])
        if answer is not None:
            answer[1](*result)
    return ran


def test_the_schedule_and_its_repetition() -> None:
    script = Script(eager=0.9, compiled=1.0)
    _, entry = script.trials()
    ran = calls(entry, 20, "result")
    assert script.ways == list(ORDER) and entry.runs_original and entry.trial is None
    (choice,) = script.choices
    assert choice.decided == WARM + len(ORDER) and choice.kept == "eager"
    assert str(choice) == "kept eager: 900 ms against 1e+03 ms compiled"
    read = Choice.of_record(choice.as_record())
    assert read == choice
    again = Script(9.0, 9.0)
    _, other = again.trials(known=read)
    assert calls(other, 20, "result") == ran and again.ways == [] and again.choices == [choice]


def test_compiled_stays_early_and_in_a_repetition() -> None:
    script = Script(eager=2.0, compiled=1.0)
    _, entry = script.trials()
    ran = calls(entry, 10, "result")
    assert ran == [False] * 5 + [True] + [False] * 4 and not entry.runs_original
    _, other = Script(0.1, 9.0).trials(known=script.choices[0])
    assert calls(other, 10, "result") == ran


def test_what_ends_a_trial() -> None:
    for given, count, result, why in (
        ({"obstacle": lambda product: "no room"}, 10, ("result",), "no room"),
        ({}, 20, (), "calls raise"),
        ({"watch": lambda: lambda: "it draws"}, 1, ("result",), "it draws"),
    ):
        script = Script(0.1, 1.0)
        _, entry = script.trials(**given)
        ran = calls(entry, count, *result)
        assert script.choices[0].why_not == why and entry.trial is None and not entry.runs_original
        assert not ran[-1] and str(script.choices[0]) == f"not compared with eager: {why}"
        assert calls(script.trials(known=script.choices[0])[1], count, *result) == ran


def test_reports_only() -> None:
    script = Script(0.1, 1.0)
    trials, entry = script.trials(reported_only=True)
    calls(entry, 20, "result")
    assert not entry.runs_original and script.choices[0].is_loss
    assert [str(choice) for choice in trials.choices] == ["slower than eager: 1e+03 ms against 100 ms"]


def test_entries_share_a_trial_and_what_comes_of_it() -> None:
    script = Script(0.1, 1.0)
    trials, first = script.trials()
    second = new_entry()
    trials.add(second)
    for _ in range(6):
        calls(first, 1, "result")
        calls(second, 1, "result")
    assert first.runs_original and second.runs_original and len(script.choices) == 1
    late = new_entry()
    trials.add(late)
    assert late.runs_original and late.trial is None


def test_calls_inside_of_a_timed_one_are_not_on_trial() -> None:
    outer, inner = Script(1.0, 1.0), Script(1.0, 1.0)
    _, entry = outer.trials()
    trials, within = inner.trials()
    calls(entry, WARM, "result")
    assert entry.trial is not None
    answer = entry.trial(entry, 0)
    assert answer is not None and trials(within, 0) is None and not trials.by_class
    answer[1]("result")
    trials(within, 0)
    assert trials.by_class[0].calls == 1


def test_errors_in_here_end_a_trial_and_interrupts_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> Any:
        raise ZeroDivisionError

    def stops(*given: object) -> Any:
        raise KeyboardInterrupt

    for place in ("obstacle", "watch", "known", "sample", "taken"):
        script = Script(0.1, 1.0)
        _, entry = script.trials(**({} if place == "taken" else {place: fails}))
        with monkeypatch.context() as patched:
            if place == "taken":
                patched.setattr(Trial, "taken", fails)
            calls(entry, 20, "result")
        assert [type(error) for error in script.faults] == [ZeroDivisionError]
        assert entry.trial is None and script.choices[0].why_not == "an error inside torchjit"
    script = Script(0.1, 1.0)
    trials, entry = script.trials(sample=stops)
    calls(entry, WARM, "result")
    with pytest.raises(KeyboardInterrupt):
        calls(entry, 1, "result")
    assert not script.faults and not _thread.is_inside() and entry.trial is trials


class Sizes:
    """Stands for what reads sizes: its guard program is never asked here."""

    def __init__(self) -> None:
        self.__torchjit_guard__ = torchjit_guards.GuardProgram((), (), 0).__torchjit_guard__


def test_each_class_of_sizes_is_on_a_trial_of_its_own() -> None:
    script = Script(eager=0.9, compiled=1.0)
    script.sizes = Sizes()
    trials, entry = script.trials()
    small, large = 5, 300
    assert calls(entry, 12, "result", product=large)[5] and len(script.choices) == 1
    assert entry.trial is trials  # sizes that have not been met may come
    script.seconds["compiled"] = 0.1
    calls(entry, WARM_LATER + 3, "result", product=small)
    assert script.ways == [*ORDER, "compiled", "compiled", "eager"]
    assert len(script.choices) == 2 and trials.by_class[3].calls == WARM_LATER + 3
    assert [(choice.size_class, choice.kept) for choice in trials.choices] == [(3, "compiled"), (9, "eager")]
    assert str(trials.choices[1]).endswith("compiled (varying sizes that multiply to 256 to 511)")
    assert script.kept == script.choices
    # Another process: each class as it was, whichever comes first.
    stored = {choice.size_class: Choice.of_record(choice.as_record()) for choice in script.kept}
    again = Script(9.0, 9.0)
    again.sizes = script.sizes
    other, entry = again.trials(known=stored.get)
    calls(entry, WARM_LATER + 3, "result", product=small)
    calls(entry, 12, "result", product=large)
    assert other.choices == trials.choices and not again.ways and not again.kept
    late = new_entry()
    other.add(late)
    assert late.trial is other and late.runs_original and late.sizes is script.sizes


def test_calls_of_a_class_are_compared_by_their_sizes() -> None:
    # Eager calls win against compiled ones that are not larger.
    assert verdict_of([(0.5, 8)] * 4, [(1.0, 8)] * 5) == "eager"
    assert verdict_of([(0.5, 8)] * 4, [(1.0, 15)] * 5) == "compiled"
    assert verdict_of([(0.5, 15)] * 4, [(1.0, 8)] * 5) == "eager"
    assert verdict_of([(0.9, 15)] * 4, [(0.8, 8)] * 5) == "compiled"
    assert verdict_of([(0.5, 8), (0.5, 8), (0.5, 15), (0.5, 15)], [(1.0, 12)] * 5) == "eager"
    # They lose early against compiled ones that are not smaller.
    assert verdict_of([(3.0, 15)], [(1.0, 8), (1.0, 8)]) is None
    assert verdict_of([(3.0, 8)], [(1.0, 8), (1.0, 15)]) == "compiled"


@pytest.mark.parametrize("record", [{}, {"faster": "neither"}, {"faster": "eager", "eager": "x"}])
def test_records_that_are_none(record: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        Choice.of_record(record)
