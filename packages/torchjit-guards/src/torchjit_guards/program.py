"""GuardProgram: guards and gather paths, compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from torchjit_core.guards import Guard, Miss
from torchjit_core.handlers import raised_in_handler
from torchjit_core.paths import AccessPath
from torchjit_guards import tags
from torchjit_guards._c import Program, pass_through, trust_tags
from torchjit_guards.explain import explain
from torchjit_guards.flat import Facts, FlatProgram, Whereabouts
from torchjit_guards.lowering import describe, lower

__all__ = ["TRUSTED_TAGS", "Facts", "GuardProgram"]


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
        flat, where: what it was lowered to, and what makes guards of that again; None of a program that was restored.
        __torchjit_guard__: a new PyCapsule `torchjit.guard.v1` that keeps the program alive.

    Raises:
        ValueError: a path starts at a slot that does not exist.
    """

    flat: FlatProgram | None
    where: Whereabouts | None
    _facts: Callable[[], Facts]
    _nslots: int

    def __new__(
        cls, guards: Sequence[Guard], gather: Sequence[AccessPath], nslots: int, *, are_distinct: bool = False
    ) -> GuardProgram:
        lowered = lower(guards, gather, nslots, are_distinct)
        facts = (lowered.guards, tuple(gather))
        made = cls.of_flat(lowered.program, nslots, lambda: facts)
        made.flat, made.where = lowered.program, lowered.where
        return made

    @classmethod
    def of_flat(cls, program: FlatProgram, nslots: int, facts: Callable[[], Facts]) -> GuardProgram:
        """A program that was lowered before, for this process.

        Args:
            program: as it was lowered, for `nslots` slots.
            nslots: how many slots a call passes.
            facts: gives `guards` and `gather` when they are asked for; what it raises goes through.

        Raises:
            ValueError: the program is malformed.
        """
        self = super().__new__(cls, nslots, program.pinned, program.bound(), program.gather)
        assert isinstance(self, GuardProgram)
        self.flat, self.where, self._facts, self._nslots = None, None, facts, nslots
        return self

    @property
    def guards(self) -> tuple[Guard, ...]:
        return self._facts()[0]

    @property
    def gather(self) -> tuple[AccessPath, ...]:
        return self._facts()[1]

    def explain(self, slots: tuple[Any, ...] | list[Any]) -> Miss | None:
        """The first fact that does not hold over `slots`, or None on a hit. Slow: by each guard's definition."""
        guards, gather = self._facts()
        return explain(guards, gather, slots)

    def listing(self) -> str:
        """The ops as text, one line each."""
        return "\n".join(
            describe(self.flat or lower(self.guards, self.gather, self._nslots, are_distinct=True).program)
        )
