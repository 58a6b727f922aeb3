"""The setting `never_slower`: calls on trial are right, run once, and the faster way is kept. Times are made up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torchjit
from torchjit_core import events
from torchjit_session import never_slower
from torchjit_session.callables import compilation_of
from torchjit_session.trial_samples import EventClock, ThreadClock, clock_for
from torchjit_session.trials import ORDER, WARM, WARM_LATER, Choice
from torchjit_store.choices import ChoiceFolder

ALL = WARM + len(ORDER)


class Made:
    """A backend that runs the captured graph, and the clock that says what its runs take; eager calls take 1."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.runs = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            self.runs += 1
            return gm.forward(*inputs)

        return run

    def now(self) -> int:
        return self.runs

    def between(self, start: int, end: int) -> float:
        return self.seconds if end > start else 1.0


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Made]:
    """What takes 5 where eager code takes 1, with the setting on."""
    backend = Made(getattr(request, "param", 5.0))

    class Clock:
        now = staticmethod(backend.now)
        seconds = staticmethod(backend.between)

    monkeypatch.setattr(never_slower, "clock_for", lambda devices: Clock())
    monkeypatch.delenv("TORCHJIT_NEVER_SLOWER", raising=False)
    with torchjit.config.patch(never_slower="on"):
        yield backend
    torchjit.counters.pop("never_slower", None)


def made_by(compiled: Any) -> Any:
    return compilation_of(compiled)


def choice_of(compiled: Any, number: int = 0) -> Choice | None:
    trials = made_by(compiled).specializations[number].trials
    return None if trials is None or not trials.choices else trials.choices[0]


SLOWER = pytest.mark.parametrize("made", [5.0], indirect=True)
FASTER = pytest.mark.parametrize("made", [0.2], indirect=True)
CLOSE = pytest.mark.parametrize("made", [1.1], indirect=True)


@pytest.mark.parametrize("made", [5.0, 0.2, 1.1, 0.9], indirect=True)
def test_the_faster_way_is_kept_and_each_call_happens_once(made: Made) -> None:
    done: list[str] = []
    buffer = torch.zeros(3)

    def f(x: torch.Tensor) -> torch.Tensor:
        done.append("call")
        buffer.add_(x)
        return (x * 2).sin() + buffer

    c = torchjit.compile(f, backend=made)
    x = torch.arange(3.0)
    for i in range(1, 21):
        got = c(x)
        assert torch.equal(buffer, x * i) and torch.equal(got, (x * 2).sin() + buffer)
    assert done == ["call"] * 20
    choice = choice_of(c)
    assert choice is not None and choice.kept == ("eager" if made.seconds > 1 else "compiled")
    assert made.runs + len(choice.eagerly) + (20 - choice.decided) * (choice.kept == "eager") == 20
    assert sum(e.hits for e in made_by(c).entries) == 20
    told = str(made_by(c).stats)
    if made.seconds == 5.0:
        assert "    kept eager: 1e+03 ms against 5e+03 ms compiled" in told
    assert str(choice) in told and made_by(c).stats.as_dict()["regions"][0]["compared"][0]["eager"] == 1.0
    assert torchjit.counters["never_slower"] == {f"kept {choice.kept}": 1}


@SLOWER
def test_training_is_timed_with_its_backward(made: Made) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    reference = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    reference.load_state_dict(model.state_dict())
    compiled = torchjit.compile(model, backend=made)
    ours, theirs = (torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (model, reference))
    for step in range(20):
        x = torch.randn(5, 4)
        for m, optimizer in ((compiled, ours), (reference, theirs)):
            optimizer.zero_grad()
            m(x).square().mean().backward()
            optimizer.step()
        assert (choice_of(compiled) is None) == (step < ALL - 1)
    choice = choice_of(compiled)
    assert choice is not None and choice.kept == "eager" and choice.eager == 2.0 and choice.compiled == 6.0
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(p, q)


