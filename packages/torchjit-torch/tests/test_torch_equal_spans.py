"""Runs of equal spans in sequences of items with references."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from torchjit_torch.equal_spans import Item, find_run


def blocks(count: int, size: int = 3, before: int = 2, behind: int = 2) -> list[Item]:
    """Blocks that read the last item of the one before, the first item of all, and a weight of their own each."""
    items = [Item(("before", k), ()) for k in range(before)]
    for block in range(count):
        for k in range(size):
            last = len(items) - 1
            items.append(Item(("op", k), (last, f"w{block}_{k}", 0, "shared") if k == 0 else (last, f"w{block}_{k}")))
    items += [Item(("behind", k), (len(items) - 1,)) for k in range(behind)]
    return items


@pytest.mark.parametrize("count", [3, 4, 9])
@pytest.mark.parametrize(("size", "before", "behind"), [(2, 1, 0), (3, 2, 1), (5, 3, 3)])
def test_blocks_are_found_with_the_leaves_that_follow_one_another(
    count: int, size: int, before: int, behind: int
) -> None:
    run = find_run(blocks(count, size, before, behind), 3, {})
    assert run is not None
    assert (run.start, run.period, run.count) == (before, size, count)
    assert run.chains.members[0] == tuple(f"w{b}_0" for b in range(count))
    assert "shared" not in run.chains.places
    assert [run.span_of(p) for p in (before - 1, before, run.end - 1, run.end)] == [-1, 0, count - 1, count]


def changed(position: int, label: Hashable | None = None, references: tuple[Hashable, ...] | None = None) -> list[Item]:
    items = blocks(8)
    old = items[position]
    items[position] = Item(label or old.label, old.references if references is None else references)
    return items


@pytest.mark.parametrize(
    "items",
    [
        changed(14, label=("op", 9)),
        changed(14, references=(13, "shared", 0, "shared")),  # a weight where the others have one each
        changed(14, references=(13, "w0_0", 0, "shared")),  # the weight of another block
        changed(14, references=(12, "w4_0", 0, "shared")),  # not the item before it
        changed(14, references=(13, "w4_0", 1, "shared")),  # another one from before the blocks
        changed(14, references=(13, "w4_0", 0, "other")),
    ],
)
def test_a_block_that_differs_ends_the_run(items: list[Item]) -> None:
    run = find_run(items, 3, {})
    assert run is not None
    assert run.count < 8
    assert find_run(items, 6, {}) is None


def test_leaves_must_be_alike() -> None:
    labels: dict[Hashable, Hashable] = {f"w{b}_{k}": (b == 5) for b in range(8) for k in range(3)}
    run = find_run(blocks(8), 3, labels)
    assert run is not None
    assert run.count < 8
    assert not {"w5_0", "w5_1", "w5_2"} & set(run.chains.places)  # what is behind the run follows on no leaf of it


def test_two_kinds_in_turn_are_one_span() -> None:
    items = [Item(("a", "b", "c", "b")[k % 4], (k - 1,) if k else ()) for k in range(40)]
    run = find_run(items, 4, {})
    assert run is not None
    assert run.period == 4


def test_nothing_repeated() -> None:
    assert find_run([Item(k, ()) for k in range(20)], 2, {}) is None
    assert find_run([], 2, {}) is None
