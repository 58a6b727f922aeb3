"""Which sizes the host program of a graph knows, and what it can say about a node's tensors with them."""

from __future__ import annotations

from collections.abc import Set
from typing import final

import torch
import torch.fx

from torchjit_core.expr import Expr, Symbol
from torchjit_inductor.lowering.sizes import NotLowered, expression, meta_of
from torchjit_inductor.lowering.tensors import Metas, TensorMeta

__all__ = ["GraphNotSupported", "KnownSizes"]


class GraphNotSupported(Exception):
    """The whole graph must run by interpretation. The text says why."""


@final
class KnownSizes:
    """The symbols of a graph that have a value when its steps run.

    Attributes:
        sources: symbols that inputs tell: position of the input, `size`, `stride` or nothing (a number), and the dimension.
        found: symbols that the run finds out, in order.
    """

    def __init__(self) -> None:
        self.sources: dict[Symbol, tuple[int, str, int]] = {}
        self.found: dict[Symbol, None] = {}

    @property
    def symbols(self) -> Set[Symbol]:
        """All of them."""
        return self.sources.keys() | self.found.keys()

    def meta(self, val: torch.Tensor) -> TensorMeta:
        """Sizes, strides, dtype and device of a fake tensor, of any symbols.

        Raises:
            GraphNotSupported: it has a layout or sizes that kernels and the host program do not cover.
        """
        try:
            return meta_of(val)
        except NotLowered as refusal:
            raise GraphNotSupported(str(refusal)) from None

    def metas(self, val: object) -> Metas:
        """As `meta`, for the tensors of a result, whose symbols must be known; None for what is no tensor.

        Raises:
            GraphNotSupported: as `meta`, or a size is not known.
        """
        if isinstance(val, torch.Tensor):
            return self._known_meta(val)
        if isinstance(val, (tuple, list)):
            return tuple(self._known_meta(v) if isinstance(v, torch.Tensor) else None for v in val)
        return None

    def _known_meta(self, val: torch.Tensor) -> TensorMeta:
        meta = self.meta(val)
        known = self.symbols if self.found else self.sources.keys()
        for size in (*meta.sizes, *meta.strides):
            if not size.symbols <= known:
                raise GraphNotSupported(f"size {size} is known only at run time")
        return meta

    def expression(self, val: object) -> Expr:
        """An integer of the graph, of any symbols.

        Raises:
            GraphNotSupported: it has a form that integer expressions do not cover.
        """
        try:
            return expression(val)
        except NotLowered as refusal:
            raise GraphNotSupported(str(refusal)) from None

    def known(self, val: object, node: torch.fx.Node) -> Expr:
        """As `expression`, for a node's value, whose symbols must be known.

        Raises:
            GraphNotSupported: as `expression`, or it is not known.
        """
        value = self.expression(val)
        if not value.symbols <= self.symbols:
            raise GraphNotSupported(f"{node.name} = {value} is known only at run time")
        return value
