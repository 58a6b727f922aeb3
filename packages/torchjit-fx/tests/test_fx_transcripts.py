"""Outcomes of calls on symbolic sizes serve later captures, and only those in which the same decisions come out the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchjit_core.expr import Condition, Expr, eq, le, symbol
from torchjit_core.location import CodeLocation
from torchjit_core.marks import SizeMark
from torchjit_core.paths import Arg
from torchjit_fx import domain
from torchjit_fx.metas import MetaService
from torchjit_fx.outcomes import Constant, Outcome, SymOther
from torchjit_fx.testing import Captured, SimpleSizes, capture_by_proxy
from torchjit_fx.transcripts import Transcript, TranscriptCache

Check = Callable[..., Captured]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[TranscriptCache]:
    """An empty one for each test."""
    made = TranscriptCache()
    monkeypatch.setattr(domain, "_TRANSCRIPTS", made)
    yield made


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which calls with symbols were tried on fakes."""
    seen: list[str] = []
    original = MetaService.run

    def run(self: Any, target: Any, args: Any, kwargs: Any, found: Any, *more: Any, **options: Any) -> Any:
        if found.symbolic:
            seen.append(target if isinstance(target, str) else getattr(target, "__name__", repr(target)))
        return original(self, target, args, kwargs, found, *more, **options)

    monkeypatch.setattr(MetaService, "run", run)
    return seen


def r(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_(grad)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "elementwise": (lambda x, y: (x + y).relu() * 2, lambda n: (r(n, 4), r(n, 4, grad=True))),
    "slices": (lambda x: (x[:8] * 2, x[1:] + 1, x[-1].sin()), lambda n: (r(n, 4, grad=True),)),
    "cat": (lambda x, y: torch.cat([x, y, x]).softmax(0), lambda n: (r(n, 4), r(n + 1, 4))),
    "convolution": (
        lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1), inplace=True), 2).flatten(1).mean(0),
        lambda n: (r(n, 3, n + 1, n + 2), r(2, 3, 3, 3, grad=True)),
    ),
    "writes": (lambda x: (x * 2).add_(x.shape[0]).clamp_(max=3), lambda n: (r(n, 4, grad=True),)),
    "writes_to_views": (lambda x: (y := x * 2, y[1:].mul_(3), y.sum())[2], lambda n: (r(n, 4),)),
    "input_written": (lambda x: x.mul_(2).add_(x.shape[0]), lambda n: (r(n, 4),)),
    "empty": (lambda x: torch.cat([torch.tensor([]), x.flatten()]), lambda n: (r(n, 4),)),
    "upsampling": (lambda x: F.interpolate(x, scale_factor=2.0), lambda n: (r(2, 3, n, n + 1),)),
    "pooling": (lambda x: F.adaptive_avg_pool2d(x, 3), lambda n: (r(2, 3, n, n + 1),)),
    "square": (lambda x: x @ x.t() if x.shape[0] == x.shape[1] else x.t() @ x, lambda n: (r(n, 6),)),
}  # fmt: skip


def described(captured: Captured) -> tuple[str, set[str]]:
    assert captured.gm is not None
    return str(captured.gm.graph), {str(guard) for guard in captured.guards}


@pytest.mark.parametrize("later", [6, 9, 14])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_later_capture_is_as_the_first_would_have_been(
    name: str, later: int, cache: TranscriptCache, check: Check, runs: list[str]
) -> None:
    """The same graph and the same guards, and results as eager's."""
    fn, make = PROGRAMS[name]
    alone = described(capture_by_proxy(fn, *make(later), sizes=SimpleSizes()))
    tried = len(runs)
    cache.clear()
    check(fn, *make(6), sizes=SimpleSizes())
    del runs[:]
    second = check(fn, *make(later), sizes=SimpleSizes())
    assert described(second) == alone
    if later == 6:
        assert len(runs) < tried or not tried


def test_another_answer_is_another_outcome(check: Check, runs: list[str]) -> None:
    fn = lambda x: x[:8] * 2  # noqa: E731  # the same line for all captures
    large = check(fn, r(12, 4), sizes=SimpleSizes(), calls=[(r(20, 5),)])
    small = check(fn, r(5, 4), sizes=SimpleSizes(), calls=[(r(7, 3),)])
    assert not large.check(r(7, 4)) and not small.check(r(12, 4))
    first = list(runs)
    again = check(fn, r(30, 4), sizes=SimpleSizes(), calls=[(r(9, 4),)])
    assert not again.check(r(7, 4)), "the decision is guarded by a capture that only asked again"
    assert runs == first, "both outcomes are kept"


