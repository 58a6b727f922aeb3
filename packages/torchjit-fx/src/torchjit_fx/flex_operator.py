"""`flex_attention` as operators: what graphs of CUDA tensors hold, so that a backend can put kernels in their place.

Run as they are, they materialise all scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from torchjit_fx.control_flow import PROGRAMS, autograd_works
from torchjit_torch.custom_operators import define_operator

__all__ = ["BACKWARD", "FORWARD", "attention_named", "laid_out_like", "takes"]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def attention_named(name: str) -> Any:
    """The `FlexAttention` that `name_of` gave this name."""
    return PROGRAMS[name]


def takes(query: Tensor, key: Tensor, value: Tensor, more: Sequence[Tensor], outside: Sequence[Tensor]) -> bool:
    """May the call be one operator? It is while a graph of CUDA tensors is traced.

    Numbers of heads and of their elements have to be known. Gradients of what the functions use from outside are added up in any order,
    unless the user forbids that.
    """
    heads, tensors = (query, key, value), (query, key, value, *more)
    adds = torch.is_grad_enabled() and any(t.requires_grad for t in outside)
    return (
        query.device.type == "cuda"
        and query.dtype in _DTYPES
        and all(type(t) is FakeTensor and t.device == query.device and t.layout == torch.strided for t in tensors)
        and key.dtype is query.dtype is value.dtype
        and _same(key.size(0), query.size(0))
        and all(type(t.size(1)) is type(t.size(3)) is int for t in heads)
        and all(map(_is_usual, tensors))
        and not (adds and torch.are_deterministic_algorithms_enabled())
    )


def _is_usual(t: Tensor) -> bool:
    """Has it elements, and none before its start, whatever the call?"""
    return all(_least(n) > 0 for n in t.shape) and all(_least(s) >= 0 for s in t.stride())


def _least(size: Any) -> int:
    """What a size or stride is at least; -1 if that is not known."""
    if type(size) is int:
        return size
    expression = getattr(size.node, "expression", None)
    least = None if expression is None else expression.bounds().lower
    return -1 if least is None else int(least)


def _same(left: Any, right: Any) -> bool:
    """Are sizes equal, whatever the call?"""
    if type(left) is int and type(right) is int:
        return left == right
    found = [getattr(getattr(size, "node", None), "expression", None) for size in (left, right)]
    return found[0] is not None and found[0] is found[1]


def laid_out_like(result: Tensor, query: Tensor) -> Tensor:
    """With its dimensions in memory in the order of the query's, but for the last one, which is innermost."""
    strides = query.stride()
    order = sorted(range(result.dim() - 1), key=lambda i: strides[i], reverse=True)
    order.append(result.dim() - 1)
    back = sorted(range(result.dim()), key=lambda i: order[i])
    return result.permute(order).contiguous().permute(back)


def _dense(query: Tensor, key: Tensor, value: Tensor, more: Sequence[Tensor], attention: str) -> Any:
    return tuple(t.detach() for t in PROGRAMS[attention].dense(query, key, value, *more))


def _fake(query: Tensor, key: Tensor, value: Tensor, more: Sequence[Tensor], attention: str) -> Any:
    rows = query.shape[:3]
    result = laid_out_like(query.new_empty((*rows, value.shape[3])), query)
    return result, query.new_empty(rows, dtype=torch.float32), query.new_empty(rows, dtype=torch.float32)


def _dense_backward(*given: Any) -> Any:
    *operands, attention = given
    with torch.enable_grad(), autograd_works():
        found = PROGRAMS[attention].dense_gradients(*operands)
    promised = _fake_backward(*given)
    return [p.copy_(f.detach()) for p, f in zip(promised, found, strict=True)]


def _fake_backward(query: Tensor, key: Tensor, value: Tensor, more: Sequence[Tensor], *rest: Any) -> Any:
    *_, wanted, _ = rest
    made = [laid_out_like(torch.empty(t.shape, dtype=t.dtype, device=t.device), t) for t in (query, key, value)]
    return made + [torch.empty(more[n].shape, dtype=more[n].dtype, device=query.device) for n in wanted]


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Any:
        *more, attention = rest  # what is no tensor comes last: it has no edge
        with torch._C._AutoDispatchBelowAutograd():
            result, total, largest = FORWARD(query, key, value, list(more), attention)
        ctx.attention = attention
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, key, value, result, total, *more)
        ctx.mark_non_differentiable(largest)
        return result, total, largest

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, of_total: Any, of_largest: Any) -> Any:
        query, key, value, result, total, *more = ctx.saved_tensors
        if gradient is None and of_total is None:
            return (None,) * (4 + len(more))
        if gradient is None:
            gradient, shift = torch.zeros_like(result), torch.zeros_like(total)
        else:
            shift = (result.float() * gradient.float()).sum(-1)
        if of_total is not None:
            shift = shift - of_total / math.log(2)
        wanted = [n for n, needed in enumerate(ctx.needs_input_grad[3:-1]) if needed]
        found = BACKWARD(query, key, value, more, total, gradient, shift, wanted, ctx.attention)
        others = dict(zip(wanted, found[3:], strict=True))
        return (*found[:3], *[others.get(n) for n in range(len(more))], None)


def _autograd(query: Tensor, key: Tensor, value: Tensor, more: Sequence[Tensor], attention: str) -> Any:
    if torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value, *more)):
        return _Differentiable.apply(query, key, value, *more, attention)
    with torch._C._AutoDispatchBelowAutograd():
        return FORWARD(query, key, value, more, attention)


def _autograd_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    more: Sequence[Tensor],
    total: Tensor,
    gradient: Tensor,
    shift: Tensor,
    wanted: Any,
    attention: str,
) -> Any:
    """For derivatives of gradients: by all scores."""
    tensors = (query, key, value, *more, gradient, shift)
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
        with torch._C._AutoDispatchBelowAutograd():
            return BACKWARD(query, key, value, more, total, gradient, shift, wanted, attention)
    needed = (0, 1, 2, *[3 + n for n in wanted])
    given = [
        t.detach().requires_grad_() if n in needed and not t.requires_grad else t
        for n, t in enumerate((query, key, value, *more))
    ]
    result, total, _ = PROGRAMS[attention].dense(*given)
    of_total = ((result.float() * gradient.float()).sum(-1) - shift) * math.log(2)
    leaves = [given[n] for n in needed]
    return list(torch.autograd.grad([result, total], leaves, [gradient, of_total], create_graph=True))


FORWARD = define_operator(
    "torchjit_attention",
    "forward(Tensor query, Tensor key, Tensor value, Tensor[] more, str attention) -> (Tensor, Tensor, Tensor)",
    _dense, _fake, autograd=_autograd,
)  # fmt: skip
"""Takes query, key, value, the tensors of the block mask and those that the functions use; gives the result, and logarithm (to base
2) and maximum (over log 2) of the scores."""
BACKWARD = define_operator(
    "torchjit_attention",
    "backward(Tensor query, Tensor key, Tensor value, Tensor[] more, Tensor total, Tensor gradient, Tensor shift, "
    "int[] wanted, str attention) -> Tensor[]",
    _dense_backward, _fake_backward, autograd=_autograd_backward,
)  # fmt: skip
"""The gradients of query, key and value, and of those of `more` that are `wanted`. `shift` is the sum of result times gradient over a row, less the gradient of the
logarithm of its sum (to base e)."""
