"""Source text to HTML: escaped, one `<span class="l">` per line, tokens in Pygments' short classes."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from markupsafe import Markup, escape
from pygments import lex
from pygments.lexers import CppLexer, PythonLexer
from pygments.token import STANDARD_TYPES

__all__ = ["code", "inline", "lines", "printable", "prose", "short_paths"]

_TOO_LONG: Final = 300_000  # characters; longer text is shown plain, so that the page stays quick to make and to open
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def printable(text: str) -> str:
    """Without what HTML does not allow: control characters and lone surrogates become U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n"))


_FOLDERS: Final = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[/\\\\](?:[^\s:/\\\\]+[/\\\\])+(?=[^\s:/\\\\]+:\d)")


def short_paths(text: str) -> str:
    """Without the folders of absolute paths that are followed by a line number."""
    return _FOLDERS.sub("", text)


@functools.cache
def _lexer(language: str) -> Any:
    options = {"stripnl": False, "ensurenl": False}
    return CppLexer(**options) if language in ("c", "cpp", "c++", "cuda") else PythonLexer(**options)


_CLASSES: Final = {
    kind: name
    for kind, name in STANDARD_TYPES.items()
    if name and name not in {"n", "p", "w", "x", "l", "err", "na", "ne", "nn", "nl", "nt", "nv", "nx", "py", "pm"}
}
"""Kinds of tokens that the style sheet colors, and their classes. Spans for the others would only make pages larger."""


def lines(text: str, language: str = "python") -> list[Markup]:
    """The lines of `text`, each complete HTML of its own."""
    text = printable(text).rstrip("\n")
    if len(text) > _TOO_LONG:
        return [escape(line) for line in text.split("\n")]
    found = [""]
    for kind, value in lex(text, _lexer(language)):
        name = _CLASSES.get(kind)
        for n, part in enumerate(value.split("\n")):
            if n:
                found.append("")
            if part:
                found[-1] += f'<span class="{name}">{escape(part)}</span>' if name else str(escape(part))
    return [Markup(line) for line in found]


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
