"""Where `select` and slices begin, if that is a number which varies.

Kernels compute with places that are counted from the front and lie inside of the tensor: what they read or write there is not tested.
The capture knows both of a number that comes into the graph, for the operation decided it; of most that only the run knows it does not.
"""

from __future__ import annotations

from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_core.expr import Expr, constant
from torchjit_inductor.lowering.sizes import NotLowered, expression

__all__ = ["Place", "place_of", "settled"]

_aten = torch.ops.aten
_INDEX: dict[object, tuple[int, int, bool]] = {
    _aten.select.int: (2, 1, False),
    _aten.select_scatter.default: (3, 2, False),
    _aten.select_backward.default: (3, 2, False),
    _aten.slice.Tensor: (2, 1, True),
    _aten.slice_backward.default: (3, 2, True),
}
"""The positions of the place and of the dimension among the arguments; may the place be the end?"""


@final
@attrs.frozen
class Place:
    """A place in a dimension, counted from the front, that is inside of it."""

    at: Expr


def settled(node: torch.fx.Node, args: Any) -> Any:
    """The arguments of a call, with a `Place` for a number that is known to be one."""
    found = _INDEX.get(node.target)
    if found is None or len(node.args) <= found[0] or not isinstance(node.args[found[0]], torch.fx.Node):
        return args
    position, dim_position, end = found
    index: Any = node.args[position].meta.get("val")  # type: ignore[union-attr]  # tested above
    size = _size(node, node.args[dim_position])
    if isinstance(index, int) or size is None:
        return args
    if _known(index >= 0) and _known(index <= size if end else index < size):
        place = expression(index)
    elif _known(index < 0) and _known(index >= -size):
        place = expression(index) + expression(size)
    else:
        return args
    return (*args[:position], Place(place), *args[position + 1 :])


def place_of(index: object, size: Expr) -> Expr:
    """Where `select` reads or writes.

    Raises:
        NotLowered: symbols leave it open.
    """
    if isinstance(index, Place):
        return index.at
    at = expression(index)
    if at.value is None:
        raise NotLowered(f"select at {at}")
    return size + at if at.value < 0 else constant(at.value)


def _size(node: torch.fx.Node, dim: Any) -> Any:
    """The length of the dimension: of the first argument, or of a backward's result."""
    first: Any = node.args[0]
    shaped = node.meta["val"] if node.target in _BACKWARDS else first.meta["val"]
    return shaped.shape[dim] if isinstance(dim, int) else None


_BACKWARDS = frozenset({_aten.select_backward.default, _aten.slice_backward.default})


def _known(holds: object) -> bool:
    """Is it so for all values that the guards let in?"""
    return holds is True or (isinstance(holds, torch.SymBool) and holds.node.statically_known_true("", 0))
