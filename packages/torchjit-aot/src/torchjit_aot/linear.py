"""Which operators of a backward give zeros where they are given zeros, because they are linear."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

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
    "aten::index_add": (0, 3),
    "aten::index_put": (0, 2),
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
        return _are_zero([item for k in _TOGETHER[name] for item in _items(_argument(node, k, ()))], zeros)
    if name in _FILLED:
        return node.args[0] in zeros and _is_constant_zero(_argument(node, 2, 0))
    gradients = [_argument(node, k, None) for k in _gradients(node.target)]
    given = [item for item in gradients if isinstance(item, fx.Node)]
    return bool(given) and all(item in zeros for item in given)


_FILLED = frozenset({"aten::constant_pad_nd", "aten::masked_fill"})
"""Zero if the first argument is and what they fill in, the third, is a constant zero."""


def _argument(node: fx.Node, k: int, default: object) -> Any:
    return node.args[k] if k < len(node.args) else default


def _are_zero(items: Sequence[Any], zeros: set[fx.Node]) -> bool:
    return any(item in zeros for item in items) and all(item in zeros or _is_constant_zero(item) for item in items)


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _is_constant_zero(value: Any) -> bool:
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
