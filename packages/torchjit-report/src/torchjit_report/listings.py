"""Blocks of code on one page: equal ones once; as they are while the page is small; then compressed until they are opened; then left out."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from typing import Final, final

from markupsafe import Markup, escape

from torchjit_report import highlight
from torchjit_report.model import GuardLine

__all__ = ["Listings"]

INLINE: Final = 60_000
"""Characters of text that stand in the page as they are, where the browser's search finds them."""
COLORED: Final = 500_000
"""Characters that are colored: that takes a second, and what comes later nobody looks at first."""
PACKED: Final = 7_000_000
"""Characters of compressed text; what comes after them stays in the trace."""
_SHORT: Final = 200  # characters; shorter text is not worth a link, nor to be compressed


@final
class Listings:
    """The blocks of a page, in its order."""

    def __init__(self) -> None:
        self._used = 0
        self._packed = 0
        self._anchors: dict[tuple[str, str], str] = {}
        self._body = ""  # of which compilation, for names of anchors
        self._whole = False

    def begin(self, anchor: str) -> bool:
        """What comes now is the body of a compilation, up to `end`. Is the page so large that it is compressed as a whole?"""
        self._body, self._whole = anchor, self._used > INLINE
        return self._whole

    def end(self, body: Markup) -> Markup:
        """The body as it stands in the page."""
        if not self._whole:
            return body
        self._whole = False
        return Markup('<div data-packed="{}"></div>').format(self._compressed(body))

    def _compressed(self, text: Markup) -> str:
        packed = base64.b64encode(zlib.compress(text.encode(errors="replace"))).decode()
        self._packed += len(packed)
        return packed

    @property
    def colors(self) -> bool:
        """Is text colored still?"""
        return self._used < COLORED

    def block(self, text: str, language: str = "python") -> Markup:
        """A block with a button that copies it, or a link to the block with the same text."""
        known = self._anchors.get((language, text))
        if known is not None:
            return Markup('<p class="quiet same">The same text as <a href="#{}">above</a>.</p>').format(known)
        anchor = ""
        if len(text) > _SHORT:
            name = self._anchors[language, text] = f"{self._body}t{len(self._anchors) + 1}"
            anchor = Markup(' id="{}"').format(name)
        shown = highlight.code(text, language) if self.colors else escape(highlight.printable(text))
        kind = "" if self.colors else Markup(' class="plain"')
        inner = Markup('<button type="button" class="copy">Copy</button><pre tabindex="0"{}><code>{}</code></pre>')
        return self._placed(inner.format(kind, shown), len(text), Markup(' class="code"{}').format(anchor))

    def guards(self, guards: Iterable[GuardLine]) -> Markup:
        """A line for each guard, with the line that relies on it: a table of thousands takes long to make."""
        lines = (f"{g.text}  # {g.place.short}" if g.place else g.text for g in guards)
        return self.block("\n".join(lines))

    def part(self, shown: Markup) -> Markup:
        """HTML that is long and stands in a closed part of the page; about a quarter of it is text."""
        return self._placed(shown, len(shown) // 4, "")

    def _placed(self, inner: Markup, length: int, attributes: str) -> Markup:
        """An element with this content: as it is, or compressed for the script of the page, which fills the element when it is to be seen."""
        self._used += length
        if self._packed > PACKED and length > _SHORT:
            left_out = Markup('<p class="quiet same">Left out, as the page is large: the trace has it.</p>')
            return Markup("<div{}>{}</div>").format(attributes, left_out)
        if self._whole or self._used <= INLINE or length <= _SHORT:
            return Markup("<div{}>{}</div>").format(attributes, inner)
        return Markup('<div{} data-packed="{}"></div>').format(attributes, self._compressed(inner))
