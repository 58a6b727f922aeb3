"""A capture that becomes large says so once, while it runs: how large it is, which loop is unrolled, what to do about it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import final

from torchjit_core import events
from torchjit_core.location import CodeLocation
from torchjit_fx.leaves import Step

__all__ = ["LargeCaptureNotice"]

_EVERY = 250
_ADVICE = (
    "Compile what the loop calls rather than what contains it; use an operator for the whole loop (nn.GRU for steps of nn.GRUCell, "
    "torch.cumsum, scan, while_loop); or leave the function to Python with torchjit.disable. "
    "torchjit.config.large_capture_nodes and large_capture_seconds say when this is shown."
)


@final
class LargeCaptureNotice:
    """Looks at a capture now and then.

    Args:
        nodes: the size that is told.
        seconds: the duration that is told.
        tell: shows a text to the user.

    Attributes:
        look_at: how many steps there have to be for the next look.
    """

    def __init__(self, nodes: int, seconds: float, tell: Callable[[str], None] | None) -> None:
        self._nodes = nodes
        self._seconds = seconds
        self._tell = tell
        self._start = time.perf_counter()
        self.look_at: float = min(_EVERY, nodes) if tell is not None else math.inf

    def look(self, steps: Sequence[Step]) -> None:
        """Tell if it is time to."""
        taken = time.perf_counter() - self._start
        if len(steps) < self._nodes and taken < self._seconds:
            self.look_at = min(len(steps) + _EVERY, self._nodes)
            return
        self.look_at = math.inf
        found = _most_repeated(steps)
        where = f"the loop at {found[0]}: {found[0].line().strip()!r} is unrolled" if found else "no loop was found"
        if found:
            where += f" ({found[1]} operations of one line so far, {found[2]})"
        events.emit("large_capture", nodes=len(steps), seconds=taken, where=where)
        if self._tell is not None:
            self._tell(f"capturing has taken {taken:.0f} s and {len(steps)} operations; {where}. {_ADVICE}")


def _most_repeated(steps: Sequence[Step]) -> tuple[CodeLocation, int, CodeLocation] | None:
    """The loop around the line that made most operations, how many these are, and the line."""
    count: Counter[tuple[str, int]] = Counter()
    example: dict[tuple[str, int], Step] = {}
    for step in steps:
        if step.location is None:
            continue
        key = (step.location.filename, step.location.lineno)
        count[key] += 1
        example.setdefault(key, step)
    for key, times in count.most_common():
        step = example[key]
        for place in reversed(step.stack or (step.location,)):
            loop = None if place is None else _loop_around(place)
            if loop is not None and step.location is not None:
                return loop, times, step.location
    return None


def _loop_around(place: CodeLocation) -> CodeLocation | None:
    """The `for` or `while` around a line of a function, by the indentation of the lines above; None if there is none."""
    inner = _indent(place.line())
    for number in range(place.lineno - 1, 0, -1):
        here = CodeLocation(place.filename, place.function, number)
        text = here.line()
        if not text.strip() or text.lstrip().startswith("#") or _indent(text) >= inner:
            continue
        inner = _indent(text)
        words = text.split()
        if words[0] in ("for", "while") or words[:2] == ["async", "for"]:
            return here
        if words[0] in ("def", "class") or words[:2] == ["async", "def"]:
            return None
    return None


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
