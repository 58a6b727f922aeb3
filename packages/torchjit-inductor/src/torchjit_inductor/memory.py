"""Which buffer takes over the memory of which dead one, without ever holding more memory than freeing everything at once.

Memory that is handed on need not be allocated, on a CPU not be mapped again page by page. But between its two users it is held
for nothing, while operators of aten allocate beside it: a ResNet-50 held 40 MiB so where 14 were alive. So a buffer waits
for its successor only where the memory in use, with it, stays within the program's peak.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import final

import attrs

from torchjit_inductor.ir.kernel import LoopKernel
from torchjit_inductor.ir.values import PASSES, Value

__all__ = ["MemoryEvent", "overwritable", "plan_reuse"]


@final
@attrs.frozen
class MemoryEvent:
    """A buffer's memory begins or ends to be used.

    Attributes:
        step: position in the program. Within a step memory begins before other memory ends.
        name: the buffer.
        kind: buffers of one kind can stand for one another; None for those that cannot.
        size: bytes.
        begins: or ends.
    """

    step: int
    name: str
    kind: Hashable | None
    size: int
    begins: bool


def plan_reuse(events: Sequence[MemoryEvent]) -> dict[str, str]:
    """For each buffer that gets a dead one's memory, the dead one.

    Args:
        events: in the order of the program, as if nothing were handed on.
    """
    if not events:
        return {}
    # Bytes in use during each step.
    used = [0] * (events[-1].step + 2)
    live = 0
    for position, event in enumerate(events):
        live += event.size if event.begins else 0
        used[event.step] = max(used[event.step], live)
        live -= 0 if event.begins else event.size
        following = events[position + 1].step if position + 1 < len(events) else event.step + 1
        for step in range(event.step + 1, following + 1):
            used[step] = live
    peak = max(used)
    dead: dict[Hashable, list[MemoryEvent]] = {}
    found: dict[str, str] = {}
    for event in events:
        if event.kind is None:
            continue
        waiting = dead.setdefault(event.kind, [])
        if not event.begins:
            waiting.append(event)
            continue
        # The one that died last is still in the caches, and waits for the shortest time.
        for old in reversed(waiting):
            between = range(old.step + 1, event.step)
            if old.step < event.step and all(used[step] + old.size <= peak for step in between):
                for step in between:
                    used[step] += old.size
                waiting.remove(old)
                found[event.name] = old.name
                break
    return found


def overwritable(kernel: LoopKernel, old: str, new: str) -> bool:
    """May `new` take the memory of `old` while the kernel runs?

    Each element must be read, for the last time, by the very iteration that writes it: every load of `old` has the index
    of the store to `new`, and no later pass over the inner loops needs `old` again.
    """
    store = next(s for s in kernel.stores if s.buffer == new)
    uses = [v for v in kernel.values if v.op == "load" and v.data.buffer == old]
    if not all(map(store.is_read_by, uses)):
        return False
    if not kernel.inner:
        return True
    if store.outer:
        return False
    passes = _passes(kernel)
    needs = _needed_until(kernel, uses, passes, passes[store.value])
    # What is stored per outer point is computed after the last pass, from the operands again.
    return needs is not None and all(
        not s.outer and passes[s.value] <= passes[store.value] for s in kernel.stores if s.value in needs
    )


def _needed_until(
    kernel: LoopKernel, uses: Sequence[Value], passes: Mapping[Value, int], last: int
) -> set[Value] | None:
    """What is computed from `uses` in one pass with them; None if a pass after the last one needs them."""
    needs: set[Value] = set(uses)
    for value in kernel.values:
        if value.op in PASSES:
            # A sum beside the store is added up in the same run of the inner loops. On GPUs some threads of a program may load what
            # others have stored by then.
            beside = value.op == "reduce" and passes[value] == passes[value.args[0]] + 1 and kernel.device.type == "cpu"
            if value.args[0] in needs and passes[value] > last + beside:
                return None
        elif any(a in needs for a in value.args):
            needs.add(value)
    return needs


def _passes(kernel: LoopKernel) -> dict[Value, int]:
    """Levels as a backend may run them: a mean and the squared distances from it can take two passes."""
    passes: dict[Value, int] = {}
    for value in kernel.values:
        own = 0 if value.op not in PASSES else 2 if value.data in ("welford_mean", "welford_m2") else 1
        passes[value] = max((passes[a] for a in value.args), default=0) + own
    return passes
