"""What a graph is given: how its placeholders become inputs of the program, and which sizes they tell."""

from __future__ import annotations

import re
from typing import TypeAlias, final

import torch
import torch.fx

from torchjit_core.expr import Expr
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.known_sizes import GraphNotSupported, KnownSizes
from torchjit_inductor.lowering.run_numbers import reads_data
from torchjit_inductor.lowering.sizes import expression, meta_of
from torchjit_inductor.lowering.tensors import Strided
from torchjit_inductor.steps import HostNumber

__all__ = ["GraphInputs", "reserve_symbols"]

Given: TypeAlias = "Strided | Expr | HostNumber | None"
"""A tensor in memory, an integer, a float; None: nobody reads it."""

_KERNEL_NAME = re.compile(
    r"[xrpt]\d+\w*|at\d*|lo|hi|n|k|W|from|to|end|unit|chunk|block|body|args|full|total|work|grain|data"
)
"""Names that kernels use for loops, pointers and values."""


def reserve_symbols(builder: Builder, graph: torch.fx.Graph) -> None:
    """Size symbols become variables of the host program and of kernels: take their names.

    Raises:
        GraphNotSupported: one has a name that is not free there.
    """
    for node in graph.nodes:
        val = node.meta.get("val") if node.op == "placeholder" or reads_data(node.target) else None
        parts: list[Expr] = []
        for item in val if isinstance(val, (tuple, list)) else (val,):
            if isinstance(item, torch.Tensor):
                meta = meta_of(item)
                parts += (*meta.sizes, *meta.strides)
            elif isinstance(item, torch.SymInt):
                parts.append(expression(item))
        for symbol in {s for e in parts for s in e.symbols}:
            if _KERNEL_NAME.fullmatch(symbol.name) or not symbol.name.isidentifier():
                raise GraphNotSupported(f"a size is called {symbol.name}")
            builder.reserve(symbol.name)


@final
class GraphInputs:
    """The inputs of a graph.

    Args:
        builder: makes their buffers.
        sizes: learns which sizes they tell.

    Attributes:
        given: what each placeholder is, in order.
    """

    def __init__(self, builder: Builder, sizes: KnownSizes) -> None:
        self._builder, self._sizes = builder, sizes
        self.given: dict[torch.fx.Node, Given] = {}

    def take(self, node: torch.fx.Node) -> Given:
        """The next placeholder.

        Raises:
            NotLowered: a tensor of a layout that kernels do not cover.
            GraphNotSupported: something reads it, and it is no tensor, integer or float.
        """
        position, val = len(self.given), node.meta.get("val")
        given: Given = None
        if isinstance(val, torch.Tensor):
            given = self._tensor(node, val, position)
        elif isinstance(val, (int, torch.SymInt)) and not isinstance(val, bool):
            given = expression(val)
            self._tells(given, position)
        elif isinstance(val, torch.SymFloat):
            self._builder.reserve(node.name)
            given = HostNumber(node.name)
        elif node.users:
            raise GraphNotSupported(f"input {node.name} is a {type(val).__name__}")
        self.given[node] = given
        return given

    def _tensor(self, node: torch.fx.Node, val: torch.Tensor, position: int) -> Strided:
        meta = meta_of(val)
        held = self._builder.buffer(node.name, meta)
        for dim, size in enumerate(meta.sizes):
            self._tells(size, position, "size", dim)
        # A stride that no product of sizes is has a symbol of its own.
        for dim, stride in enumerate(meta.strides):
            self._tells(stride, position, "stride", dim)
        return held

    def _tells(self, size: Expr, position: int, kind: str = "", dim: int = 0) -> None:
        """Note where the host program finds a symbol, see `KnownSizes.sources`."""
        symbol = size.as_symbol
        if symbol is not None:
            self._sizes.sources.setdefault(symbol, (position, kind, dim))

    def check(self) -> None:
        """A sum of numbers that only the run knows may come in without its terms, and nothing here solves for them.

        Raises:
            GraphNotSupported: a number or a size that something computes with is such a sum.
        """
        for node, given in self.given.items():
            parts = (given,) if isinstance(given, Expr) else getattr(given, "sizes", ())
            if node.users and not all(part.symbols <= self._sizes.sources.keys() for part in parts):
                raise GraphNotSupported(f"input {node.name} is a {parts}, of which not all terms are inputs")

    def of_program(self) -> tuple[str | Expr | HostNumber | None, ...]:
        """As `Program.inputs`: of a tensor the buffer's name."""
        return tuple(given.buffer if isinstance(given, Strided) else given for given in self.given.values())

    def position(self, node: torch.fx.Node) -> int:
        """Of a placeholder among them."""
        return list(self.given).index(node)
