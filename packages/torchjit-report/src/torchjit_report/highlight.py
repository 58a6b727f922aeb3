"""Source text to HTML: escaped, one `<span class="l">` per line, tokens in Pygments' short classes."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from markupsafe import Markup, escape
from pygments import lex
from pygments.formatters import HtmlFormatter
from pygments.lexers import CLexer, PythonLexer
from pygments.token import Token

__all__ = ["code", "inline", "lines", "printable", "prose"]

_TOO_LONG: Final = 300_000  # characters; longer text is shown plain, so that the page stays quick to make and to open
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def printable(text: str) -> str:
    """Without what HTML does not allow: control characters and lone surrogates become U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n"))


@functools.cache
def _lexer(language: str) -> Any:
    options = {"stripnl": False, "ensurenl": False}
    return CLexer(**options) if language in ("c", "cpp", "c++", "cuda") else PythonLexer(**options)


@functools.cache
def _formatter() -> Any:
    return HtmlFormatter(nowrap=True)


def lines(text: str, language: str = "python") -> list[Markup]:
    """The lines of `text`, each complete HTML of its own."""
    text = printable(text).rstrip("\n")
    if len(text) > _TOO_LONG:
        return [escape(line) for line in text.split("\n")]
    # What the lexer does not know is no error of the reader's: show it as plain text.
    tokens = ((Token.Text if kind is Token.Error else kind, value) for kind, value in lex(text, _lexer(language)))
    html: list[str] = []
    _formatter().format(tokens, _Collect(html))
    # The formatter closes its tags at the end of each line.
    found = "".join(html).split("\n")
    if len(found) == text.count("\n") + 2 and not found[-1]:
        found.pop()
    return [Markup(line) for line in found]


class _Collect:
    """The little of a file that the formatter needs."""

    def __init__(self, parts: list[str]) -> None:
        self.write = parts.append


def code(text: str, language: str = "python") -> Markup:
    """A block: lines in spans that the page numbers with a CSS counter."""
    return Markup("\n").join(Markup('<span class="l">{}</span>').format(line) for line in lines(text, language))


def inline(text: str, language: str = "python") -> Markup:
    """A short text, its lines joined by line breaks."""
    return Markup("\n").join(lines(text, language))


def prose(text: str) -> Markup:
    """A sentence; what stands in backticks is code."""
    parts = printable(text).split("`")
    if len(parts) % 2 == 0:
        return escape(printable(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if k % 2 else escape(part) for k, part in enumerate(parts)
    )
