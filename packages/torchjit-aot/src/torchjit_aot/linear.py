"""Which operators of a backward give zeros where they are given zeros, because they are linear."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import Argument

from torchjit_torch.operators import is_view, writes_to

__all__ = ["is_zero"]

aten = torch.ops.aten

_FIRST = frozenset(
    {
        "aten::_conj_physical",
        "aten::_fft_c2c",
        "aten::_fft_c2r",
        "aten::_fft_r2c",
        "aten::_to_copy",
        "aten::_unsafe_view",
        "aten::clone",
        "aten::conj_physical",
        "aten::cumsum",
        "aten::div",
        "aten::flip",
        "aten::gather",
        "aten::index",
        "aten::index_select",
        "aten::mean",
        "aten::neg",
        "aten::repeat",
        "aten::reshape",
        "aten::roll",
        "aten::sum",
        "aten::trace",
        "aten::tril",
        "aten::triu",
        "prims::convert_element_type",
    }
)
"""Linear in the first argument."""

_EITHER = frozenset({"aten::bmm", "aten::dot", "aten::mm", "aten::mul", "aten::mv"})
"""Linear in the first and in the second argument."""

_TOGETHER: dict[str, tuple[int, ...]] = {
    "aten::add": (0, 1),
    "aten::cat": (0,),
    "aten::constant_pad_nd": (0, 2),
    "aten::index_add": (0, 3),
    "aten::index_put": (0, 2),
    "aten::masked_fill": (0, 2),
    "aten::scatter_add": (0, 3),
    "aten::select_scatter": (0, 1),
    "aten::slice_scatter": (0, 1),
    "aten::stack": (0,),
    "aten::sub": (0, 1),
    "aten::where": (1, 2),
}
"""Zero if all of these arguments are zero, of which some may be constants."""

_CONSTANTS = {"aten::full": 1, "aten::full_like": 1, "aten::new_full": 2, "aten::scalar_tensor": 0}
"""Which argument of them is the value."""
_ZEROS = frozenset({"aten::zeros", "aten::zeros_like", "aten::new_zeros"})


def is_zero(node: fx.Node, zeros: set[fx.Node]) -> bool:
    """Are all elements of this call's result zero, in exact arithmetic on finite numbers, because those of `zeros` are?"""
    if node.target is operator.getitem:
        return node.args[0] in zeros
    if not isinstance(node.target, OpOverload) or writes_to(node.target):
        return False
    name = node.target._schema.name
    if is_view(node.target) or name in _FIRST:
        return node.args[0] in zeros
    if name in _EITHER:
        return node.args[0] in zeros or node.args[1] in zeros
    if name in _TOGETHER:
        items = _items(node, _TOGETHER[name])
        return any(item in zeros for item in items) and all(item in zeros or _is_constant_zero(item) for item in items)
    given = [item for item in _items(node, _gradients(node.target)) if isinstance(item, fx.Node)]
    return bool(given) and zeros.issuperset(given)


def _items(node: fx.Node, positions: Sequence[int]) -> list[Argument]:
    """These arguments, as far as they are given; those of lists one by one."""
    given = [node.args[k] for k in positions if k < len(node.args)]
    return [item for value in given for item in (value if isinstance(value, (tuple, list)) else (value,))]


def _is_constant_zero(value: Argument) -> bool:
    if not isinstance(value, fx.Node):
        return isinstance(value, (bool, int, float, complex)) and value == 0
    if not isinstance(value.target, OpOverload):
        return False
    name = value.target._schema.name
    if name in _ZEROS:
        return True
    if is_view(value.target) or name in _FIRST:
        return _is_constant_zero(value.args[0])
    return name in _CONSTANTS and _is_constant_zero(value.args[_CONSTANTS[name]])


@functools.cache
def _gradients(target: OpOverload) -> tuple[int, ...]:
    """The arguments of a `..._backward` that are gradients of its operator's results; it is linear in them together."""
    if target.namespace != "aten" or "backward" not in target._schema.name:
        return ()
    return tuple(k for k, argument in enumerate(target._schema.arguments) if argument.name.startswith("grad"))