@SLOWER
def test_a_forward_whose_backward_never_comes_is_not_compared(made: Made) -> None:
    weight = torch.ones(3, requires_grad=True)
    c = torchjit.compile(lambda x: x * weight, backend=made)
    for _ in range(30):
        c(torch.ones(3))
    choice = choice_of(c)
    assert choice is not None and choice.kept == "compiled" and "no backward followed" in choice.why_not
    assert made.runs + len(choice.eagerly) == 30


@SLOWER
def test_what_may_hide_gradients_is_not_compared(made: Made) -> None:
    class Result:
        def __init__(self, value: torch.Tensor) -> None:
            self.value = value

    weight = torch.ones(3, requires_grad=True)
    c = torchjit.compile(lambda x: Result(x * weight), backend=made)
    for _ in range(5):
        c(torch.ones(3)).value.sum().backward()
    choice = choice_of(c)
    assert choice is not None and "objects" in choice.why_not and weight.grad is not None
    assert torch.equal(weight.grad, torch.full((3,), 5.0))


@SLOWER
def test_errors_are_those_of_the_program(made: Made) -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] * 2

    c = torchjit.compile(f, backend=made)
    x, right, wrong = torch.arange(4.0), torch.tensor([1, 2]), torch.tensor([9])
    c(x, right)
    c(x, torch.tensor([3]))
    for i in range(40):
        if i % 3 == 2:
            with pytest.raises(IndexError):
                c(x, wrong)
        else:
            assert torch.equal(c(x, right), x[right] * 2)
    choices = [choice_of(c, n) for n in range(len(made_by(c).specializations))]
    assert any(choice is not None and choice.kept == "eager" for choice in choices)


@CLOSE
def test_threads(made: Made) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).relu()

    c = torchjit.compile(f, backend=made)
    c(torch.ones(2))
    wrong: list[object] = []

    def work(number: int) -> None:
        x = torch.full((2,), float(number))
        for _ in range(200):
            if not torch.equal(c(x), x + 1):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong and choice_of(c) is not None
    assert sum(e.hits for e in made_by(c).entries) == 801


@SLOWER
def test_each_entry_is_on_a_trial_of_its_own(made: Made) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    c = torchjit.compile(f, backend=made, dynamic=False)
    for _ in range(ALL):
        c(torch.ones(2))
    c(torch.ones(3))
    assert choice_of(c, 0) is not None and choice_of(c, 1) is None
    runs = made.runs
    c(torch.ones(2))
    assert made.runs == runs
    for size in (2, 3, 2, 3):
        assert torch.equal(c(torch.ones(size)), torch.full((size,), 2.0))
    assert made.runs == runs + 2
    torchjit.reset()
    c(torch.ones(2))
    assert choice_of(c) is None and made.runs == runs + 3


@SLOWER
def test_fullgraph_and_report_keep_what_is_compiled(made: Made) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    told: list[str] = []
    for mode, fullgraph in (("on", True), ("report", False)):
        with (
            torchjit.config.patch(never_slower=mode),
            events.listen(lambda kind, fields: told.append(fields["choice"]), ["compared_with_eager"]),
        ):
            c = torchjit.compile(f, backend=made, fullgraph=fullgraph)
            for _ in range(ALL):
                c(torch.ones(2))
        choice = choice_of(c)
        assert choice is not None and choice.kept == "compiled" and choice.is_loss
        runs = made.runs
        c(torch.ones(2))
        assert made.runs == runs + 1
    assert told == ["slower than eager: 5e+03 ms against 1e+03 ms"] * 2
    assert torchjit.counters["never_slower"] == {"slower than eager": 2}


@SLOWER
def test_a_function_with_breaks_is_one_call(made: Made) -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def f(x: torch.Tensor) -> torch.Tensor:
        y = inner(x)
        torchjit.graph_break()
        return inner(y * 2).sin()

    c = torchjit.compile(f, backend=made)
    x = torch.ones(2)
    for _ in range(ALL):
        assert torch.equal(c(x), f(x))
    runs = made.runs
    assert torch.equal(c(x), f(x)) and made.runs == runs
    assert [s.trials is not None for s in made_by(c).specializations] == [True, False]
    told = made_by(c).stats
    assert told.kept_eager == told.regions and told.as_dict()["kept_eager"] == [r.compile_id for r in told.regions]
    assert f"Kept eager: 2 of 2 regions, {told.op_count} of {told.op_count} operators (100.0%)" in str(told)


