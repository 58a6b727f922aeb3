"""`scaled_dot_product_attention` of few queries over many keys, as in decoding: which calls.

The library's kernels give one program to each head of each sequence, which walks over all keys. With few of these most of a GPU is idle,
so several programs share the keys of a row here (`parts`), and heads that share keys are rows of one program.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, final

import attrs
import torch
import torch.fx

__all__ = ["FUSED_ATTENTION", "FewQueries", "few_queries"]

_aten = torch.ops.aten
FUSED_ATTENTION = (
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
)
"""What `scaled_dot_product_attention` with a mask becomes on a GPU. Without one, the library's kernel shares keys between programs, too."""
_MOST_QUERIES = 16
_MOST_HEADS = 2 * 132
"""With two heads for each multiprocessor the library's kernels have programs enough."""
_LONGEST = 1 << 24
_DEEPEST = 256
_SHALLOW = 64
"""Elements of a head that the library's kernels read as fast (docs/benchmarks/gpu.md), unless keys would have to be written out for them."""
_DTYPES = (torch.float16, torch.bfloat16)
_VIEWS = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)


@final
@attrs.frozen(eq=False)
class FewQueries:
    """A call.

    Attributes:
        query, key, value: nodes; (batch, heads, length, depth), keys and values with as many heads as are in memory.
        bias: what is added to the scores, of a shape that broadcasts to (batch, heads, queries, keys), or None.
        scale: of the scores.
    """

    query: torch.fx.Node
    key: torch.fx.Node
    value: torch.fx.Node
    bias: torch.fx.Node | None
    scale: float

    @property
    def operands(self) -> tuple[torch.fx.Node, ...]:
        """The tensors."""
        return (self.query, self.key, self.value, *(() if self.bias is None else (self.bias,)))


def few_queries(node: torch.fx.Node) -> FewQueries | None:
    """What a call of the library's attention computes, where it has few queries, and its result alone is used."""
    if node.target not in FUSED_ATTENTION or not all(map(_is_result, node.users)):
        return None
    given = _by_name(node)
    if given["dropout_p"] or given["is_causal"]:
        return None
    query, bias = given["query"], given.get("attn_bias")
    key, value = _ungrouped(given["key"], given["value"])
    if key is given["key"] and query.meta["val"].shape[-1] <= _SHALLOW:
        return None
    if not _is_taken(*(n.meta["val"] for n in (query, key, value)), *([] if bias is None else [bias.meta["val"]])):
        return None
    scale = given["scale"]
    return FewQueries(query, key, value, bias, float(query.meta["val"].shape[-1] ** -0.5 if scale is None else scale))


def _is_result(user: torch.fx.Node) -> bool:
    """Is it the first of what the operator gives, or does nobody use it?"""
    return user.target is operator.getitem and bool(user.args[1] == 0 or not user.users)


def _by_name(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of a call of an operator."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    given = {a.name: value for a, value in zip(arguments, node.args, strict=False)} | dict(node.kwargs)
    return {a.name: given.get(a.name, a.default_value) for a in arguments}


def _is_taken(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *bias: torch.Tensor) -> bool:
    """Have the kernels of few queries something to gain, and take these? Sizes that vary have other kernels."""
    heads_of, tensors = (query, key, value), [query, key, value, *bias]
    if any(t.dim() != 4 for t in heads_of) or any(type(n) is not int or n < 1 for t in tensors for n in t.shape):
        return False
    batch, heads, queries, depth = query.shape
    return bool(
        query.device.type == "cuda"
        and query.dtype in _DTYPES
        and all(t.dtype is query.dtype for t in tensors)
        and key.shape[:3] == value.shape[:3]
        and queries <= _MOST_QUERIES < key.shape[2] < _LONGEST
        and max(depth, value.shape[3]) <= _DEEPEST
        and heads % key.shape[1] == 0
        and batch * heads < _MOST_HEADS
    )


def _ungrouped(key: torch.fx.Node, value: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node]:
    """Keys and values; where each of their heads was written equally often, one behind the other, they as they were before."""
    first, second = _before_repeating(key), _before_repeating(value)
    if first is None or second is None or first.meta["val"].shape[1] != second.meta["val"].shape[1]:
        return key, value
    return first, second


def _before_repeating(node: torch.fx.Node) -> torch.fx.Node | None:
    """x, if the node is `x[:, :, None].expand(batch, heads, times, length, depth).reshape(batch, heads * times, length, depth)`."""
    copied = _source(node, _VIEWS)
    expanded = None if copied is None else _source(copied, (_aten.clone.default,)) or copied
    unsqueezed = None if expanded is None else _source(expanded, (_aten.expand.default,))
    found = None if unsqueezed is None else _source(unsqueezed, (_aten.unsqueeze.default,))
    if found is None or unsqueezed is None or expanded is None or unsqueezed.args[1] not in (2, -3):
        return None
    batch, heads, length, depth = shape = found.meta["val"].shape
    times = expanded.meta["val"].shape
    if len(shape) != 4 or tuple(times) != (batch, heads, times[2], length, depth):
        return None
    return found if tuple(node.meta["val"].shape) == (batch, heads * times[2], length, depth) else None


def _source(node: torch.fx.Node, targets: Sequence[object]) -> torch.fx.Node | None:
    source = node.args[0] if node.target in targets else None
    return source if isinstance(source, torch.fx.Node) else None
