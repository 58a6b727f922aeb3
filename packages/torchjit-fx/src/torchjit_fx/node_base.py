"""What the nodes behind torch.SymInt, SymBool and SymFloat have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from torchjit_core.expr import Condition, constant, eq
from torchjit_fx.leaves import Raw
from torchjit_fx.node_context import NodeContext
from torchjit_fx.symbols import floats

__all__ = ["Node", "truth"]


class Node:
    """What all kinds of nodes answer alike.

    Attributes:
        int_kind, bool_kind, float_kind: the classes, set where all three are known.
    """

    __slots__ = ("context",)
    context: NodeContext
    expression: Any
    int_kind: ClassVar[Any]
    bool_kind: ClassVar[Any]
    float_kind: ClassVar[Any]
    fx_node = None
    nested_int_coeff = None
    _optimized_summation = False

    def __repr__(self) -> str:
        return str(self.expression)

    def _value_eq(self, other: Raw) -> bool:
        return type(other) is type(self) and self.expression is other.expression

    def _value_hash(self) -> int:
        return hash(self.expression)

    @property
    def shape_env(self) -> Raw:
        return self.context.shape_env

    def is_int(self) -> bool:
        return False

    is_bool = is_float = is_nested_int = is_int

    def has_hint(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return not self.is_constant()

    def is_constant(self) -> bool:
        raise NotImplementedError  # abstract: integers, truth values and floats hold different things

    def maybe_as_int(self) -> Raw:
        return None

    maybe_as_float = maybe_as_bool = nested_int = maybe_as_int

    def wrap_int(self, value: int) -> Raw:
        return self.int_kind(constant(int(value)), self.context)

    def wrap_bool(self, value: bool) -> Raw:
        return self.bool_kind(truth(value), self.context)

    def wrap_float(self, value: float) -> Raw:
        return self.float_kind(float(value), floats.constant(float(value)), self.context)

    def clone(self) -> Raw:
        return self

    def with_shape_env(self, shape_env: Any) -> Raw:
        return self

    def str(self) -> str:
        return repr(self)

    _graph_repr = str


def truth(value: bool) -> Condition:
    """The condition that always, or never, holds."""
    return eq(0, 0) if value else eq(0, 1)
