"""Find the longest run of equal spans in a sequence: the blocks of a model in a graph, or in a program.

An item has a label (what it does) and references: to earlier items, by their positions, or to *leaves*, which are inputs of the whole.
Two spans are equal if their items are, one by one: equal labels, and each pair of references is to the same thing before the
run, or to items as far apart as the spans, or to leaves of which the second follows the first in every such pair.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, final

import attrs

__all__ = ["Chains", "Item", "Run", "find_run"]

_STRIDES = (1, 2, 3, 4, 6, 8)
"""A span may hold several equal items, and a run several kinds of blocks in turn: the period is then a distance of this many occurrences."""
_CANDIDATES = 8
"""Periods that are tried."""


@final
@attrs.frozen
class Item:
    """One step of the sequence.

    Attributes:
        label: equal for steps that do the same with their references.
        references: positions of earlier items, and leaves, in order.
    """

    label: Hashable
    references: tuple[Hashable, ...]


@final
@attrs.frozen
class Chains:
    """Leaves that follow one another from span to span.

    Attributes:
        places: for each leaf of a chain the chain's number and the position in it.
        members: the chains.
    """

    places: dict[Hashable, tuple[int, int]]
    members: tuple[tuple[Hashable, ...], ...]


@final
@attrs.frozen
class Run:
    """Equal spans, one behind the other.

    Attributes:
        start: position of the first item.
        period: items of a span.
        count: spans.
        chains: the leaves that differ from span to span.
    """

    start: int
    period: int
    count: int
    chains: Chains

    @property
    def end(self) -> int:
        """The position behind the last item."""
        return self.start + self.period * self.count

    def span_of(self, position: int) -> int:
        """The number of the span that an item belongs to; negative before the run, at least `count` behind it."""
        return (position - self.start) // self.period


def find_run(items: Sequence[Item], fewest: int, leaf_labels: Mapping[Any, Hashable]) -> Run | None:
    """The run that covers the most items, the shorter period first.

    Args:
        items: in order; a reference to an item is to an earlier one.
        fewest: spans that a run must have.
        leaf_labels: what leaves that follow one another must have in common.
    """
    best: Run | None = None
    for period in _periods(items, fewest):
        for run in _runs(items, period, leaf_labels):
            covered = 0 if best is None else best.period * best.count
            if run.count >= fewest and run.period * run.count > covered * 1.1:
                best = run
    return best


def _periods(items: Sequence[Item], fewest: int) -> Iterable[int]:
    """Distances at which most items have an equal one."""
    places: dict[Hashable, list[int]] = {}
    for position, item in enumerate(items):
        places.setdefault(item.label, []).append(position)
    votes: Counter[int] = Counter()
    for found in places.values():
        for stride in _STRIDES:
            for first, second in zip(found, found[stride:], strict=False):
                votes[second - first] += 1
    possible = [p for p in votes if p * fewest <= len(items)]
    return sorted(sorted(possible, key=lambda p: -votes[p])[:_CANDIDATES])


def _runs(items: Sequence[Item], period: int, leaf_labels: Mapping[Any, Hashable]) -> Iterable[Run]:
    position = 0
    while position + period < len(items):
        if items[position].label != items[position + period].label:
            position += 1
            continue
        match = _Match(items, period, position, leaf_labels)
        end = match.extend()
        count = (end - position) // period + 1
        if count > 1:
            chains = match.chains()
            if chains is not None:
                yield Run(position, period, count, chains)
        position = max(end, position) + 1


@final
class _Match:
    """Pairs of items that are equal, from `start` on."""

    def __init__(self, items: Sequence[Item], period: int, start: int, leaf_labels: Mapping[Any, Hashable]) -> None:
        self.items, self.period, self.start, self.leaf_labels = items, period, start, leaf_labels
        self.following: dict[Hashable, Hashable] = {}
        self.before: dict[Hashable, Hashable] = {}
        self.shared: set[Hashable] = set()

    def extend(self) -> int:
        """The first position whose item does not equal the one a period later."""
        items, period = self.items, self.period
        for position in range(self.start, len(items) - period):
            first, second = items[position], items[position + period]
            if first.label != second.label or not self._agree(first.references, second.references):
                return position
        return len(items) - period

    def _agree(self, first: tuple[Hashable, ...], second: tuple[Hashable, ...]) -> bool:
        """Do the references of two items correspond? If not the run ends here, and the leaves of these items are none of its leaves."""
        known = len(self.following)
        agree = len(first) == len(second) and all(map(self._follows, first, second))
        if not agree and len(self.following) > known:
            self.following = dict(itertools.islice(self.following.items(), known))
            self.before = {b: a for a, b in self.following.items()}
        return agree

    def _follows(self, a: Hashable, b: Hashable) -> bool:
        if isinstance(a, int) or isinstance(b, int):
            if not (isinstance(a, int) and isinstance(b, int)):
                return False
            return b - a == self.period or (a == b and a < self.start)
        if a is b or a == b:
            self.shared.add(a)
            return a not in self.following and a not in self.before
        if a in self.shared or b in self.shared:
            return False
        if self.following.setdefault(a, b) != b or self.before.setdefault(b, a) != a:
            return False
        return bool(self.leaf_labels.get(a) == self.leaf_labels.get(b))

    def chains(self) -> Chains | None:
        """The leaves in chains; None if one goes round."""
        places: dict[Hashable, tuple[int, int]] = {}
        members: list[tuple[Hashable, ...]] = []
        for first in self.following:
            if first in self.before:
                continue
            chain = [first]
            while chain[-1] in self.following:
                chain.append(self.following[chain[-1]])
            places |= {leaf: (len(members), k) for k, leaf in enumerate(chain)}
            members.append(tuple(chain))
        whole = len(places) == len(self.following.keys() | self.before.keys())
        return Chains(places, tuple(members)) if whole else None
