"""`mark_static_address`: CUDA graphs read and write a marked tensor where it lies. On a simulated device, against eager."""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo

import torchjit
import torchjit_cudagraphs
from torchjit import exc
from torchjit_cudagraphs import CudaGraphSettings, GraphPool, graph_compiler
from torchjit_cudagraphs.simulated import SimulatedDriver

SETTINGS = CudaGraphSettings(warmup_calls=1, copy_up_to=0, measure=False)


class Made:
    """What was recorded in a test: each callable, by the kinds of its inputs."""

    def __init__(self) -> None:
        self.driver = SimulatedDriver()
        self.recorded: list[Any] = []

    @property
    def static(self) -> list[frozenset[int]]:
        return [r.compiled.static_inputs for r in self.recorded]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    found = Made()
    record, pool = torchjit_cudagraphs.record, GraphPool(found.driver)

    @functools.wraps(record)
    def recording(compiled: Any, inputs: Any, settings: Any, **keywords: Any) -> Any:
        compiled.reason_not_recordable = None  # but that the device is simulated
        found.recorded.append(record(compiled, inputs, SETTINGS, **keywords, pool=pool))
        return found.recorded[-1]

    monkeypatch.setattr(graph_compiler, "record", recording)
    yield found


def accumulate(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    cache.add_(x)
    return (cache * 2).sin()


def both(f: Callable[..., Any], compiled: Callable[..., Any], ours: torch.Tensor, theirs: torch.Tensor) -> None:
    for step in range(4):
        x = torch.full((4,), float(step))
        torch.testing.assert_close(compiled(x, ours), f(x, theirs))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("mark", [torchjit.mark_static_address, torch._dynamo.mark_static_address])
def test_what_is_marked_is_not_copied(made: Made, mark: Callable[..., Any]) -> None:
    compiled = torchjit.compile(accumulate, backend="cudagraphs")
    cache = torch.zeros(4)
    mark(cache)
    both(accumulate, compiled, cache, torch.zeros(4))
    (recorded,) = made.recorded
    assert [len(s) for s in made.static] == [1]
    assert (made.driver.captures, made.driver.replays) == (1, 3)
    (versions,) = recorded._recordings.values()
    assert len(versions[0].inputs.copied) == 1  # x


def test_without_a_mark_it_is(made: Made) -> None:
    compiled = torchjit.compile(accumulate, backend="cudagraphs")
    both(accumulate, compiled, torch.zeros(4), torch.zeros(4))
    assert made.static == [frozenset()]


def test_memory_elsewhere_is_recorded_anew(made: Made) -> None:
    compiled: Any = torchjit.compile(accumulate, backend="cudagraphs")
    caches = [torch.zeros(4) for _ in range(2)]
    for cache in caches:
        torchjit.mark_static_address(cache)
        both(accumulate, compiled, cache, torch.zeros(4))
    both(accumulate, compiled, torch.zeros(4), torch.zeros(4))  # not marked: right all the same
    both(accumulate, compiled, caches[0], caches[0].clone())
    assert made.driver.captures == 3
    assert len(compiled.compiled.specializations) == 1


def test_a_guarded_address_compiles_anew(made: Made) -> None:
    compiled: Any = torchjit.compile(accumulate, backend="cudagraphs")
    caches = [torch.zeros(4) for _ in range(2)]
    for cache in caches:
        torchjit.mark_static_address(cache, guard=True)
        both(accumulate, compiled, cache, torch.zeros(4))
    assert len(compiled.compiled.specializations) == 2


def test_what_varies_in_size_is_copied(made: Made) -> None:
    """Another size begins at the same address."""

    def f(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        return cache.sin().sum() + x

    memory = torch.arange(8.0)
    compiled = torchjit.compile(f, backend="cudagraphs", dynamic=True)
    for size in (4, 8, 5, 4, 8, 5, 4, 8, 5):
        torchjit.mark_static_address(part := memory[:size])
        x = torch.ones(3)
        torch.testing.assert_close(compiled(x, part), f(x, part))
    assert made.static == [frozenset()]


def test_backwards_read_it_there_too(made: Made) -> None:
    def f(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return (x * table).sin().sum()

    compiled = torchjit.compile(f, backend="cudagraphs")
    table = torch.linspace(0, 1, 4)
    torchjit.mark_static_address(table)
    for step in range(4):
        table.fill_(float(step))
        x = torch.ones(4, requires_grad=True)
        (got,) = torch.autograd.grad(compiled(x, table), x)
        (want,) = torch.autograd.grad(f(x, table), x)
        torch.testing.assert_close(got, want)
    assert len(made.static) == 2 and all(made.static)


def test_it_is_no_constant_for_freezing() -> None:
    def f(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return x + table.sin()

    compiled = torchjit.compile(f, options={"freezing": True})
    table = torch.zeros(4)
    torchjit.mark_static_address(table)
    with torch.no_grad():
        for value in (0.0, 1.0, 2.0):
            table.data.fill_(value)
            torch.testing.assert_close(compiled(torch.ones(4), table), f(torch.ones(4), table))


def test_wrong_marks() -> None:
    with pytest.raises(exc.UserError, match="got a list, want a tensor"):
        torchjit.mark_static_address([1])  # type: ignore[arg-type]


def test_the_marks_of_torchjit_itself(made: Made) -> None:
    """`cudagraph_mark_step_begin` and `cudagraph_mark_warmup_incomplete`, as a program calls them."""
    asked = [True, True, False]

    @torch.library.custom_op("parity_tests::tuned", mutates_args=())
    def tuned(x: torch.Tensor) -> torch.Tensor:
        if asked and asked.pop(0):
            torchjit.cudagraph_mark_warmup_incomplete()
        return x * 2

    tuned.register_fake(torch.empty_like)
    compiled = torchjit.compile(lambda x: tuned(x) + 1, backend="cudagraphs")
    for _ in range(5):
        torchjit.cudagraph_mark_step_begin()
        assert compiled(torch.ones(2)).tolist() == [3, 3]
    assert (made.driver.warmups, made.driver.captures) == (3, 1)
