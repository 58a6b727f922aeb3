"""The 0/1 knapsack: what to keep in a given room, so that what is left out costs the least."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["best_to_keep"]

_UNITS = 2000


def best_to_keep(sizes: Sequence[int], worths: Sequence[float], room: int) -> list[int]:
    """Choose items of the largest total worth whose sizes fit, by dynamic programming.

    A large room is divided into units, to which sizes are rounded up; what room this leaves is filled in order of worth.

    Args:
        sizes: of the items, not negative.
        worths: of the items, not negative.
        room: what the sizes of the chosen ones may add up to.

    Returns:
        The positions of the chosen items, in order.
    """
    unit = max(1, -(-room // _UNITS))
    units = room // unit if room > 0 else 0
    best = [0.0] * (units + 1)  # for each room, the worth of the best choice among the items so far
    taken: list[bytearray] = []
    for size, worth in zip(sizes, worths, strict=True):
        need = -(-size // unit)
        took = bytearray(units + 1)
        for at in range(units, need - 1, -1):
            if best[at - need] + worth > best[at]:
                best[at] = best[at - need] + worth
                took[at] = 1
        taken.append(took)
    chosen: list[int] = []
    at = units
    for position in range(len(taken) - 1, -1, -1):
        if taken[position][at]:
            chosen.append(position)
            at -= -(-sizes[position] // unit)
    left = room - sum(sizes[i] for i in chosen)
    rest = sorted(set(range(len(sizes))) - set(chosen), key=lambda i: -worths[i])
    for i in rest:
        if sizes[i] <= left:
            chosen.append(i)
            left -= sizes[i]
    return sorted(chosen)
