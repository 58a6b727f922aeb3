"""GuardProgram: guards and gather paths, compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from torchjit_core.guards import Guard, Miss
from torchjit_core.handlers import raised_in_handler
from torchjit_core.paths import AccessPath
from torchjit_guards import tags
from torchjit_guards._c import Program, pass_through, trust_tags
from torchjit_guards.explain import explain
from torchjit_guards.lowering import Lowered, describe, lower

__all__ = ["TRUSTED_TAGS", "GuardProgram"]

TRUSTED_TAGS = (tags.dicts_work(), tags.instances_work())
"""Do dict tags tell every change, in plain dicts and in those of instances? What programs do depends on it, see tags.py."""
trust_tags(*TRUSTED_TAGS)
pass_through(raised_in_handler)


@final
class GuardProgram(Program):
    """A list of guards as one flat C program over a region's slots.

    `program(*slots)` returns the tuple of gathered objects, or None when a guard does not hold. A walk that fails
    (AttributeError, KeyError ...) is a miss; exceptions outside `Exception`, and those of signals' handlers, propagate.

    Args:
        guards: facts that must all hold; repeats are dropped.
        gather: the paths whose values a hit returns, in order. A path that leads nowhere is a miss.
        nslots: how many slots a call passes.

    Attributes:
        guards: without repeats, in the order in which they are tested.
        gather: as given.
        __torchjit_guard__: a new PyCapsule `torchjit.guard.v1` that keeps the program alive.

    Raises:
        ValueError: a path starts at a slot that does not exist.
    """

    guards: tuple[Guard, ...]
    gather: tuple[AccessPath, ...]
    _lowered: Lowered

    def __new__(
        cls, guards: Sequence[Guard], gather: Sequence[AccessPath], nslots: int, *, are_distinct: bool = False
    ) -> GuardProgram:
        lowered = lower(guards, gather, nslots, are_distinct)
        self = super().__new__(cls, nslots, lowered.pinned, lowered.ops, lowered.gather)
        assert isinstance(self, GuardProgram)
        self.guards = lowered.guards
        self.gather = tuple(gather)
        self._lowered = lowered
        return self

    def explain(self, slots: tuple[Any, ...] | list[Any]) -> Miss | None:
        """The first fact that does not hold over `slots`, or None on a hit. Slow: by each guard's definition."""
        return explain(self.guards, self.gather, slots)

    def listing(self) -> str:
        """The ops as text, one line each."""
        return "\n".join(describe(self._lowered))
