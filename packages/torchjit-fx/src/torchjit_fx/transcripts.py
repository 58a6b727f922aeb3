"""Outcomes of calls on symbolic sizes, kept for other captures with the questions about sizes that led to them.

What a metadata function does follows from the records of its arguments and from the answers that it gets about symbols
(docs/design/0021). So an outcome holds in any capture in which the same questions have the same answers; asking them again
leaves the guards behind that the function would have left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, final

import attrs

from torchjit_core.expr import Condition, Expr
from torchjit_core.handlers import heard
from torchjit_core.location import CodeLocation
from torchjit_fx.flatten import Arguments
from torchjit_fx.node_context import NodeContext
from torchjit_fx.outcomes import Outcome, SymOther, parts
from torchjit_fx.protocols import SymbolicSizes

__all__ = ["Transcript", "TranscriptCache", "can_be_shared", "noted"]

Question: TypeAlias = "tuple[str, Condition | Expr]"
_VARIANTS = 4
"""Outcomes of one call that are kept; answers that differ each time are not worth a search."""


@final
class Transcript:
    """Stands before the owner of symbolic sizes while one call runs, and writes down what is asked.

    Attributes:
        asked: questions with their answers, in order, each once: an answer stays true while facts are only added. An answer
            "not known" is left out: what the function does then is right for both.
        repeatable: False once something was told that is no question, such as a new number that only the run knows.
    """

    def __init__(self, sizes: SymbolicSizes) -> None:
        self.sizes = sizes
        self.dynamic = sizes.dynamic
        self.asked: dict[Question, int | bool] = {}
        self.repeatable = True

    def known(self, condition: Condition) -> bool | None:
        answer = self.sizes.known(condition)
        if answer is not None:
            self.asked.setdefault(("known", condition), answer)
        return answer

    def guard(self, condition: Condition, location: CodeLocation | None) -> bool:
        answer = self.sizes.guard(condition, location)
        self.asked.setdefault(("guard", condition), answer)
        return answer

    def hint(self, expr: Expr) -> int:
        answer = self.sizes.hint(expr)
        self.asked.setdefault(("hint", expr), answer)
        return answer

    def __getattr__(self, name: str) -> Any:
        """All else depends on more than a question says, or is no question."""
        self.repeatable = False
        return getattr(self.sizes, name)


@contextmanager
def noted(context: NodeContext) -> Iterator[Transcript]:
    """Write down what is asked inside the block."""
    sizes = context.sizes
    context.sizes = transcript = Transcript(sizes)
    try:
        yield transcript
    finally:
        context.sizes = sizes


def can_be_shared(found: Arguments, context: NodeContext, writes: bool) -> bool:
    """May a call with these arguments have an outcome that other captures can use?

    Not with floats and truth values, which carry their values at capture, nor where the run decides about sizes, nor
    with tensors that a new fake cannot stand for: some views, and memory that is written and that others see.
    """
    if not found.cacheable or context.fresh or not all(isinstance(leaf.expr, Expr) for leaf in found.sym):
        return False
    if writes and not all(leaf.is_alone() for leaf in found.leaves):
        return False
    return all(r.offset == 0 and not r.conj and not r.neg for r in (leaf.record for leaf in found.leaves))


@attrs.frozen
class _Kept:
    questions: tuple[tuple[Question, int | bool], ...]
    outcome: Outcome

    def holds(self, sizes: SymbolicSizes, location: CodeLocation | None) -> bool:
        """Does everything that was asked have the same answer here? Decisions are guarded, as the call would have done:
        up to the first other answer it would have asked the same."""
        for (kind, subject), answer in self.questions:
            if kind == "known":
                now: int | bool | None = sizes.known(subject)  # type: ignore[arg-type]
            elif kind == "guard":
                now = sizes.guard(subject, location)  # type: ignore[arg-type]
            else:
                now = sizes.hint(subject)  # type: ignore[arg-type]
            if now != answer:
                return False
        return True


@final
class TranscriptCache:
    """Outcomes by the key of a call, for the whole process."""

    def __init__(self, limit: int = 50_000) -> None:
        self.limit = limit
        self._kept: dict[tuple[Any, ...], list[_Kept]] = {}

    def find(self, key: tuple[Any, ...], sizes: SymbolicSizes, location: CodeLocation | None) -> Outcome | None:
        """The outcome of the call in this capture; what it relies on is guarded.

        Raises:
            GraphBreak, UserError: a question has no answer here, as it had none if the call ran.
        """
        try:
            variants = self._kept.get(key, ())
        except TypeError:  # the key cannot be hashed
            return None
        for kept in variants:
            if kept.holds(sizes, location):
                return kept.outcome
        return None

    def put(self, key: tuple[Any, ...], transcript: Transcript, outcome: Outcome) -> None:
        """Keep an outcome for other captures, where it follows from the transcript."""
        bound = any(type(part) is SymOther for part in parts(outcome.result))  # an object of this capture
        if not transcript.repeatable or outcome.fresh or outcome.constant or bound or heard():
            return
        if len(self._kept) >= self.limit:
            self._kept.clear()
        try:
            variants = self._kept.setdefault(key, [])
        except TypeError:
            return
        variants.append(_Kept(tuple(transcript.asked.items()), outcome))
        del variants[:-_VARIANTS]

    def clear(self) -> None:
        self._kept.clear()
