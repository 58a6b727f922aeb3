"""What a source line costs that breaks graphs or makes compilations necessary: one estimate for the page and for `torchjit.explain`."""

from __future__ import annotations

from typing import Final, final

import attrs

__all__ = ["SWITCH_SECONDS", "TimeLost"]

SWITCH_SECONDS: Final = 3e-6
"""Of entering one more region, about: its guards, the code around its graph. 2.6 to 3.0 us in regions with one operator on a CPU."""


@final
@attrs.frozen
class TimeLost:
    """Seconds that would not be spent if the line were another one, about.

    What is not in it: that kernels are not fused over a break, and what the line itself takes, which runs in Python in any case.

    Attributes:
        compiling: capturing and compiling the regions that go on behind a break, or that a miss made necessary.
        switches: how often a region behind the break was entered.
        guards: testing the guards of these regions, where that was measured.
    """

    compiling: float = 0.0
    switches: int = 0
    guards: float = 0.0

    @property
    def calling(self) -> float:
        """Entering the regions behind the break."""
        return self.switches * SWITCH_SECONDS + self.guards

    @property
    def seconds(self) -> float:
        """All of it: lines are ranked by this."""
        return self.compiling + self.calling

    def __str__(self) -> str:
        parts = [f"{_shown(self.compiling)} compiling"] if self.compiling else []
        if self.switches:
            times = "once" if self.switches == 1 else f"{self.switches:,} times"
            parts.append(f"{_shown(self.calling)} entering regions behind it {times}")
        return f"about {_shown(self.seconds)} lost" + (f": {' + '.join(parts)}" if parts else "")


def _shown(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.0f} us"
