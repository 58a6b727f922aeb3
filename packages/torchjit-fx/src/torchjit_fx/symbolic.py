"""Symbolic numbers: sizes that vary between calls."""

from __future__ import annotations

from typing import Any, final

from torchjit_core.expr import Expr
from torchjit_fx.protocols import SymbolicSizes

__all__ = ["SymbolicNumbers"]


@final
class SymbolicNumbers:
    """What the domain knows about symbolic ints, bools and floats."""

    def __init__(self, sizes: SymbolicSizes) -> None:
        self.sizes = sizes
        self.shape_env: Any = None

    def sym_int(self, expr: Expr) -> Any:
        raise NotImplementedError

    def expression(self, value: Any) -> int | Expr:
        raise NotImplementedError
