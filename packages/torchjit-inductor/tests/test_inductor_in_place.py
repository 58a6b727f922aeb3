"""Caches that gain a position in each call: the input is written where it lies, whatever else reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from inductor_testing import cache_dir, sample, trace

from torchjit_inductor import Inductor, InductorSettings

aten = torch.ops.aten
AT = torch.tensor([2, 5])


def cached(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> Any:
    grown = aten.index_put(cache, [None, at], new)
    read = (grown * new.sum()).sum(-1)
    aten.copy_(cache, grown)
    return (read,)


def twice(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> Any:
    first = aten.index_put(cache, [None, at], new)
    second = aten.index_add(first, 1, at, new)
    third = aten.select_scatter(second, new[0, 0], 0, 1) if cache.dim() == 2 else second
    aten.copy_(cache, third)
    return (third.exp(),)


def part(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> Any:
    grown = aten.slice_scatter(cache, new.cos(), 1, 3, 5)
    aten.copy_(cache, grown)
    return (grown.sum(), at + 1)


def selected(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> Any:
    grown = aten.select_scatter(cache, new[:, 0] + 1, 1, -1)
    aten.copy_(cache, grown)
    return (grown[:, 1:].sin(),)


def one_a_row(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> Any:
    grown = aten.scatter(cache, 1, at[:1].expand(3).reshape(3, 1, 1).expand(3, 1, 4), new[:, :1])
    aten.copy_(cache, grown)
    return (grown.sum(1),)


def old_is_read(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> Any:
    grown = aten.index_put(cache, [None, at], new)
    moved = (grown - cache).flip(1)
    aten.copy_(cache, grown)
    return (moved,)


def from_itself(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> Any:
    grown = aten.index_put(cache, [None, at], aten.index_select(cache, 1, at.flip(0)))
    aten.copy_(cache, grown)
    return (new + 1,)


def middle_is_read(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> Any:
    first = aten.index_put(cache, [None, at], new)
    second = aten.index_put(first, [None, at.flip(0)], new + 1)
    aten.copy_(cache, second)
    return (first.flip(1) + second,)


def returned(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> Any:
    grown = aten.index_put(cache, [None, at], new)
    aten.copy_(cache, grown)
    return grown, grown[1], new.sum()


def swapped(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> Any:
    grown = aten.index_put(cache, [None, at], new)
    aten.copy_(new, grown[:, :2] * 2)
    aten.copy_(cache, grown)
    return (grown.sum(),)


WITHOUT_A_COPY: list[Callable[..., Any]] = [cached, part, selected, one_a_row]
ALL = [*WITHOUT_A_COPY, twice, old_is_read, from_itself, middle_is_read, returned, swapped]


@pytest.mark.parametrize("strides", [None, (1, 3, 24)], ids=["rows", "columns"])
@pytest.mark.parametrize("function", ALL, ids=lambda f: f.__name__)
def test_values_inputs_and_results(function: Callable[..., Any], strides: tuple[int, ...] | None) -> None:
    def inputs() -> list[torch.Tensor]:
        cache = sample(3, 8, 4)
        if strides is not None:
            cache = torch.empty_strided((3, 8, 4), strides).copy_(cache)
        return [cache, sample(3, 2, 4, seed=1), AT.clone()]

    gm = trace(function, inputs(), functional=False)
    graph = Inductor(InductorSettings(cache_dir=cache_dir()))(gm, inputs())
    assert graph.source
    mine, theirs = inputs(), inputs()
    for _ in range(2):  # what a result shares with an input would change with the second call
        got, want = list(graph(*mine)), list(function(*theirs))
        want = [w.clone() for w in want]
        for left, right in zip([*got, *mine], [*want, *theirs], strict=True):
            torch.testing.assert_close(left, right)
        assert not any(g.untyped_storage().data_ptr() == i.untyped_storage().data_ptr() for g in got for i in mine)
    if function in WITHOUT_A_COPY and strides is None:
        assert "empty_cpu((3, 8, 4)" not in graph.source and "empty_strided((3, 8, 4)" not in graph.source, graph.source