def test_layouts_are_asked_about_in_each_capture(check: Check) -> None:
    """Whether an argument is contiguous was known in the first capture when the call under test came."""
    check(lambda x: (x.contiguous(), x.reshape(-1) + 1), r(6, 4), sizes=SimpleSizes())
    fn: Callable[[Any], Any] = lambda x: x.reshape(-1) + 1
    dense = check(fn, r(6, 4), sizes=SimpleSizes(), calls=[(r(7, 5),)])
    assert not dense.check(r(5, 7).t())
    strided = capture_by_proxy(fn, r(6, 8)[:, ::2], sizes=SimpleSizes())
    x = r(6, 8)[:, ::2]
    assert strided.check(x) and torch.equal(strided(x), fn(x))
    assert not strided.check(r(6, 4))


class Noted(SimpleSizes):
    """Counts the questions that are not `known`."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def guard(self, condition: Condition, location: CodeLocation | None) -> bool:
        self.asked.append(str(condition))
        return super().guard(condition, location)


def _environment(**values: int) -> tuple[Noted, dict[str, Expr]]:
    sizes = Noted()
    symbols = {name: symbol(name) for name in values}
    for name, e in symbols.items():
        (one,) = e.symbols
        sizes.values[one] = values[name]
    return sizes, symbols


def _outcome(value: object) -> Outcome:
    return Outcome(Constant(value), (), (), False, False)


def test_questions_are_asked_again_in_order_up_to_the_first_other_answer(cache: TranscriptCache) -> None:
    sizes, s = _environment(a=6, b=9)
    transcript = Transcript(sizes)
    assert transcript.guard(le(s["a"], 8), None) and transcript.guard(le(s["b"], 10), None)
    assert transcript.hint(s["b"]) == 9
    cache.put(("key",), transcript, _outcome("small"))
    alike, _ = _environment(a=7, b=9)
    assert cache.find(("key",), alike, None) is not None
    assert alike.asked == [str(le(s["a"], 8)), str(le(s["b"], 10))]
    other, _ = _environment(a=9, b=9)
    assert cache.find(("key",), other, None) is None
    assert other.asked == [str(le(s["a"], 8))], "what would not have been asked is not decided"
    hint, _ = _environment(a=7, b=8)
    assert cache.find(("key",), hint, None) is None


def test_what_is_no_question_is_not_repeated(cache: TranscriptCache) -> None:
    sizes, s = _environment(a=6)
    statements: tuple[Callable[[Transcript], object], ...] = (
        lambda t: t.oblivious(eq(s["a"], 1)),
        lambda t: t.sources(),
        lambda t: t.guards(),
        lambda t: t.varies(1.5, Arg.of(0, "x")),
        lambda t: t.example(s["a"]),
        lambda t: t.size(3, Arg.of(0, "x"), mark=SizeMark("static")),
        lambda t: t.guard_numbers("f0 > 1", (), None),
    )
    for told in statements:
        transcript = Transcript(sizes)
        told(transcript)
        assert not transcript.repeatable
        cache.put(("key",), transcript, _outcome(1))
    assert cache.find(("key",), sizes, None) is None


def test_objects_of_a_capture_stay_in_it(cache: TranscriptCache) -> None:
    sizes, _ = _environment(a=6)
    outcome = Outcome(SymOther(object(), ()), (), (), False, True)
    cache.put(("key",), Transcript(sizes), outcome)
    cache.put((["unhashable"],), Transcript(sizes), _outcome(1))
    assert cache.find(("key",), sizes, None) is None
    assert cache.find((["unhashable"],), sizes, None) is None


def test_few_outcomes_are_kept_for_a_call(cache: TranscriptCache) -> None:
    for value in range(20):
        sizes, s = _environment(a=value + 2)
        transcript = Transcript(sizes)
        transcript.hint(s["a"])
        cache.put(("key",), transcript, _outcome(value))
    last, _ = _environment(a=21)
    oldest, _ = _environment(a=2)
    found = cache.find(("key",), last, None)
    assert found is not None and isinstance(found.result, Constant) and found.result.value == 19
    assert cache.find(("key",), oldest, None) is None
