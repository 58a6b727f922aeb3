"""Places in the user's source, and how to show them."""

from __future__ import annotations

import linecache
from typing import final

import attrs

__all__ = ["CodeLocation"]


@final
@attrs.frozen
class CodeLocation:
    """A range in a source file. Lines count from 1 and columns from 0 (utf-8 bytes), as in `co_positions()`.

    Attributes:
        filename: as in `code.co_filename`.
        function: qualified name of the function, for people.
        lineno, end_lineno, col, end_col: the range; None where the compiler kept none.
    """

    filename: str
    function: str
    lineno: int
    end_lineno: int | None = None
    col: int | None = None
    end_col: int | None = None

    def line(self) -> str:
        """The source line without its newline, or "" when the file cannot be read."""
        return linecache.getline(self.filename, self.lineno).rstrip("\n")

    def render(self) -> str:
        """`File "f.py", line 3, in g`, the line, and carets under the range when it lies in one line."""
        text = f'File "{self.filename}", line {self.lineno}, in {self.function}'
        line = self.line()
        if not line.strip():
            return text
        indent = len(line) - len(line.lstrip())
        text += f"\n    {line.strip()}"
        if self.col is not None and self.end_col is not None and self.end_lineno in (None, self.lineno):
            raw = line.encode()
            start = len(raw[: self.col].decode(errors="replace")) - indent
            width = max(1, len(raw[self.col : self.end_col].decode(errors="replace")))
            if start >= 0:
                text += f"\n    {' ' * start}{'^' * width}"
        return text

    def __str__(self) -> str:
        return f"{self.filename}:{self.lineno} in {self.function}"
