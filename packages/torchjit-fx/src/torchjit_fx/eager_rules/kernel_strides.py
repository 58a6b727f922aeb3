"""Where results of kernels lie otherwise than torch's fake tensors say.

Elementwise operations follow their operands (`elementwise_strides.py`). What else is here was found by `tools/sweep_strides.py`: kernels of
CPUs that lay out their result in one way, whatever the operands are, where fakes are those of an elementwise decomposition.
Source: aten/src/ATen/native (torch 2.15), the function named at each rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for, suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor

from torchjit_fx.eager_rules.elementwise_strides import Undecided, dense_strides, elementwise_strides, is_plain
from torchjit_fx.eager_rules.rule import (
    NamedValues,
    OperatorCall,
    OperatorRule,
    Overload,
    Size,
    Sizes,
    Strides,
    StridesRule,
    Value,
    Values,
)

__all__ = [
    "as_kernels_do", "contiguous", "in_memory_format", "like", "of_plain", "resizable", "roll", "strides_of_resized", "strides_rule",
]  # fmt: skip


def as_kernels_do(
    rule: StridesRule, args: Values, kwargs: NamedValues, results: Value, make: Callable[..., torch.Tensor]
) -> Value:
    """The results of a call as the kernel lays them out.

    Args:
        rule: of the operation, see `strides_rule`.
        args, kwargs: of the call.
        results: fake tensors.
        make: a fake tensor from sizes, strides, dtype and device.
    """
    single = isinstance(results, torch.Tensor)
    made: list[Size] = [results] if single else list(results)
    try:
        wanted = rule(made, args, kwargs)
    except Undecided:
        return results
    if not wanted:
        return results
    changed = False
    for i, strides in enumerate(wanted):
        t = made[i]
        if strides is None or not isinstance(t, torch.Tensor) or getattr(t, "constant", None) is not None:
            continue  # of one element, whose value is known
        if tuple(t.stride()) != tuple(strides):
            made[i], changed = make(tuple(t.shape), tuple(strides), t.dtype, t.device), True
    if not changed:
        return results
    return made[0] if single else tuple(made)


@functools.cache
def strides_rule(func: Overload, rule: OperatorRule) -> StridesRule | None:
    """How the results of an ATen overload lie; None if fakes are right."""
    makes_results = not (func._schema.name.endswith("_") or any(a.is_out for a in func._schema.arguments))
    if rule.strides is not None and makes_results:
        return rule.strides
    return _elementwise_rule(func, rule)


def resizable(call: OperatorCall) -> torch.Tensor | None:
    """What an elementwise operation writes to and may give other sizes: its `out=`."""
    out = call.kwargs.get("out") if call.func._overloadname.endswith("out") else None
    return out if type(out) is FakeTensor and _operands(call.func, call.rule, True) else None


def strides_of_resized(call: OperatorCall, out: torch.Tensor) -> Sizes | None:
    """The strides of an `out=` that an elementwise operation has given other sizes: those of a result of its own. None: as they are."""
    positions = _operands(call.func, call.rule, True) or ()
    operands = [call.args[i] for i in positions if i < len(call.args) and call.args[i] is not None]
    try:
        found = _follow([a if isinstance(a, torch.Tensor) else None for a in operands], out)
    except Undecided:
        return None
    return None if not found or tuple(out.stride()) == found[0] else found[0]


# ---------------------------------------------------------------- elementwise operations
@functools.cache
def _operands(func: Overload, rule: OperatorRule, writes: bool) -> tuple[int, ...] | None:
    """The positions of the operands, in the kernel's order; None if this is no elementwise operation.

    Args:
        func: an ATen overload.
        rule: its rule.
        writes: is it to be one with `out=`?
    """
    schema = func._schema
    if (func.namespace, [str(r.type) for r in schema.returns]) != ("aten", ["Tensor"]):
        return None
    taken = [a for a in schema.arguments if not (writes and a.name == "out")]
    returned = () if writes else schema.returns
    if rule.elementwise is False or any(a.alias_info is not None for a in (*taken, *returned)):
        return None
    if torch.Tag.pointwise not in func.tags and not rule.elementwise:
        return None
    kinds = {"Tensor", "Optional[Tensor]"}
    if "calar" in func._overloadname and not rule.number_apart:
        kinds.add("number")
    positions = [i for i, a in enumerate(taken) if str(a.type) in kinds]
    if rule.second_first:
        positions[:2] = [1, 0]
    return tuple(positions)


def _elementwise_rule(func: Overload, rule: OperatorRule) -> StridesRule | None:
    positions = _operands(func, rule, False)
    if positions is None:
        return None

    def follow(results: list[Value], args: Values, kwargs: NamedValues) -> Strides:
        for a in args:  # the usual case: all are contiguous
            if type(a) is FakeTensor and not is_plain(a):
                break
        else:
            return ()
        operands = [args[i] for i in positions if i < len(args) and args[i] is not None]
        return _follow([a if isinstance(a, torch.Tensor) else None for a in operands], results[0])

    return follow


def _follow(operands: Sequence[torch.Tensor | None], result: torch.Tensor) -> Strides:
    if result.dim() < 2 or result.device.type == "meta":
        return ()
    return (elementwise_strides(operands, result.shape),)


# ---------------------------------------------------------------- kernels of CPUs
def _on_cpu(lay_out: Callable[..., Strides]) -> StridesRule:
    def rule(results: list[Value], args: Values, kwargs: NamedValues) -> Strides:
        on_cpu = all(t.device.type == "cpu" for t in results if isinstance(t, torch.Tensor))
        return lay_out(results, *args, **kwargs) if on_cpu else ()

    return rule


@_on_cpu
def contiguous(results: list[Value], *args: Value, **options: Value) -> Strides:
    return [make_contiguous_strides_for(t.shape) if isinstance(t, torch.Tensor) else None for t in results]


def like(position: int) -> StridesRule:
    """The first result is `empty_like` of an argument, if it has its sizes."""

    def lay_out(results: list[Value], *args: Value, memory_format: Any = None, **options: Value) -> Strides:
        x = args[position]
        if memory_format not in (None, torch.preserve_format):
            return ()
        return () if x.dim() < 2 or x.dim() != results[0].dim() or is_plain(x) else (dense_strides(x),)

    return _on_cpu(lay_out)


def in_memory_format(position: int) -> StridesRule:
    """The first result has the memory format of an argument, and is contiguous if that has none."""

    def lay_out(results: list[Value], *args: Value, **options: Value) -> Strides:
        x, first = args[position], results[0]
        if not isinstance(first, torch.Tensor) or first.dim() < 2:
            return ()
        contiguous = x.is_contiguous() or suggest_memory_format(x) is torch.contiguous_format
        sizes = tuple(first.shape)
        return (make_contiguous_strides_for(sizes) if contiguous else make_channels_last_strides_for(sizes),)

    return _on_cpu(lay_out)


def of_plain(results: list[Value], args: Values, kwargs: NamedValues) -> Strides:
    """Rare operations that lay out their results in a way of their own: those of tensors with gaps, or turned, are not for a graph."""
    if not all(is_plain(t) for t in args if isinstance(t, torch.Tensor)):
        raise RuntimeError("the layout of the result is not known")
    return ()


@_on_cpu
def roll(results: list[Value], x: Any, shifts: Any, dims: Sequence[int] = (), **options: Value) -> Strides:
    """TensorTransformations.cpp: for each dimension the concatenation of two parts, which has their memory format if both have one."""
    sizes, strides = tuple(x.shape), tuple(x.stride())
    amounts = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    if not all(type(n) is int for n in (*sizes, *amounts)):
        raise Undecided
    if len(amounts) == len(dims) == 1 and x.numel() == 0:
        return ()
    if len(amounts) != len(dims):
        return (make_contiguous_strides_for(sizes),)
    for amount, dim in zip(amounts, dims, strict=True):
        start = -amount % max(sizes[dim], 1)
        parts = [(*sizes[:dim], n, *sizes[dim:][1:]) for n in (sizes[dim] - start, start)]
        last = all(_is_channels_last(part, strides) for part in parts)
        strides = make_channels_last_strides_for(sizes) if last else make_contiguous_strides_for(sizes)
    return (strides,)


def _is_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """c10/core/MemoryFormat.h: is_channels_last_strides_2d and _3d."""
    if len(sizes) not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for d in (1, *range(len(sizes) - 1, 1, -1), 0):
        if sizes[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(sizes[d], 1)
    return True
