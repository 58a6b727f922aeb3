"""A graph's code with shapes, dtypes and the program's lines as comments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["annotated"]

_ASSIGNS: Final = re.compile(r"\s+(\w+)\s*(?::[^=]*)?=[^=]")
_DEFINES: Final = re.compile(r"\s*def \w+\((.*)\)")


def annotated(code: str, values: Mapping[str, Any], lines: Mapping[str, Any]) -> str:
    """The code, each assignment followed by `# float32[3, 4]  net.py:12`, and the inputs listed behind the signature."""
    if not values and not lines:
        return code
    found, width = [], _width(code)
    for line in code.split("\n"):
        name = match[1] if (match := _ASSIGNS.match(line)) else ""
        told = "  ".join(str(known[name]) for known in (values, lines) if name in known)
        found.append(f"{line:<{width}}  # {told}" if told else line)
        if signature := _DEFINES.match(line):
            names = re.findall(r"(?:^|,)\s*(\w+)", signature[1])
            found += [f"    # {name}: {values[name]}" for name in names if name in values]
    return "\n".join(found)


def _width(code: str) -> int:
    """Of most lines: where their comments begin."""
    lengths = sorted(map(len, code.split("\n")))
    return min(lengths[len(lengths) * 9 // 10], 76)
