"""Names of placeholders, such as the program has them: `pixels`, `self_layers_0_weight`, `batch_image`."""

from __future__ import annotations

import re

from torchjit_core.paths import AccessPath, Arg, Attr, Cell, InstanceAttr, Item, Pinned

__all__ = ["is_module_state", "module_name", "placeholder_name"]

_REGISTRIES = frozenset({"_modules", "_parameters", "_buffers", "__dict__"})
_STATE = frozenset({"_parameters", "_buffers"})
_FORBIDDEN = re.compile(r"\W+", re.ASCII)
_CELL = re.compile(r"<cell (\w+)>$")
_TAKEN = re.compile(r"self|[suf]\d+")
"""What generated code calls the module, and what sizes and numbers are called that may change."""


def placeholder_name(path: AccessPath) -> str:
    """The program's name for what is at an access path, as an identifier; registries of modules are left out of it.

    Keywords and the like, and names that are taken, are left to torch.fx, which appends a number.
    """
    parts: list[str] = []
    for step in path.steps():
        if isinstance(step, Arg):
            parts.append(step.name)
        elif isinstance(step, Pinned):
            parts += _label(step.label)
        elif isinstance(step, Item):
            if isinstance(step.base, Arg) and step.base.forwarded is not None:
                parts.clear()  # people know the argument by the name that `forward` has for it
                parts.append(step.base.item_name(step.key))
            else:
                parts.append(str(step.key))
        elif isinstance(step, Attr | InstanceAttr):
            if step.key not in _REGISTRIES:
                parts.append(step.key)
        elif not isinstance(step, Cell):
            parts.append(type(step).__name__.lower())
    text = _FORBIDDEN.sub("_", "_".join(parts)).strip("_") or "input"
    return f"{text}_" if _TAKEN.fullmatch(text) else f"_{text}" if text[0].isdigit() else text


def _label(label: str) -> list[str]:
    """Of an object that is always the same: the variable of a cell, the name of a function or class; none for a module's globals."""
    cell = _CELL.search(label)
    if cell is not None:
        return [cell[1]]
    return [] if label.endswith(".__dict__") else [label.rpartition("<locals>.")[2]]


def module_name(path: AccessPath) -> str:
    """`layers.0.norm`: the way to a module from the object that it was reached from; "" for that object itself."""
    steps = [step for step in path.steps() if isinstance(step, Item | Attr | InstanceAttr)]
    return ".".join(str(step.key) for step in steps if isinstance(step, Item) or step.key not in _REGISTRIES)


def is_module_state(path: AccessPath) -> bool:
    """Is this the path of a registered parameter or buffer of a module?"""
    base = path.base
    return isinstance(path, Item) and isinstance(base, InstanceAttr | Attr) and base.key in _STATE
