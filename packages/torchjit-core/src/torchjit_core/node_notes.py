"""What the nodes of a graph hold, and whose lines they are, as text: for the `graph` event. Knows nodes by their `name` and `meta` only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchjit_core.location import CodeLocation

__all__ = ["lines_of", "values_of"]


def values_of(nodes: Iterable[Any]) -> dict[str, str]:
    """By name, such as `float32[8, s0]`: the nodes whose `meta["val"]` (or a tuple there) is known."""
    texts = ((node.name, _text(node.meta.get("val"))) for node in nodes)
    return {name: text for name, text in texts if text}


def lines_of(nodes: Iterable[Any]) -> dict[str, str]:
    """By name, such as `net.py:12 layers.0`: the program's line, and the module that was called."""
    found = {}
    for node in nodes:
        where = node.meta.get("location")
        if isinstance(where, CodeLocation):
            file = where.filename.replace("\\", "/").rpartition("/")[2]
            found[node.name] = f"{file}:{where.lineno} {node.meta.get('module_path') or ''}".rstrip()
    return found


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"({', '.join(_text(v) or '-' for v in value)})" if len(value) <= 8 else f"({len(value)} values)"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return ""
    device = str(getattr(value, "device", "cpu"))
    text = f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"
    return text if device == "cpu" else f"{text} on {device}"
