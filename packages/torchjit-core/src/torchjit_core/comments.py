"""The program's own text (names of files, functions, attributes; source lines) in comments of generated code."""

from __future__ import annotations

__all__ = ["in_comment"]


def in_comment(text: str) -> str:
    r"""The text as part of a comment, of one line, in C++ and Python: whatever it holds, it stays in the comment.

    Line ends of every kind, other characters that do not show (which may turn text around), lone surrogates and what has a meaning inside of
    C comments (backslashes, trigraphs, `*/`) are written as escapes.

        >>> print(in_comment("a.py\nint x; //\\"))
        a.py\x0aint x; //\x5c
    """
    shown = text
    if not text.isprintable() or "\\" in text:
        shown = "".join(c if c.isprintable() and c != "\\" else _escape(c) for c in text)
    return shown.replace("??", "?\\x3f").replace("*/", "*\\x2f")


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
