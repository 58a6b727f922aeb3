"""Coordinate descent over a kernel's plan: tile sizes, warps, addresses, one step at a time, for as long as the kernel gets faster.

The plans of `plan.py` come from a table. `coordinate_descent_tuning` measures each kernel of fixed size with its
neighbours instead; a plan counts only if its results are those of the table's plan. What was found is kept on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_core.events import emit
from torchjit_inductor.ir.kernel import LoopKernel
from torchjit_inductor.measurements import Measurements
from torchjit_inductor.triton.plan import Axis, TilePlan

__all__ = ["PlanTuner", "Shape", "neighbours", "reshaped", "shape_from_disk", "shape_of"]

GAIN = 0.97
"""A neighbour must take at most this part of the time: less is noise."""
ROUNDS = 8
LARGEST = 32768
"""Elements of a tile."""
TOLERANCE = 1e-3
"""Largest distance between the results of two plans, relative to their norm: sums in another order."""

Shape = tuple[tuple[int, ...], int, int, bool, int]
"""Block of each axis, warps, stages, whether addresses are counted from the first element, what is kept: what of a plan is varied."""
Timed = Callable[[Sequence[TilePlan]], Sequence[tuple[float, Sequence[torch.Tensor]] | str]]
"""Seconds and results of the kernel under each plan, or why it does not run."""


def shape_of(plan: TilePlan) -> Shape:
    """What of the plan is varied."""
    return tuple(a.block for a in plan.axes), plan.num_warps, plan.num_stages, plan.from_first, plan.kept


def reshaped(plan: TilePlan, shape: Shape) -> TilePlan:
    """The plan of this shape."""
    blocks, warps, stages, from_first, kept = shape
    axes = tuple(attrs.evolve(a, block=b) for a, b in zip(plan.axes, blocks, strict=True))
    return attrs.evolve(plan, axes=axes, num_warps=warps, num_stages=stages, from_first=from_first, kept=kept)


def neighbours(plan: TilePlan) -> list[TilePlan]:
    """Plans that differ in one thing by one step."""
    return [p for p in _steps(plan) if _elements(p) <= LARGEST and _elements(p) >= p.num_warps]


def _steps(plan: TilePlan) -> Iterator[TilePlan]:
    for position, axis in enumerate(plan.axes):
        for block in (axis.block // 2, axis.block * 2):
            if block >= 2 and _may_have(axis, block):
                axes = (*plan.axes[:position], attrs.evolve(axis, block=block), *plan.axes[position + 1 :])
                yield attrs.evolve(plan, axes=axes)
    for warps in (plan.num_warps // 2, plan.num_warps * 2):
        if 1 <= warps <= 32:
            yield attrs.evolve(plan, num_warps=warps)
    if any(a.looped for a in plan.axes):
        for stages in (plan.num_stages - 1, plan.num_stages + 1):
            if 1 <= stages <= 4:
                yield attrs.evolve(plan, num_stages=stages)
        yield attrs.evolve(plan, from_first=not plan.from_first)
        yield from (attrs.evolve(plan, kept=kept) for kept in _other_ends(plan))


def _other_ends(plan: TilePlan) -> Iterator[int]:
    """More or less to keep of each row: nothing in particular, a quarter, a half, all."""
    size = plan.axes[0].size.value if len(plan.axes) == 1 else None
    steps = [0] if size is None else [0, size // 4, size // 2, size]
    near = min(range(len(steps)), key=lambda n: abs(steps[n] - plan.kept))
    yield from steps[max(near - 1, 0) : near] + steps[near + 1 : near + 2]


def _may_have(axis: Axis, block: int) -> bool:
    """A reduced axis that is not walked in a loop must fit into its block; twice that would be empty."""
    return axis.looped or axis.name not in ("r", "s")


def _elements(plan: TilePlan) -> int:
    total = 1
    for axis in plan.axes:
        total *= axis.block
    return total


@final
class PlanTuner:
    """Finds and remembers plans.

    Args:
        store: results of a device: `Measurements` whose values are shapes as nested lists.
        left: seconds that may still be spent.
    """

    def __init__(self, store: Callable[[torch.device], Measurements[Shape]], left: Callable[[], float]) -> None:
        self._store, self._left = store, left

    def best(self, kernel: LoopKernel, plan: TilePlan, look: str, timed: Timed) -> TilePlan:
        """The plan to use for a kernel: what is known, what measuring finds, or the plan itself where time is up.

        Args:
            kernel: of fixed size, whose time does not depend on values.
            plan: the table's.
            look: a text that is equal for kernels that take equally long.
            timed: measures; the first result is of the table's plan.
        """
        store, name = self._store(kernel.device), hashlib.sha256(look.encode()).hexdigest()
        known: Shape | None = store.get(name)
        if known is not None:
            return reshaped(plan, known) if len(known[0]) == len(plan.axes) else plan
        if self._left() <= 0:
            return plan
        found = self._descend(kernel, plan, timed)
        blocks, *rest = shape_of(found)
        store.put(name, [list(blocks), *rest])
        return found

    def _descend(self, kernel: LoopKernel, plan: TilePlan, timed: Timed) -> TilePlan:
        times: dict[Shape, float] = {}
        rejected: dict[str, str] = {}
        (first,) = timed([plan])
        if isinstance(first, str):
            return plan
        times[shape_of(plan)], wanted = first
        # The next calls write over these results.
        wanted = [t.clone() for t in wanted]
        best, seen = plan, {shape_of(plan)}
        for _ in range(ROUNDS):
            todo = [p for p in neighbours(best) if shape_of(p) not in seen]
            if not todo or self._left() <= 0:
                break
            seen.update(map(shape_of, todo))
            emit("autotune_progress", what=kernel.name, tried=len(times) + len(rejected), known=len(seen))
            for candidate, made in zip(todo, timed(todo), strict=True):
                why = made if isinstance(made, str) else _difference(made[1], wanted)
                if why or isinstance(made, str):
                    rejected[_words(candidate)] = why
                else:
                    times[shape_of(candidate)] = made[0]
            now = reshaped(plan, min(times, key=times.__getitem__))
            if times[shape_of(now)] > GAIN * times[shape_of(best)]:
                break
            best = now
        ranked = sorted(times.items(), key=lambda item: item[1])
        emit(
            "autotune",
            what=kernel.name,
            choices=[{"choice": _words(reshaped(plan, shape)), "seconds": took} for shape, took in ranked],
            rejected=rejected,
        )
        return best


def shape_from_disk(held: Any) -> Shape:
    """A shape as `Measurements` gives it."""
    blocks, warps, stages, from_first, kept = held
    return tuple(int(b) for b in blocks), int(warps), int(stages), bool(from_first), int(kept)


def _difference(made: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    """How results differ, "" where they do not."""
    for ours, theirs in zip(made, wanted, strict=True):
        if ours.dtype.is_floating_point:
            a, b = ours.double().nan_to_num(), theirs.double().nan_to_num()
            distance = float((a - b).norm() / b.norm().clamp(min=1e-30)) if b.numel() else 0.0
            if not distance <= TOLERANCE or not torch.equal(ours.isnan(), theirs.isnan()):
                return f"wrong result: relative distance {distance:.3g}"
        elif not torch.equal(ours, theirs):
            return "wrong result"
    return ""


def _words(plan: TilePlan) -> str:
    tile = " x ".join(f"{a.name} {a.block}" for a in plan.axes) or "one element"
    more = (", from the first" if plan.from_first else "") + (f", {plan.kept} kept" if plan.kept else "")
    return f"{tile}, {plan.num_warps} warps, {plan.num_stages} stages{more}"
