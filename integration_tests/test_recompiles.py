"""Misses as data, the recompile limit, stances."""

# mypy: allow-untyped-calls, allow-untyped-defs, no-warn-return-any

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import pytest
import torch

import torchjit
from torchjit_core.reasons import UserError


def test_every_miss_is_told_as_data() -> None:
    class Config:
        act = "relu"

    config = Config()

    def f(x: torch.Tensor) -> torch.Tensor:
        return getattr(torch, config.act)(x)

    fast: Any = torchjit.compile(f, backend="eager")
    fast(torch.ones(2))
    config.act = "sin"
    fast(torch.ones(2))
    fast(torch.ones(2))
    fast(torch.ones(2, 2))
    stats = fast.compiled.stats
    first, second = stats.recompiles
    assert "'act' not in" in first.guard and (first.expected, first.actual) == ("absent", "present")
    assert first.location is not None and first.location.line().strip() == "return getattr(torch, config.act)(x)"
    assert "patch" in first.advice
    assert second.expected == "number of dimensions 1" and "reshape" in second.advice
    assert [r.hits for r in stats.regions] == [1, 2, 1]
    assert "avoid it" in str(stats)


def test_advice_is_the_line_to_write() -> None:
    """Of an argument the call itself; of what is behind a break the argument that it comes from."""

    def rows(pixels: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        y = pixels * 2
        torchjit.graph_break()
        return y + sum(more.values())

    fast: Any = torchjit.compile(rows, backend="eager")
    for columns in (3, 4):
        fast(torch.ones(2, columns))
    outer, behind = fast.compiled.stats.recompiles
    assert "torchjit.mark_dynamic(pixels, 1)" in outer.advice
    assert "argument that it comes from" in behind.advice and "mark_dynamic(y" not in behind.advice
    strided: Any = torchjit.compile(lambda pixels: pixels + 1, backend="eager")
    strided(torch.ones(4, 4))
    strided(torch.ones(4, 4).t())
    assert "lie in memory alike" in strided.compiled.stats.recompiles[0].advice


@pytest.mark.parametrize("sequences", [1, 2])
def test_the_last_token_of_a_sequence_that_grows(sequences: int) -> None:
    """One row of something wider lies in memory as far apart as that is wide, also where there is no second row."""

    def last(ids: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        return ids * 2, ids.stride()

    fast: Any = torchjit.compile(last, backend="eager", fullgraph=True)
    for length in (5, 6, 7, 20):
        ids = torch.arange(sequences * length).view(sequences, length)[:, -1:]
        doubled, stride = fast(ids)
        torch.testing.assert_close(doubled, ids * 2)
        assert stride == (length, 1)
    assert len(fast.compiled.stats.regions) == 2


def test_state_that_the_first_call_makes_is_told_by_a_name_not_by_its_numbers() -> None:
    weight = torch.nn.Parameter(torch.ones(3, 3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    step: Any = torchjit.compile(optimizer.step, backend="eager")
    for _ in range(3):
        weight.grad = torch.ones(3, 3)
        step()
    (told,) = step.compiled.stats.recompiles
    assert "<Parameter object> not in" in told.guard and "tensor(" not in told.guard and "\n" not in told.guard
    assert told.advice.startswith("nothing if the first call makes the entry")


def test_advice_fits_what_changed() -> None:
    class Shifted(torch.nn.Module):
        def forward(self, x: torch.Tensor, by: torch.Tensor | None = None) -> torch.Tensor:
            return x if by is None else x + by

    fast: Any = torchjit.compile(Shifted(), backend="eager")
    fast(torch.ones(3))
    fast(torch.ones(3), torch.ones(3))
    assert "an optional one as None" in fast.compiled.stats.recompiles[0].advice
    optional: Any = torchjit.compile(lambda x, by=None: x if by is None else x + by, backend="eager")
    optional(torch.ones(3))
    optional(torch.ones(3), torch.ones(3))
    assert "one compilation each" in optional.compiled.stats.recompiles[0].advice
    number: Any = torchjit.compile(lambda x, n: x * n, backend="eager")
    for n in (2, 3, 4):
        number(torch.ones(3), n)
    (told,) = number.compiled.stats.recompiles
    assert told.advice.startswith("nothing if one compilation for all further numbers will do")


def test_advice_on_numbers_that_an_operation_takes_as_constants() -> None:
    def dropped(x: torch.Tensor, p: float) -> torch.Tensor:
        return torch.nn.functional.dropout(x, p)

    fast: Any = torchjit.compile(dropped, backend="eager")
    for p in (0.1, 0.2, 0.3):
        fast(torch.ones(3), p)
    first, second = fast.compiled.stats.recompiles
    assert "it becomes an input" in first.advice
    assert "takes this number as a constant" in second.advice and second.location.function.endswith("dropped")


def test_of_many_keyword_arguments_those_are_told_that_differ() -> None:
    def total(**kwargs: torch.Tensor) -> torch.Tensor:
        return sum(kwargs.values(), torch.zeros(()))

    fast: Any = torchjit.compile(total, backend="eager")
    many = {f"a_long_name_of_a_keyword_argument_{k}": torch.ones(2) for k in range(9)}
    for call in (many, many | {"last": torch.ones(2)}, {"first": torch.ones(2)}, {"second": torch.ones(2)}):
        fast(**call)
    added, fewer, other = fast.compiled.stats.recompiles
    assert (added.expected, added.actual) == ("without ['last']", "with ['last']")
    assert fewer.expected.startswith("with ['a_long") and "with ['first'], without [" in fewer.actual
    assert (other.expected, other.actual) == ("['first']", "['second']")
    assert "same keyword arguments" in added.advice


class History:
    """What a training loop keeps of its steps."""

    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []
        self.window: deque[torch.Tensor] = deque(maxlen=3)
        self.metrics: defaultdict[str, list[torch.Tensor]] = defaultdict(list)

    def note(self, loss: torch.Tensor) -> None:
        self.losses.append(loss)
        self.window.append(loss)
        self.metrics["double"] += [loss, loss]
        self.metrics["squares"].extend(loss**k for k in (2, 3))


def test_appending_does_not_depend_on_the_length() -> None:
    def f(history: History, x: torch.Tensor) -> torch.Tensor:
        loss = x.sum()
        history.note(loss)
        return loss

    fast: Any = torchjit.compile(f, backend="eager")
    histories = History(), History()
    for history, run in zip(histories, (f, fast), strict=True):
        history.metrics["double"], history.metrics["squares"] = [], []
        for k in range(12):
            run(history, torch.full((2,), float(k)))
    want, got = histories
    assert (got.losses, got.window, got.metrics) == (want.losses, want.window, want.metrics)
    assert got.window.maxlen == 3
    assert fast.compiled.stats.recompiles == ()


@pytest.mark.parametrize("length", [0, 2])
def test_what_was_appended_is_read(length: int) -> None:
    """Before the list itself is read, between and after; with the list under two names as well."""

    def f(mine: Any, other: Any, x: torch.Tensor) -> Any:
        mine.append(x)
        other.append(2)
        mine.append(len(mine))
        mine.extend(v for v in list(mine)[-1:] if other.append(3) is None)
        return mine[-2], mine[0] * 2, list(other), bool(mine), sum(1 for _ in mine)

    fast = torchjit.compile(f, backend="eager")
    for make in (list, lambda items: deque(items, 4)):
        for same in (False, True):
            found = []
            for run in (f, fast):
                mine, other = make([5] * length), make([6] * length)
                other = mine if same else other
                found.append((run(mine, other, torch.tensor(1)), mine, other))
            assert found[0] == found[1]


def test_logs_tell_recompiles_and_guards(caplog: pytest.LogCaptureFixture) -> None:
    torchjit.set_logs(recompiles=True, guards=True)
    try:
        fast = torchjit.compile(lambda x: x + 1, backend="eager")
        with caplog.at_level("INFO", logger="torchjit"):
            fast(torch.ones(2))
            fast(torch.ones(2, dtype=torch.float64))
    finally:
        torchjit.set_logs(recompiles=False, guards=False)
    assert "expected dtype torch.float32, got dtype torch.float64" in caplog.text
    assert "convert inputs before the call" in caplog.text
    assert "grad_mode == True" in caplog.text


def test_the_limit_runs_eagerly_and_warns_once() -> None:
    values = ["a"]

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + len(values[0])

    fast: Any = torchjit.compile(f, backend="eager")
    with (
        torchjit.config.patch(cache_size_limit=3, automatic_dynamic_shapes=False),
        pytest.warns(RuntimeWarning) as told,
    ):
        for n in range(8):
            values[0] = "b" * n
            assert fast(torch.zeros(1)).item() == n
    assert torchjit.config.cache_size_limit == torchjit.config.recompile_limit == 8
    assert len(told) == 1 and "TJ-API-020" in str(told[0].message) and "To avoid it" in str(told[0].message)
    assert told[0].filename == __file__  # the line that called, not one of ours
    assert len(fast.compiled.specializations) == 3
    values[0] = "b"
    assert fast(torch.zeros(1)).item() == 1  # what was compiled is still used
    assert fast.compiled.stats.regions[1].hits >= 1


def test_the_warning_ranks_causes() -> None:
    """Misses about one thing are one cause, whatever its values were."""
    mode = ["a"]
    fast = torchjit.compile(lambda x: x + len(mode[0]), backend="eager", recompile_limit=5)
    with pytest.warns(RuntimeWarning) as told:
        for n in range(7):
            mode[0] = "b" * (n - (n > 2))
            fast(torch.ones(1 if n < 3 else (1, 1)))
    (warning,) = told
    text = str(warning.message)
    often, seldom = text.index("<cell mode>.cell_contents[0] (4x, last:"), text.index("x: number of dimensions (1x")
    assert text.index("what missed") < often < seldom < text.index("To avoid it")


def test_misses_of_a_module_name_the_module() -> None:
    """Not the method of torch in which every module starts."""

    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    fast = torchjit.compile(Doubled(), backend="eager")
    fast(torch.ones(2))
    fast(torch.ones(2, dtype=torch.float64))
    (miss,) = fast.compiled.stats.recompiles
    assert miss.function == Doubled.__qualname__
    assert miss.location is not None and miss.location.filename == __file__ and "def forward" in miss.location.line()


def test_the_accumulated_limit_names_the_causes_of_all_regions() -> None:
    mode = ["a"]

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + len(mode[0])
        torchjit.graph_break()
        return y * len(mode[0])

    fast: Any = torchjit.compile(f, backend="eager")
    with (
        torchjit.config.patch(accumulated_recompile_limit=5, automatic_dynamic_shapes=False),
        pytest.warns(RuntimeWarning) as told,
    ):
        for n in range(1, 8):
            mode[0] = "b" * n
            assert fast(torch.ones(1)).item() == (1 + n) * n
    (warning,) = told
    text = str(warning.message)
    assert "TJ-API-020" in text and "have 5 specialisations together (accumulated_recompile_limit)" in text
    assert "mode" in text.partition("what missed: ")[2] and "first call" not in text and "0 specialisations" not in text
    assert sum(len(site.specializations) for site in fast.compiled.sites) == 5


def test_calls_of_compile_do_not_share_a_limit() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sum()

    first = torchjit.compile(f, backend="eager", recompile_limit=1, isolate_recompiles=True)
    second = torchjit.compile(f, backend="eager", recompile_limit=1, isolate_recompiles=True)
    first(torch.ones(2))
    second(torch.ones(2, 2))
    assert [len(c.compiled.specializations) for c in (first, second)] == [1, 1]


def counted() -> tuple[Any, list[int]]:
    ran: list[int] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            ran.append(1)
            return gm.forward(*args)

        return run

    return torchjit.compile(lambda x: x * 2, backend=backend), ran


def test_force_eager() -> None:
    f, ran = counted()
    with torchjit.set_stance("force_eager"):
        f(torch.ones(2))
    assert not ran and not f.compiled.specializations
    f(torch.ones(2))
    with torchjit.set_stance("force_eager"):
        f(torch.ones(2))
    assert len(ran) == 1

    @torchjit.set_stance("force_eager")
    def program() -> None:
        f(torch.ones(2))

    program()
    assert len(ran) == 1
    f(torch.ones(2))
    assert len(ran) == 2
    torchjit.set_stance("force_eager")
    f(torch.ones(2))
    torchjit.set_stance("default")
    f(torch.ones(2))
    assert len(ran) == 3


def test_eager_and_fail_on_recompile() -> None:
    f, ran = counted()
    f(torch.ones(2))
    with torchjit.set_stance("eager_on_recompile"):
        f(torch.ones(2))
        assert torch.equal(f(torch.ones(2, 2)), torch.full((2, 2), 2.0))
    assert len(ran) == 2 and len(f.compiled.specializations) == 1
    with torchjit.set_stance("fail_on_recompile"):
        f(torch.ones(2))
        with pytest.raises(torchjit.exc.FailOnRecompile, match="number of dimensions"):
            f(torch.ones(2, 2))
    f(torch.ones(2, 2))
    assert len(f.compiled.specializations) == 2


def test_eager_then_compile_finds_what_changes() -> None:
    f, ran = counted()
    with torchjit.set_stance("eager_then_compile"):
        for rows in (4, 5, 6, 7):
            assert f(torch.ones(rows, 3)).shape == (rows, 3)
    assert len(ran) == 3 and len(f.compiled.specializations) == 1


def test_unknown_stances_are_refused() -> None:
    with pytest.raises(UserError, match="force_eager"):
        torchjit.set_stance("force_eagr")


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, weight: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return x * weight if x.shape[0] == 5 else x + weight


def test_a_module_s_arguments_have_the_names_of_forward() -> None:
    x, weight = torch.ones(5, 3), torch.ones(3)
    torchjit.mark_dynamic(x, 0)
    compiled = torchjit.compile(Scaled(), backend="eager")
    shadowed = torch.nn.Module()
    shadowed.forward = lambda x: x + 1 if x.shape[0] == 5 else x  # on the instance: takes no self
    other = torchjit.compile(shadowed, backend="eager")
    for call in (lambda: compiled(x, weight), lambda: compiled(weight=weight, x=x), lambda: other(x)):
        with pytest.raises(UserError, match=r"x\.size\(0\) is marked dynamic, and the program needs x\.size\(0\) == 5"):
            call()


def test_kinds_of_tensors_are_told_in_words():
    f: Any = torchjit.compile(lambda x: x * 2, backend="eager")
    f(torch.ones(3))
    with torch.inference_mode():
        f(torch.ones(3))
    told = f.compiled.stats.recompiles[-1]
    assert "outside of inference mode" in told.expected and "made in inference mode" in told.actual
    assert "inference mode" in told.advice
    g: Any = torchjit.compile(lambda z: z * 2, backend="eager")
    z = torch.ones(3, dtype=torch.complex64)
    g(z), g(z.conj())
    assert g.compiled.stats.recompiles[-1].actual == "a tensor with Conjugate"


def test_what_rests_on_a_class_before_it_was_patched_makes_room_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first `torch.compile` of a process patches `nn.Module.__init__`, on which slices of a ModuleList rest."""

    class Maker:
        def __init__(self) -> None:
            self.factor = 2

    def fn(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * Maker().factor + len(name)

    names, x = ("a", "bb", "ccc"), torch.ones(3)
    compiled = torchjit.compile(fn, recompile_limit=3)

    def graphs_of_all() -> int:
        before = torchjit.counters["stats"]["unique_graphs"]
        for _ in range(2):
            for name in names:
                torch.testing.assert_close(compiled(x, name), fn(x, name))
        return torchjit.counters["stats"]["unique_graphs"] - before

    def patched(original: Any) -> Any:
        def init(self: Any) -> None:
            original(self)
            self.factor += 1

        return init

    assert graphs_of_all() == 3
    monkeypatch.setattr(Maker, "__init__", patched(Maker.__init__))
    assert graphs_of_all() == 3
    assert not torchjit.counters["recompile_limit"]
    monkeypatch.setattr(Maker, "__init__", patched(Maker.__init__))
    with pytest.warns(RuntimeWarning, match="3 specialisations"):
        assert graphs_of_all() == 0