@SLOWER
def test_random_numbers_of_other_backends_are_left_alone(made: Made) -> None:
    c = torchjit.compile(lambda x: F.dropout(x, 0.5), backend=made)
    for _ in range(5):
        c(torch.ones(3))
    choice = choice_of(c)
    assert choice is not None and "random" in choice.why_not and choice.eagerly == ()


@SLOWER
def test_what_is_never_compared(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    monkeypatch.setattr(never_slower, "free_bytes", lambda devices: 10)
    monkeypatch.setattr(never_slower, "_LITTLE", 0)
    c = torchjit.compile(f, backend=made)
    for _ in range(ALL):
        c(torch.ones(2))
    choice = choice_of(c)
    assert choice is not None and "are free" in choice.why_not and choice.eagerly == ()
    for backend in ("eager", "aot_eager"):
        c = torchjit.compile(f, backend=backend)
        c(torch.ones(2))
        assert choice_of(c) is None and made_by(c).specializations[0].trials is None
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    c = torchjit.compile(f, backend=made, isolate_recompiles=True)
    c(torch.ones(2))
    assert made_by(c).specializations[0].trials is None
    monkeypatch.undo()
    with torchjit.config.patch(never_slower="off"):
        c = torchjit.compile(f, backend=made)
        c(torch.ones(2))
    assert made_by(c).specializations[0].trials is None


@SLOWER
def test_equal_modules_share_a_trial(made: Made) -> None:
    modules = [torch.nn.Linear(2, 2) for _ in range(2)]
    compiled = [torchjit.compile(module, backend="inductor") for module in modules]
    with torch.no_grad(), torchjit.config.patch(caches=False):
        for _ in range(4):
            for c, module in zip(compiled, modules, strict=True):
                assert torch.allclose(c(torch.ones(1, 2)), module(torch.ones(1, 2)))
    first, second = (made_by(c).specializations[0].trials for c in compiled)
    assert first is not None and first is second and first.by_class[0].calls == 8


@SLOWER
def test_varying_sizes_have_a_choice_for_each_class(made: Made) -> None:
    def f(x: torch.Tensor, y: torch.Tensor, count: int) -> torch.Tensor:
        return torch.cat([x, y]).sin() * count

    c = torchjit.compile(f, backend=made, dynamic=True)

    def runs(rows: int, columns: int, times: int = 1) -> int:
        """How many of the calls ran compiled."""
        before = made.runs
        for count in range(times):
            x, y = torch.rand(rows, columns), torch.rand(rows + 1, columns)
            assert torch.equal(c(x, y, count + 5), f(x, y, count + 5))
        return made.runs - before

    runs(8, 6, ALL)  # 8 * 9 * 6: from 256 to 511
    made.seconds = 0.2
    assert runs(2, 2, WARM_LATER + 3) == WARM_LATER + 2
    assert len(made_by(c).specializations) == 1
    choices = made_by(c).specializations[0].trials.choices
    assert [(choice.size_class, choice.kept) for choice in choices] == [(4, "compiled"), (9, "eager")]
    assert [runs(8, 6), runs(8, 5), runs(2, 2), runs(2, 2), runs(9, 4)] == [0, 0, 1, 1, 0]
    assert runs(40, 40) == 1  # what is not known runs compiled
    told = str(made_by(c).stats)
    assert "kept eager" in told and "(varying sizes that multiply to 8 to 15)" in told
    assert "Kept eager: 1 of 1 regions (1 in some sizes only), 3 of 3 operators (100.0%)" in told
    compared = made_by(c).stats.as_dict()["regions"][0]["compared"]
    assert [one["size_class"] for one in compared] == [4, 9]


@CLOSE
def test_choices_for_sizes_go_to_the_next_process(made: Made, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path))

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 3

    def choices(sizes: dict[int, int]) -> tuple[Choice, ...]:
        c = torchjit.compile(f, dynamic=True)
        for size, times in sizes.items():
            for _ in range(times):
                x = torch.rand(size)
                torch.testing.assert_close(c(x), f(x))
        found: tuple[Choice, ...] = made_by(c).specializations[0].trials.choices
        return found

    made.seconds = 1.0  # of every call, as none runs this backend
    first = choices({5: ALL, 70: WARM_LATER + len(ORDER)})
    assert [choice.size_class for choice in first] == [3, 7] and len(list((tmp_path / "choices").iterdir())) == 2
    monkeypatch.setattr(ChoiceFolder, "write", lambda *given: pytest.fail("it is known"))
    monkeypatch.setattr(never_slower, "_sample", lambda *given: pytest.fail("it is known"))
    assert choices({70: WARM_LATER + len(ORDER), 7: ALL}) == first


