"""Backends that hand a graph to a compiler of another package: one module each, imported when the backend is asked for."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import fx

from torchjit.exc import UserError
from torchjit_core.events import emit
from torchjit_core.reasons import reason

__all__ = ["NOT_TAKEN", "entry_of", "refusal_of", "tell_refusal"]

NO_ADAPTER = reason(
    "TJ-API-007",
    "the package of this backend has no entry that is known here",
    "torchjit hands the graph to the function that the package has for torch.compile, and this version of the package has none of that name.",
    "Use another version of the package, or pass its compiler function as backend=.",
)

NOT_TAKEN = reason(
    "TJ-API-062",
    "the other compiler cannot run this graph",
    "The graph writes to an input or draws random numbers, or the compiler lacks one of its operators; it runs by eager operators.",
    "Nothing, if that is fast enough; otherwise leave the operator out, or use another backend for this function.",
)


def refusal_of(graph: fx.Graph) -> str | None:
    """Why no other compiler may have this final graph: its writes would be lost, its numbers would not be eager's."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.copy_.default:
            return "the graph writes to an input"
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and not _never_draws(node):
            return f"{node.target} draws random numbers"
    return None


def _never_draws(node: fx.Node) -> bool:
    """Is it an attention without dropout, which comes after query, key and value?"""
    attention = node.target is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    return attention and not (node.args[3] if len(node.args) > 3 else node.kwargs.get("dropout_p"))


def tell_refusal(name: str, detail: str) -> None:
    """Tell reports and logs that a graph runs by eager operators."""
    emit("fallback", reason=NOT_TAKEN.id, headline=NOT_TAKEN.headline, detail=f"{name}: {detail}")


def entry_of(module: str, name: str) -> Any:
    """The function of a package that takes a graph.

    Raises:
        UserError: this version of the package has none of that name, or cannot be imported.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(NO_ADAPTER, f"{module}.{name}: {error}") from error
