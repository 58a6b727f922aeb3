"""A slice of the staleness fuzzer, and what it found, as tests of their own."""

# mypy: no-warn-return-any

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from compare import assert_same
from fuzz_staleness import Stale, fuzz, replay
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from staleness_mutations import MUTATIONS

import torchjit

_STEPS = st.sampled_from(sorted(MUTATIONS)).flatmap(
    lambda entry: st.tuples(
        st.just(entry),
        st.lists(
            st.tuples(st.sampled_from([m.__name__ for m in MUTATIONS[entry]]), st.integers(0, 39)),
            min_size=1,
            max_size=12,
        ),
    )
)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(_STEPS)
def test_any_change_is_noticed(case: tuple[str, list[tuple[str, int]]]) -> None:
    replay(*case)


def test_the_fuzzer_notices_a_stale_result() -> None:
    """With guards that always hold, it must fail: else it proves nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchjit_core.guards.ValueEquals.check", lambda self, slots: True)
        patch.setattr("torchjit_guards.program.lower", _without_values)
        with pytest.raises(Stale):
            fuzz(400, 0, ["containers"])


def _without_values(guards: Any, gather: Any, nslots: int) -> Any:
    from torchjit_core.guards import ValueEquals
    from torchjit_guards.lowering import lower

    return lower([g for g in guards if not isinstance(g, ValueEquals)], gather, nslots)


def test_order_of_an_ordered_dict() -> None:
    """`move_to_end` changes neither the table that OrderedDict inherits nor its version tag."""
    weights = collections.OrderedDict(a=1.0, b=2.0)

    def f(x: torch.Tensor) -> Any:
        return [x * w for w in weights.values()], list(weights)

    fast = torchjit.compile(f, backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert_same(fast(x), f(x))
    weights.move_to_end("a")
    assert_same(fast(x), f(x))
    weights.move_to_end("a", last=False)
    assert_same(fast(x), f(x))


def test_code_that_always_breaks_at_one_place_ends() -> None:
    """What is run eagerly from a breaking instruction on must not be captured again by the hook."""
    level: Any = 2.0

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * level + 1  # noqa: F821  # deleted below

    def f(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + 1

    fast = torchjit.compile(f, backend="eager")
    assert_same(fast(torch.ones(2)), f(torch.ones(2)))
    del level
    for _ in range(2):
        with pytest.raises(NameError, match="level"):
            fast(torch.ones(2))


def test_an_error_of_the_program_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    @torchjit.compile(backend="eager")
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.index_select(0, y)

    f(torch.ones(2), torch.tensor([1]))
    with pytest.raises(IndexError):
        f(torch.ones(2), torch.tensor([5]))
    assert capfd.readouterr() == ("", "")


ENTRY: Any = 2


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + ENTRY[1],
        lambda x: x + sum(ENTRY),
        lambda x: x + len(ENTRY),
        lambda x: x + [*ENTRY][0],
        lambda x: x + max(*ENTRY),
        lambda x: x + (3 in ENTRY),
        lambda x: x + next(iter(ENTRY)),
        lambda x: x + ENTRY.count(3),
        lambda x: x + dict(a=ENTRY)["a"][1],
        lambda x: x.reshape(*ENTRY),
    ],
)
def test_an_operation_that_raises_relies_on_the_type(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of `2[1]` does not look at the 2, but at its type: the next call may bring a tuple."""
    fast, x = torchjit.compile(program, backend="eager"), torch.ones(1, 4)
    for entry in (2, (4, 1), 3.5, [1, 4], None, (2, 2), "ab"):
        monkeypatch.setitem(globals(), "ENTRY", entry)
        try:
            want = program(x)
        except Exception as error:
            with pytest.raises(type(error)):
                fast(x)
        else:
            assert_same(fast(x), want)


class _SaysTwo(list[int]):
    def __len__(self) -> int:
        return 2


class _SaysNothing(tuple[int, ...]):
    def __len__(self) -> int:
        raise NotImplementedError


class _DictOfTwo(dict[int, int]):
    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    "make", [lambda n: _SaysTwo(range(n)), lambda n: _SaysNothing(range(n)), lambda n: _DictOfTwo.fromkeys(range(n))]
)
def test_lengths_that_a_class_says_are_not_how_many_items_there_are(make: Any) -> None:
    """Items are taken by C, which does not ask for `__len__`; e3nn's irreps refuse to have one."""

    def product(x: torch.Tensor, numbers: Any) -> torch.Tensor:
        for number in numbers:
            x = x * (number + 1)
        return x

    compiled = torchjit.compile(product, backend="eager", fullgraph=True, on_error="raise")
    for count in (1, 3, 2, 5, 3):
        assert_same(compiled(torch.ones(2), make(count)), product(torch.ones(2), make(count)))
