"""Tensors during lowering: formulas over an index (`Lazy`), or views of a buffer (`Strided`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, constant
from torchjit_inductor.indexing import join_digits, simplify
from torchjit_inductor.ir.dtypes import compute_dtype
from torchjit_inductor.ir.kernel import Origin
from torchjit_inductor.ir.values import Scalar, Value, apply, load, where
from torchjit_inductor.ir.values import constant as number

__all__ = [
    "Dims",
    "Index",
    "Lazy",
    "Lowered",
    "Metas",
    "Operand",
    "Point",
    "Read",
    "Size",
    "Strided",
    "TensorMeta",
    "contiguous_strides",
]

Index: TypeAlias = "tuple[Expr, ...]"
Metas: TypeAlias = "TensorMeta | tuple[TensorMeta | None, ...] | None"
"""Of what an operator returns: one tensor, several with None for what is none, or no tensor."""
Operand: TypeAlias = "Lowered | Scalar"
Size: TypeAlias = "int | Expr"
Dims: TypeAlias = "int | Sequence[int] | None"
"""The dimensions that a reduction is over: None or none of them are all."""
Read: TypeAlias = "Callable[[Lowered, Index], Value]"
"""How the body of a reduction reads the element of a tensor at an index."""


@final
@attrs.frozen
class TensorMeta:
    """What the graph says about a tensor: `sizes` and `strides` in elements, storage dtype, device."""

    sizes: Index
    strides: Index
    dtype: torch.dtype
    device: torch.device


@final
@attrs.frozen
class Point:
    """Where a formula is evaluated.

    Attributes:
        index: one expression per dimension.
        loops: loop variables and their sizes, for simplification.
        mask: where false nothing may be read (inside a padded or concatenated region).
        computed: symbols of the index that stand for computed positions.
    """

    index: Index
    loops: Mapping[Symbol, Expr] = attrs.field(factory=dict, eq=False)
    mask: Value | None = None
    computed: Mapping[Symbol, Value] = attrs.field(factory=dict, eq=False)

    def at(self, index: Sequence[Expr]) -> Point:
        """The same point of the loops, seen through a view: other index, simplified."""
        return Point(tuple([simplify(i, self.loops) for i in index]), self.loops, self.mask, self.computed)

    def under(self, mask: Value) -> Point:
        """Narrowed by a mask."""
        both = mask if self.mask is None else apply("and", self.mask, mask)
        return Point(self.index, self.loops, both, self.computed)


class Lowered:
    """A tensor value: sizes, storage dtype, device, and `value(point)`. Final subclasses: `Lazy`, `Strided`."""

    sizes: Index
    dtype: torch.dtype
    device: torch.device

    def value(self, point: Point) -> Value:
        """The element at `point.index`, in the compute dtype."""
        raise NotImplementedError


@final
class Lazy(Lowered):
    """A formula, not yet in memory.

    Args:
        formula: gives the value at a point; called once per use.

    Attributes:
        layout: the strides to give it in memory, if it gets there (None: row-major).
        stored: where it was put into memory; later uses read it there.
        origins: the graph nodes that the formula computes.
    """

    def __init__(
        self, sizes: Index, dtype: torch.dtype, device: torch.device, formula: Callable[[Point], Value]
    ) -> None:
        self.sizes, self.dtype, self.device = sizes, dtype, device
        self._formula = formula
        self.layout: Index | None = None
        self.stored: Strided | None = None
        self.origins: tuple[Origin, ...] = ()

    def value(self, point: Point) -> Value:
        if self.stored is not None:
            return self.stored.value(point)
        if len(point.index) != len(self.sizes):
            raise ValueError(f"index of {len(point.index)} dimensions into a tensor of {len(self.sizes)}")
        made = self._formula(point)
        if made.dtype != compute_dtype(self.dtype):
            raise ValueError(f"a formula for {self.dtype} gave {made.dtype}")
        return made


@final
class Strided(Lowered):
    """A view of a buffer."""

    def __init__(
        self, buffer: str, sizes: Index, strides: Index, offset: Expr, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.buffer, self.sizes, self.strides, self.offset = buffer, sizes, strides, offset
        self.dtype, self.device = dtype, device

    def address(self, index: Index) -> Expr:
        """The element offset of an index."""
        total = self.offset
        for i, stride in zip(index, self.strides, strict=True):
            total = total + i * stride
        return join_digits(total)

    def value(self, point: Point) -> Value:
        return load(self.buffer, self.address(point.index), self.dtype, binders=point.computed, mask=point.mask)

    def same_layout(self, meta: TensorMeta) -> bool:
        """Has it the sizes and strides of `meta`? The stride of a dimension of size 1 does not matter."""
        return self.sizes == meta.sizes and all(
            a is b or n.value == 1 for a, b, n in zip(self.strides, meta.strides, self.sizes, strict=True)
        )


def contiguous_strides(sizes: Index) -> Index:
    """Row-major strides."""
    strides: list[Expr] = []
    running = constant(1)
    for size in reversed(sizes):
        strides.append(running)
        if size.value != 0:
            running = running * size
    return tuple(reversed(strides))


def masked(mask: Value, inside: Callable[[Point], Value], point: Point, other: Value) -> Value:
    """`inside` evaluated under the mask, `other` outside."""
    if mask.op == "constant":
        return inside(point) if mask.data else other
    return where(mask, inside(point.under(mask)), other)


def full(value: int | float | bool, meta: TensorMeta) -> Lazy:
    """A constant tensor."""
    made = number(value, meta.dtype)
    return Lazy(meta.sizes, meta.dtype, meta.device, lambda point: made)
