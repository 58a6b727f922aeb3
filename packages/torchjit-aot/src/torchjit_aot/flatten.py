"""Flat lists of output leaves, and the way back."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Shape", "flatten", "rebuild_source"]

Shape: TypeAlias = Any
"""An int (position of a leaf), or a tuple `(type, children)` or `(dict, keys, children)`."""


def flatten(value: Any, leaves: list[Any]) -> Shape:
    """Append the leaves of nested tuples, lists and dicts to `leaves`; return the structure."""
    if isinstance(value, dict) and type(value) is dict:
        return (dict, list(value), [flatten(v, leaves) for v in value.values()])
    if isinstance(value, (tuple, list)):
        return (type(value), None, [flatten(v, leaves) for v in value])
    leaves.append(value)
    return len(leaves) - 1


def rebuild_source(shape: Shape, names: list[str], bind: Any) -> str:
    """Python text that rebuilds the structure from the leaves' names; `bind(obj)` names other objects."""
    if isinstance(shape, int):
        return names[shape]
    kind, keys, children = shape
    parts = [rebuild_source(child, names, bind) for child in children]
    if kind is dict:
        return "{" + ", ".join(f"{bind(k)}: {p}" for k, p in zip(keys, parts, strict=True)) + "}"
    if kind is list:
        return f"[{', '.join(parts)}]"
    joined = ", ".join(parts) + ("," if len(parts) == 1 else "")
    if kind is tuple:
        return f"({joined})"
    if hasattr(kind, "_fields"):
        return f"{bind(kind)}({', '.join(parts)})"
    return f"{bind(kind)}(({joined}))"