@SLOWER
def test_larger_sizes_may_need_more_memory_than_is_free(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.T).sum(0)

    monkeypatch.setattr(never_slower, "_LITTLE", 0)
    monkeypatch.setattr(never_slower, "free_bytes", lambda devices: 10_000)
    c = torchjit.compile(f, backend=made, dynamic=True)
    for rows, times in ((4, ALL), (40, WARM_LATER + 3)):
        for _ in range(times):
            c(torch.rand(rows, 5))
    small, large = made_by(c).specializations[0].trials.choices
    assert small.kept == "eager" and not small.why_not
    # Of 4 rows the product and its sums are 80 bytes, and its rows are there twice.
    assert large.why_not.startswith("eager code may need") and large.eagerly == ()


@CLOSE
def test_the_next_process_repeats_the_calls(made: Made, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path))
    x = torch.linspace(-1, 1, 7)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 3

    def choices() -> Choice | None:
        c = torchjit.compile(f)
        for _ in range(ALL):
            torch.testing.assert_close(c(x), f(x))
        return choice_of(c)

    made.seconds = 1.0  # of every call, as none runs this backend
    first = choices()
    assert first is not None and first.kept == "compiled" and len(first.eagerly) == 4
    (file,) = (tmp_path / "choices").iterdir()
    monkeypatch.setattr(ChoiceFolder, "write", lambda *given: pytest.fail("it is known"))
    monkeypatch.setattr(never_slower, "_sample", lambda *given: pytest.fail("it is known"))
    assert choices() == first
    file.write_text("{")
    monkeypatch.undo()
    assert ChoiceFolder(str(tmp_path)).read(file.stem) is None
    ChoiceFolder(str(tmp_path)).clear()
    assert not list((tmp_path / "choices").iterdir())


@SLOWER
def test_faults_reach_no_call(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> Any:
        raise ZeroDivisionError

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    for name in ("_key", "_may_be_compared", "_obstacle", "TimedCall"):
        with monkeypatch.context() as patched, pytest.warns(RuntimeWarning, match="TJ-API-077"):
            patched.setattr(never_slower, name, fails)
            c = torchjit.compile(f, backend=made, isolate_recompiles=True, on_error="eager")
            for _ in range(ALL):
                assert torch.equal(c(torch.ones(2)), torch.full((2,), 2.0))
    monkeypatch.setattr(never_slower, "TimedCall", fails)
    c = torchjit.compile(f, backend=made, isolate_recompiles=True, on_error="raise")
    with pytest.raises(torchjit.exc.TorchjitError, match="TJ-API-077"):
        for _ in range(ALL):
            c(torch.ones(2))
    assert torch.equal(c(torch.ones(2)), torch.full((2,), 2.0))


def test_clocks() -> None:
    clock = clock_for(frozenset({"cpu"}))
    assert isinstance(clock, ThreadClock)
    start = clock.now()
    sum(range(10_000))
    taken = clock.seconds(start, clock.now())
    assert taken is None or 0 < taken < 60
    assert isinstance(clock_for(frozenset({"cuda", "cpu"})), EventClock)
    assert clock_for(frozenset({"mps"})) is None and clock_for(frozenset({"meta", "cpu"})) is None
