"""What it costs to keep a tensor, and which operators are cheap enough to run twice."""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from torchjit_aot.symbols import SYMBOLIC_TYPES
from torchjit_torch.operators import is_random, is_view, writes_to

__all__ = [
    "bytes_of",
    "copies_an_input",
    "is_alias",
    "is_fusible",
    "is_reduction",
    "is_symbolic",
    "owner_of",
    "size_hint",
]

aten = torch.ops.aten

_FUSIBLE = frozenset(
    {
        aten._to_copy.default,
        aten.clone.default,
        aten.copy.default,
        aten.full.default,
        aten.full_like.default,
        aten.zeros.default,
        aten.ones.default,
        aten.zeros_like.default,
        aten.ones_like.default,
        aten.empty_like.default,
        aten.new_zeros.default,
        aten.new_ones.default,
        aten.new_full.default,
        aten.new_empty.default,
        aten.empty.memory_format,
        aten.empty_strided.default,
        aten.arange.default,
        aten.arange.start,
        aten.arange.start_step,
        aten.scalar_tensor.default,
        aten.where.self,
        aten.masked_fill.Scalar,
        aten.masked_fill.Tensor,
        aten.tril.default,
        aten.triu.default,
        aten.constant_pad_nd.default,
        aten.alias_copy.default,
        aten.cat.default,
        aten.eye.default,
        aten.eye.m,
        aten.flip.default,
        aten.floor_divide.default,
        aten.hardswish.default,
        aten.hardtanh_backward.default,
        aten.leaky_relu_backward.default,
        aten.mse_loss_backward.default,
        aten.repeat.default,
        aten.rsub.Tensor,
        aten.select_backward.default,
        aten.select_scatter.default,
        aten.slice_backward.default,
        aten.slice_scatter.default,
        aten.stack.default,
        aten.where.Scalar,
        aten.where.ScalarOther,
        aten.where.ScalarSelf,
        torch.ops.prims.convert_element_type.default,
        torch.ops.prims.iota.default,
        torch.ops.prims.div.default,
        torch.ops.prims.broadcast_in_dim.default,
    }
)
"""Not tagged as pointwise, but code generators fuse them all the same."""


_REDUCTIONS = frozenset(
    f"aten::{name}"
    for name in [
        "sum",
        "mean",
        "amax",
        "amin",
        "prod",
        "any",
        "all",
        "argmax",
        "argmin",
        "max",
        "min",
        "var",
        "var_mean",
        "std",
        "std_mean",
        "linalg_vector_norm",
        "_softmax",
        "_safe_softmax",
        "_log_softmax",
        "_softmax_backward_data",
        "_log_softmax_backward_data",
        "native_layer_norm",
        "native_layer_norm_backward",
        "native_group_norm",
        "native_group_norm_backward",
        "native_batch_norm_backward",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_functional",
        "_native_batch_norm_legit_no_training",
        "logsumexp",
    ]
)


def is_reduction(node: fx.Node) -> bool:
    """Does the node reduce over loops, so that what it reads can be computed inside those loops?"""
    return isinstance(node.target, OpOverload) and node.target._schema.name in _REDUCTIONS


@functools.cache
def _fusible_operator(func: Any) -> bool:
    if not isinstance(func, OpOverload) or is_random(func) or writes_to(func):
        return False
    return func in _FUSIBLE or torch.Tag.pointwise in func.tags


def copies_an_input(node: fx.Node) -> bool:
    """Is it a clone of an input or of a view of one? The program makes it before it writes to the input: a queue, running statistics."""
    source = node.args[0] if node.target is aten.clone.default else None
    while isinstance(source, fx.Node) and is_alias(source):
        source = source.args[0]
    return isinstance(source, fx.Node) and source.op == "placeholder"


def is_alias(node: fx.Node) -> bool:
    """Does the node only look at its argument's memory in another way?"""
    func = node.target
    if func is operator.getitem:
        whole = node.args[0]
        return isinstance(whole, fx.Node) and is_view(whole.target)
    return is_view(func) or func is aten._unsafe_view.default


def owner_of(node: fx.Node) -> fx.Node:
    """The node whose memory this one looks at."""
    while is_alias(node):
        first = node.args[0]
        assert isinstance(first, fx.Node)
        node = first
    return node


def is_fusible(node: fx.Node) -> bool:
    """Can the node be computed again for next to nothing, inside the kernel that needs it?"""
    if is_symbolic(node) or is_alias(node):
        return True
    return node.op == "call_function" and _fusible_operator(node.target)


def is_symbolic(node: fx.Node) -> bool:
    """Is the value a number?"""
    return isinstance(node.meta.get("val"), (*SYMBOLIC_TYPES, int, float, bool))


def size_hint(value: Any) -> int:
    """The int behind a size; 64 for a size that only the data decide."""
    if isinstance(value, int):
        return value
    try:
        hint = value.node.hint
    except (AttributeError, RuntimeError):
        hint = None
    return int(hint) if hint is not None else 64


def bytes_of(value: Any) -> int:
    """Bytes of a tensor's elements (expanded dimensions count once); a number has 8."""
    if not isinstance(value, torch.Tensor):
        return 8
    count = 1
    for size, stride in zip(value.shape, value.stride(), strict=True):
        if not (isinstance(stride, int) and stride == 0):
            count *= size_hint(size)
    return count * value.element_size()
