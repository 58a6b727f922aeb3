"""Which sizes the host program of a graph knows, and what it can say about a node's tensors with them."""

from __future__ import annotations

from collections.abc import Set
from typing import final

import torch
import torch.fx

from torchjit_core.expr import Expr, Symbol
from torchjit_inductor.lowering.sizes import expression, meta_of
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

    def metas(self, val: object) -> Metas:
        """Sizes, strides, dtypes and devices of the fake tensors of a result; None for what is no tensor.

        Raises:
            NotLowered: one has a layout or sizes that kernels and the host program do not cover.
            GraphNotSupported: a size is not known.
        """
        if isinstance(val, torch.Tensor):
            return self._known_meta(val)
        if isinstance(val, (tuple, list)):
            return tuple(self._known_meta(v) if isinstance(v, torch.Tensor) else None for v in val)
        return None

    def _known_meta(self, val: torch.Tensor) -> TensorMeta:
        meta = meta_of(val)
        known = self.symbols if self.found else self.sources.keys()
        for size in (*meta.sizes, *meta.strides):
            if not size.symbols <= known:
                raise GraphNotSupported(f"size {size} is known only at run time")
        return meta

    def known(self, val: object, node: torch.fx.Node) -> Expr:
        """A node's integer, whose symbols must be known.

        Raises:
            NotLowered: it has a form that integer expressions do not cover.
            GraphNotSupported: it is not known.
        """
        value = expression(val)
        if not value.symbols <= self.symbols:
            raise GraphNotSupported(f"{node.name} = {value} is known only at run time")
        return value
