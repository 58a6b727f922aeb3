"""Blocks of code on one page: equal ones once, colored while the page is small, then plain, then left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from markupsafe import Markup, escape

from torchjit_report import highlight
from torchjit_report.model import GuardLine

__all__ = ["Listings"]

COLORED: Final = 500_000
"""Characters that are colored, which makes three or four of HTML out of one."""
PLAIN: Final = 3_500_000
"""Characters in all; what comes after them stays in the trace."""
_SHORT: Final = 200  # characters; shorter text is not worth a link


@final
class Listings:
    """The blocks of a page, in its order."""

    def __init__(self) -> None:
        self._used = 0
        self._anchors: dict[tuple[str, str], str] = {}

    @property
    def colors(self) -> bool:
        """Is the page still small?"""
        return self._used < COLORED

    def use(self, length: int) -> None:
        """Count text that the page shows in another way."""
        self._used += length

    def guards(self, guards: Iterable[GuardLine]) -> Markup:
        """A line for each guard, with the line that relies on it."""
        lines = (f"{g.text}  # {g.place.short}" if g.place else g.text for g in guards)
        return self.block("\n".join(lines))

    def block(self, text: str, language: str = "python") -> Markup:
        """A block with a button that copies it, or a link to the block with the same text."""
        known = self._anchors.get((language, text))
        if known is not None:
            return Markup('<p class="quiet same">The same text as <a href="#{}">above</a>.</p>').format(known)
        colors = self.colors
        self._used += len(text)
        if self._used > PLAIN:
            return Markup('<p class="quiet same">Left out, as the page is large: the trace has it.</p>')
        anchor = ""
        if len(text) > _SHORT:
            name = self._anchors[language, text] = f"t{len(self._anchors) + 1}"
            anchor = Markup(' id="{}"').format(name)
        shown = highlight.code(text, language) if colors else escape(highlight.printable(text))
        kind = "" if colors else Markup(' class="plain"')
        return Markup(
            '<div class="code"{}><button type="button" class="copy">Copy</button><pre tabindex="0"{}><code>{}</code></pre></div>'
        ).format(anchor, kind, shown)
