"""From torch's ints and symbolic ints to expressions, and from fake tensors to `TensorMeta`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchjit_core.expr import Expr, as_expr, constant, maximum, minimum, symbol
from torchjit_inductor.lowering.tensors import TensorMeta

__all__ = ["NotLowered", "expression", "meta_of"]


class NotLowered(Exception):
    """This call of an op has no lowering here; the host program calls aten instead. The text says why."""


def expression(size: object) -> Expr:
    """An int, a `torch.SymInt` or an expression as an expression.

    A SymInt of torchjit carries `node.expression`; one of torch's own `ShapeEnv` is translated from sympy.

    Raises:
        NotLowered: it has a form that integer expressions do not cover.
    """
    if isinstance(size, Expr):
        return size
    if isinstance(size, int):
        return constant(size)
    if isinstance(size, torch.SymInt):
        own = getattr(size.node, "expression", None)
        return own if isinstance(own, Expr) else _from_sympy(size.node.expr)
    raise NotLowered(f"not an integer: {type(size).__name__}")


def _from_sympy(e: Any) -> Expr:
    """Translate a sympy expression by the names of its classes (sympy itself is not imported)."""
    kind = type(e).__name__
    if e.is_Integer:
        return constant(int(e))
    if e.is_Symbol:
        return symbol(str(e))
    parts: list[Expr] = [_from_sympy(a) for a in e.args]
    if kind == "Pow" and parts[1].value is not None:
        return parts[0] ** parts[1].value
    folds: dict[str, Callable[[Expr, Expr], Expr]] = {
        "Add": lambda a, b: a + b,
        "Mul": lambda a, b: a * b,
        "FloorDiv": lambda a, b: a // b,
        "CleanDiv": lambda a, b: a // b,
        "Mod": lambda a, b: a % b,
        "PythonMod": lambda a, b: a % b,
        "Max": maximum,
        "Min": minimum,
    }
    fold = folds.get(kind)
    if fold is None:
        raise NotLowered(f"size expression {e}")
    total = parts[0]
    for part in parts[1:]:
        total = fold(total, part)
    return total


def meta_of(val: torch.Tensor) -> TensorMeta:
    """Read sizes, strides, dtype and device from a (fake) tensor.

    Raises:
        NotLowered: a layout without strides, or sizes that are no expressions.
    """
    if val.layout != torch.strided:
        raise NotLowered(f"layout {val.layout}")
    return TensorMeta(
        tuple(as_expr(expression(n)) for n in val.shape),
        tuple(as_expr(expression(n)) for n in val.stride()),
        val.dtype,
        val.device,
    )
