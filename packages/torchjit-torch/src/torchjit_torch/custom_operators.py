"""Operators of our own: one call defines all that there is of one."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

__all__ = ["define_operator"]

_libraries: dict[str, Any] = {}
"""Kept for good: an operator goes with its library."""


def define_operator(
    space: str,
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    *,
    autograd: Callable[..., Any] | None = None,
    tags: Sequence[torch.Tag] = (),
) -> OpOverload[..., Any]:
    """A new operator of a namespace that is ours.

    Args:
        space: the namespace.
        schema: such as `check(Tensor condition) -> ()`.
        kernel: for every device, below autograd.
        fake: the same for tensors without data.
        autograd: what runs where autograd records; without it there is no gradient.
        tags: of torch.
    """
    library: Any = torch.library.Library
    library = _libraries.get(space) or _libraries.setdefault(space, library(space, "DEF"))
    name = schema.partition("(")[0]
    library.define(schema, tags=tags)
    library.impl(name, kernel, "CompositeExplicitAutograd")
    if autograd is not None:
        library.impl(name, autograd, "Autograd")
    _know_this_file()
    torch.library.register_fake(f"{space}::{name}", fake, lib=library)
    made: OpOverload[..., Any] = getattr(getattr(torch.ops, space), name).default
    return made


def _know_this_file() -> None:
    """Torch asks `inspect` which module registers a fake. It looks at the files of all modules, some 20 ms, unless it knows this one."""
    known: dict[str, str] = getattr(inspect, "modulesbyfile", {})
    known.setdefault(os.path.normcase(os.path.abspath(__file__)), __name__)
