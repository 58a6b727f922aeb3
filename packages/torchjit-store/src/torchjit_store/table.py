"""What the two sides of a table of references share: `origins`, which makes it, and `finder`, which finds what it says.

A row of a table is `[step, parent, key, fingerprint]`: the object that `step` leads to from the object of row `parent`, or, without a parent, a
module of `sys.modules`, a root that both processes have at hand, or what is registered under a name. Rows come behind their parents. A
reference is the number of a row.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any, TypeAlias

from torchjit_store.fingerprints import namespace
from torchjit_store.stale import Stale
from torchjit_store.steps import follow

__all__ = ["JSON_ATOMS", "MISSED", "REGISTRIES", "Data", "Row", "digest", "label", "leads", "registered"]

Data: TypeAlias = Any
Row: TypeAlias = "list[Any]"
MISSED = (LookupError, AttributeError, TypeError, ValueError)
"""What a step raises that leads nowhere."""


def digest(text: str) -> str:
    """Of a text or of several."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def leads(obj: Any, step: str, key: Any, wanted: Any) -> bool:
    """Does a step from an object lead to the wanted one?"""
    try:
        return follow(obj, step, key) is wanted
    except MISSED:
        return False


JSON_ATOMS = frozenset({str, int, float, bool})
REGISTRIES = {
    "torch._library.custom_ops.CustomOpDef": "operator",
    "torch._library.simple_registry.SimpleOperatorEntry": "kernels",
    "torch._ops._OpNamespace": "operators",
}
"""Where torch keeps operators and what a program registers for them, and the steps that lead there."""


def registered(step: str, name: str) -> Any:
    """What torch has for a custom operator, or its namespace of operators, which it makes when it is asked for.

    Raises:
        Stale: there is no such operator.
    """
    modules = sys.modules
    if step == "operators":
        found = getattr(modules["torch"].ops, name)
    elif step == "operator":
        found = namespace(modules["torch._library.custom_ops"])["OPDEFS"].get(name)
    else:
        found = namespace(modules["torch._library.simple_registry"])["singleton"]._data.get(name)
    if found is None:
        raise Stale(f"the operator {name} is gone")
    return found


_SAID = {
    "code": "the code of {}", "mro": "the bases of {}", "content": "the content of {}", "cell": "a cell of {}",
    "class_dict": "the dict of {}", "wrapped": "what {} compiles", "item_at": "an item of {}", "static": "a class below {}",
}  # fmt: skip


def label(rows: list[Row], row: int) -> str:
    """What people call the object of a row."""
    step, parent, key, _ = rows[row]
    if parent is None:
        return f"argument {key}" if step == "root" else str(key)
    base = label(rows, parent)
    if step in _SAID:
        return _SAID[step].format(base)
    if step in ("default", "kwdefault"):
        return f"default {key!r} of {base}"
    if step == "const":
        return base
    return (
        f"{base}.{key}"
        if step in ("entry", "attr", "slot", "tensor_part")
        else f"{base}[{key!r}]"
        if step == "item"
        else f"{base}.{step}"
    )
