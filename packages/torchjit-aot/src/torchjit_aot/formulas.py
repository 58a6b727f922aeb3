"""How the large result of some operators follows from what they leave behind anyway.

A batch norm in training is one operator of the joint graph, and computing it again would mean its reductions. But its
result is a pointwise function of its input and of two numbers per channel, which are results of the same operator and
which its backward reads. So the backward can have the result again for next to nothing; a `Formula` says how.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch
from torch import fx

from torchjit_aot.joint import JointGraph
from torchjit_aot.while_traced import rounded_scale
from torchjit_torch.node_meta import BACKWARD

__all__ = ["Formula", "find_formulas"]

aten = torch.ops.aten
Call: TypeAlias = Callable[..., fx.Node]
"""`call(operator, args)`: adds a node and runs it on fakes."""


@final
@attrs.frozen(eq=False)
class Formula:
    """A pointwise way to a value.

    Attributes:
        reads: the nodes that it is made of.
        write: adds the nodes; called with `call` and the nodes that stand for `reads`.
    """

    reads: tuple[fx.Node, ...]
    write: Callable[[Call, Sequence[fx.Node]], fx.Node]


def find_formulas(joint: JointGraph, *, exact: bool = False) -> dict[fx.Node, Formula]:
    """The nodes of the joint graph that have one.

    Args:
        joint: the graph.
        exact: only formulas that give the operator's own bits. Those of norms round otherwise than eager PyTorch's kernels
            do, of which nothing is left where a channel or row has next to no variance.
    """
    found: dict[fx.Node, Formula] = {}
    formulas = _EXACT if exact else _FORMULAS
    for node in joint.graph.nodes:
        if node.op == "call_function" and node.target in formulas and not BACKWARD.of(node):
            items: dict[int, fx.Node] = {u.args[1]: u for u in node.users if u.target is operator.getitem}
            made = formulas[node.target](node, items) if 0 in items else None
            if made is not None:
                found[items[0]] = made
    return found


def _dropout(node: fx.Node, items: dict[int, fx.Node]) -> Formula | None:
    x, p, train = node.args
    if not train or 1 not in items or not isinstance(p, float) or not 0 < p < 1:
        return None
    assert isinstance(x, fx.Node)
    scale = rounded_scale(1.0 / (1.0 - p), x.meta["val"])

    def write(call: Call, reads: Sequence[fx.Node]) -> fx.Node:
        value, mask = reads
        dtype = value.meta["val"].dtype
        kept = call(aten.mul.Tensor, (value, call(aten._to_copy.default, (mask,), {"dtype": dtype})))
        return call(aten.mul.Tensor, (kept, scale))

    return Formula((x, items[1]), write)


def _is_precise(node: fx.Node) -> bool:
    return node.meta["val"].dtype in (torch.float32, torch.float64)


def _normalized(
    out: fx.Node,
    x: fx.Node,
    mean: fx.Node,
    rstd: fx.Node,
    weight: fx.Node | None,
    bias: fx.Node | None,
    spread: Callable[[Call, fx.Node], fx.Node],
) -> Formula | None:
    """`(x - mean) * rstd * weight + bias`; `spread` shapes what has one number per channel or row."""
    if not (_is_precise(mean) and _is_precise(rstd)):
        return None  # rounded statistics would give another result
    wide, narrow = mean.meta["val"].dtype, out.meta["val"].dtype
    reads = [x, mean, rstd, *(n for n in (weight, bias) if n is not None)]

    def write(call: Call, given: Sequence[fx.Node]) -> fx.Node:
        rest = list(given)

        def take() -> fx.Node:
            node = rest.pop(0)
            return node if node.meta["val"].dtype == wide else call(aten._to_copy.default, (node,), {"dtype": wide})

        value, center, scale = take(), spread(call, take()), spread(call, take())
        y = call(aten.mul.Tensor, (call(aten.sub.Tensor, (value, center)), scale))
        if weight is not None:
            y = call(aten.mul.Tensor, (y, spread(call, take())))
        if bias is not None:
            y = call(aten.add.Tensor, (y, spread(call, take())))
        return y if narrow == wide else call(aten._to_copy.default, (y,), {"dtype": narrow})

    return Formula(tuple(reads), write)


def _batch_norm(node: fx.Node, items: dict[int, fx.Node]) -> Formula | None:
    x, weight, bias = node.args[:3]
    training = node.args[5 if node.target is aten._native_batch_norm_legit_functional.default else 3]
    if training is not True or 1 not in items or 2 not in items or not isinstance(x, fx.Node):
        return None
    rank = x.meta["val"].dim()

    def spread(call: Call, per_channel: fx.Node) -> fx.Node:
        return call(aten.view.default, (per_channel, [1, -1, *[1] * (rank - 2)])) if rank > 2 else per_channel

    return _normalized(items[0], x, items[1], items[2], _node(weight), _node(bias), spread)


def _layer_norm(node: fx.Node, items: dict[int, fx.Node]) -> Formula | None:
    x, _, weight, bias = node.args[:4]
    if 1 not in items or 2 not in items or not isinstance(x, fx.Node):
        return None
    return _normalized(items[0], x, items[1], items[2], _node(weight), _node(bias), lambda call, n: n)


def _node(value: Any) -> fx.Node | None:
    return value if isinstance(value, fx.Node) else None


_Finder: TypeAlias = Callable[[fx.Node, dict[int, fx.Node]], Formula | None]
_EXACT: dict[Any, _Finder] = {aten.native_dropout.default: _dropout}
_FORMULAS: dict[Any, _Finder] = {
    **_EXACT,
    aten._native_batch_norm_legit_functional.default: _batch_norm,
    aten._native_batch_norm_legit.no_stats: _batch_norm,
    aten.native_layer_norm.default: _layer_norm,
}
