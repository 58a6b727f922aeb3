"""Linear layers whose weights are stored as 8-bit integers with a scale for each row, on the CPU.

`linear(x, w.to(x.dtype)) * scale` converts the whole matrix in each call. aten has a product that reads 8 bits and converts in
registers, `_weight_int8pack_mm`. For bfloat16 it takes a fifth to a half of the time (docs/benchmarks/cpu.md); for other types it
is slower, and not used. A short race decides for each shape, as for other products (see `matmul.py`).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_inductor.benchmark_choice import AutotuneCache

__all__ = ["with_packed_products"]

_aten = torch.ops.aten
DEPTHS = 32
"""The operator is right for rows of multiples of this; some others it reads beyond their end (61 elements, AVX-512, torch 2.15)."""
ROWS = 64
"""Rows of a race at most: with more, both take longer by the same factor."""
GAIN = 0.9
"""The packed product must take at most this share of the other's time."""
_TURNS = (_aten.t.default, _aten.permute.default, _aten.transpose.int)
_VIEWS = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)


@final
@attrs.frozen(eq=False)
class _Product:
    """Nodes: `scaled` is `scale` times `product` of `x` and a matrix made from `weight`, seen through `view` if there is one."""

    scaled: torch.fx.Node
    scale: torch.fx.Node
    view: torch.fx.Node | None
    product: torch.fx.Node
    x: torch.fx.Node
    weight: torch.fx.Node


def with_packed_products(gm: torch.fx.GraphModule, cache: AutotuneCache) -> torch.fx.GraphModule:
    """The graph with products of 8-bit weights in one operator where that is faster. The given graph stays as it is."""
    chosen = [p for n in gm.graph.nodes if (p := _product(n)) is not None and _packed_wins(p, cache)]
    if not chosen:
        return gm
    graph = copy.deepcopy(gm.graph)
    twin = dict(zip(gm.graph.nodes, graph.nodes, strict=True))
    for found in chosen:
        scaled = twin[found.scaled]
        # The scale may be computed later than the product is.
        with graph.inserting_before(scaled):
            operands = (twin[found.x], twin[found.weight], twin[found.scale])
            made = graph.call_function(_aten._weight_int8pack_mm.default, operands)
            made.meta = dict(found.product.meta)
            if found.view is not None:
                made = graph.call_function(_aten.view.default, (made, twin[found.view].args[1]))
                made.meta = dict(found.view.meta)
        scaled.replace_all_uses_with(made)
        for old in (found.scaled, found.view, found.product):
            if old is not None:
                graph.erase_node(twin[old])
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(gm, graph)


def _product(scaled: torch.fx.Node) -> _Product | None:
    """The product that a multiplication scales, row by row of the weight."""
    if scaled.target is not _aten.mul.Tensor:
        return None
    for made, scale in (scaled.args, scaled.args[::-1]):
        if isinstance(made, torch.fx.Node) and isinstance(scale, torch.fx.Node):
            product = _scaled_product(scaled, made, scale)
            if product is not None:
                return product
    return None


def _scaled_product(scaled: torch.fx.Node, made: torch.fx.Node, scale: torch.fx.Node) -> _Product | None:
    view = made if made.target in _VIEWS else None
    product = made if view is None else view.args[0]
    if not isinstance(product, torch.fx.Node) or product.target is not _aten.mm.default:
        return None
    x, turned = product.args
    weight = _stored(turned)
    if weight is None or not isinstance(x, torch.fx.Node) or any(len(n.users) > 1 for n in (made, product)):
        return None
    of_rows = _shape(scale) == _shape(weight)[:1] and made.meta["val"].shape[-1] == _shape(weight)[0]
    if not of_rows or not _is(x, torch.bfloat16) or not _is(scale, torch.bfloat16):
        return None
    return _Product(scaled, scale, view, product, x, weight)


def _stored(node: Any) -> torch.fx.Node | None:
    """The matrix of 8-bit integers that a node is the transpose of, in bfloat16."""
    turns = 0
    while isinstance(node, torch.fx.Node) and node.op == "call_function" and node.all_input_nodes:
        turned, converted = node.target in _TURNS, node.target is _aten._to_copy.default
        if not (turned or converted):
            break
        turns, node = turns + turned, node.args[0]
    if turns != 1 or not isinstance(node, torch.fx.Node) or not _is(node, torch.int8):
        return None
    return node if len(_shape(node)) == 2 and min(_shape(node)) > 0 else None


def _is(node: torch.fx.Node, dtype: torch.dtype) -> bool:
    """A row-major tensor on the CPU?"""
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and val.dtype == dtype and val.device.type == "cpu" and val.is_contiguous()


def _shape(node: torch.fx.Node) -> tuple[int, ...]:
    """The sizes; none where they are symbols."""
    sizes = tuple(node.meta["val"].shape)
    return sizes if all(isinstance(n, int) for n in sizes) else ()


def _packed_wins(found: _Product, cache: AutotuneCache) -> bool:
    columns, depth = _shape(found.weight)
    rows = found.x.meta["val"].shape[0]
    rows = rows if isinstance(rows, int) else getattr(rows.node, "hint", None) or ROWS
    if rows == 0 or depth % DEPTHS:
        return False
    rows = min(rows, ROWS)

    def contest() -> tuple[Callable[[], object], Callable[[], object]]:
        x = torch.full((rows, depth), 0.5, dtype=torch.bfloat16)
        weight = torch.ones(columns, depth, dtype=torch.int8)
        scale = torch.ones(columns, dtype=torch.bfloat16)
        packed = functools.partial(_aten._weight_int8pack_mm.default, x, weight, scale)
        return packed, lambda: _aten.mm.default(x, weight.to(torch.bfloat16).t()).mul_(scale)

    first, second = cache.times(("int8 linear", rows, columns, depth), contest)
    return first < GAIN * second
