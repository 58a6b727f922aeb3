"""Names of placeholders, such as people know them: `l_x_`, `l_self_layer_weight`."""

from __future__ import annotations

import re

from torchjit_core.paths import AccessPath, Arg, Attr, Cell, InstanceAttr, Item, Pinned

__all__ = ["is_module_state", "module_name", "placeholder_name"]

_REGISTRIES = frozenset({"_modules", "_parameters", "_buffers", "__dict__"})
_STATE = frozenset({"_parameters", "_buffers"})
_FORBIDDEN = re.compile(r"\W+", re.ASCII)


def placeholder_name(path: AccessPath) -> str:
    """A readable identifier for an access path; module registries are left out of it."""
    parts: list[str] = []
    for step in path.steps():
        if isinstance(step, Arg):
            parts.append(step.name)
        elif isinstance(step, Pinned):
            parts.append(step.label)
        elif isinstance(step, Item):
            parts.append(str(step.key))
        elif isinstance(step, Attr | InstanceAttr):
            if step.key not in _REGISTRIES:
                parts.append(step.key)
        elif not isinstance(step, Cell):
            parts.append(type(step).__name__.lower())
    text = _FORBIDDEN.sub("_", "_".join(parts)).strip("_")
    return f"l_{text}_" if len(parts) == 1 else f"l_{text}"


def module_name(path: AccessPath) -> str:
    """`layers.0.norm`: the way to a module from the object that it was reached from; "" for that object itself."""
    steps = [step for step in path.steps() if isinstance(step, Item | Attr | InstanceAttr)]
    return ".".join(str(step.key) for step in steps if isinstance(step, Item) or step.key not in _REGISTRIES)


def is_module_state(path: AccessPath) -> bool:
    """Is this the path of a registered parameter or buffer of a module?"""
    base = path.base
    return isinstance(path, Item) and isinstance(base, InstanceAttr | Attr) and base.key in _STATE
