"""Settings as a class (`class Config: beta = 0.5`) and counters on one: numbers that vary become inputs, as those of objects do."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

import torchjit

X = torch.arange(6.0)


def specialisations(f: Callable[..., torch.Tensor], changes: Iterable[Callable[[], object]]) -> int:
    compiled: Any = torchjit.compile(f, backend="eager")
    for change in changes:
        change()
        torch.testing.assert_close(compiled(X), f(X))
    return len(compiled.compiled.stats.regions)


def setting(cls: type, name: str, values: Iterable[object]) -> list[Callable[[], object]]:
    return [lambda v=v: setattr(cls, name, v) for v in values]  # type: ignore[misc]


@pytest.fixture
def config() -> Any:
    class Config:
        beta = 0.5
        parts = 2

    return Config


def test_a_number_that_varies_is_compiled_twice(config: Any) -> None:
    assert specialisations(lambda x: x * config.beta, setting(config, "beta", [k / 4 for k in range(12)])) == 2
    assert specialisations(lambda x: x.reshape(config.parts, -1), setting(config, "parts", [2, 3, 6, 1])) <= 3


def test_an_equal_number_is_another_object_and_the_same_value(config: Any) -> None:
    assert specialisations(lambda x: x * config.beta, setting(config, "beta", map(float, ["0.5"] * 4))) == 1


def test_classes_below_and_instances_find_what_is_nearest(config: Any) -> None:
    below: Any = type("Below", (config,), {})
    changes = [*setting(config, "beta", [1.5, 2.5]), *setting(below, "beta", [3.5]), lambda: delattr(below, "beta")]
    assert specialisations(lambda x: x * below.beta, changes) == 2
    one = config()
    shadowing = [lambda: None, lambda: setattr(one, "parts", 9), lambda: delattr(one, "parts")]
    assert specialisations(lambda x: x * one.parts, [*shadowing, *setting(config, "parts", [4])]) <= 4


def test_what_is_no_number_any_more_is_seen(config: Any) -> None:
    others = [2, True, 3.5, torch.tensor(4.0), property(lambda self: 7), 5]
    one = config()
    assert specialisations(lambda x: x * one.parts, setting(config, "parts", others)) == len(others)


def test_a_class_that_counts_calls() -> None:
    class Counting:
        calls = 0

    def count(x: torch.Tensor) -> torch.Tensor:
        Counting.calls += 1
        return x * Counting.calls

    compiled: Any = torchjit.compile(count, backend="eager")
    for k in range(1, 13):
        torch.testing.assert_close(compiled(X), X * k)
    assert Counting.calls == 12 and len(compiled.compiled.stats.regions) == 2


def test_a_metaclass_that_answers_itself_is_asked() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            return 5.0 if name == "beta" else type.__getattribute__(cls, name)

    class Config(metaclass=Meta):
        beta = 1.0

    assert specialisations(lambda x: x * Config.beta, setting(Config, "beta", [2.0, 3.0])) == 1
