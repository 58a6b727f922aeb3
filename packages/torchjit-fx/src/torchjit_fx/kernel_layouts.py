"""Where results of kernels lie otherwise than torch's fake tensors say.

Elementwise operations follow their operands (`elementwise_layouts.py`). What else is here was found by `tools/sweep_strides.py`: kernels of
CPUs that lay out their result in one way, whatever the operands are, where fakes are those of an elementwise decomposition.
Source: aten/src/ATen/native (torch 2.15), the function named at each rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for, suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor

from torchjit_fx.elementwise_layouts import Undecided, dense_strides, elementwise_strides, is_plain

__all__ = ["as_kernels_do", "layout_of_resized", "layout_rule", "resizable"]

_aten = torch.ops.aten
Strides: TypeAlias = "Sequence[tuple[Any, ...] | None]"
"""Of the first results; None: as the fakes say."""
Rule: TypeAlias = "Callable[[list[Any], Sequence[Any], Mapping[str, Any]], Strides]"
"""From the results and the call's arguments."""


def as_kernels_do(
    rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any, make: Callable[..., torch.Tensor]
) -> Any:
    """The results of a call as the kernel lays them out.

    Args:
        rule: of the operation, see `layout_rule`.
        args, kwargs: of the call.
        results: fake tensors.
        make: a fake tensor from sizes, strides, dtype and device.
    """
    single = isinstance(results, torch.Tensor)
    made: list[Any] = [results] if single else list(results)
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


def layout_rule(func: Any) -> Rule | None:
    """The rule of an ATen overload, None if fakes are right."""
    try:
        return _RULES[func]
    except KeyError:
        found = _RULES[func] = _elementwise_rule(func)
        return found


def resizable(func: Any, kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """What an elementwise operation writes to and may give other sizes: its `out=`."""
    out = kwargs.get("out") if func._overloadname.endswith("out") else None
    return out if type(out) is FakeTensor and _operands(func, True) else None


def layout_of_resized(func: Any, args: Sequence[Any], out: torch.Tensor) -> tuple[Any, ...] | None:
    """The strides of an `out=` that an elementwise operation has given other sizes: those of a result of its own. None: as they are."""
    positions = _operands(func, True) or ()
    operands = [args[i] for i in positions if i < len(args) and args[i] is not None]
    try:
        found = _follow([a if isinstance(a, torch.Tensor) else None for a in operands], out)
    except Undecided:
        return None
    return None if not found or tuple(out.stride()) == found[0] else found[0]


# ---------------------------------------------------------------- elementwise operations
_NOT_TAGGED = frozenset(
    {
        "complex", "floor_divide", "hardshrink_backward", "hardsigmoid_backward", "hardswish", "hardswish_backward", "hardtanh_backward",
        "leaky_relu_backward", "log_sigmoid_backward", "mish_backward", "mse_loss", "polar", "smooth_l1_loss", "softplus_backward", "softshrink_backward", "elu_backward",
    }
)  # fmt: skip
_SECOND_FIRST = frozenset({"leaky_relu_backward", "threshold_backward"})
"""The kernel's first operand is the call's second one."""
_NUMBERS_APART = frozenset({("pow", "Tensor_Scalar"), ("lerp", "Scalar")})
"""Of other overloads for numbers the kernel makes the number a tensor, one of its operands."""
_OTHERWISE = frozenset({"clone", "conj_physical", "ldexp", "masked_fill", "mvlgamma"})
"""Tagged, and more than one kernel, or a copy."""


@functools.cache
def _operands(func: Any, writes: bool) -> tuple[int, ...] | None:
    """The positions of the operands, in the kernel's order; None if this is no elementwise operation.

    Args:
        func: an ATen overload.
        writes: is it to be one with `out=`?
    """
    schema = func._schema
    name = schema.name.removeprefix("aten::")
    if func.namespace != "aten" or len(schema.returns) != 1 or str(schema.returns[0].type) != "Tensor":
        return None
    taken = [a for a in schema.arguments if not (writes and a.name == "out")]
    returned = () if writes else schema.returns
    if name in _OTHERWISE or any(a.alias_info is not None for a in (*taken, *returned)):
        return None
    if torch.Tag.pointwise not in func.tags and name not in _NOT_TAGGED:
        return None
    kinds = {"Tensor", "Optional[Tensor]"}
    if "calar" in func._overloadname and (name, func._overloadname.removesuffix("_out")) not in _NUMBERS_APART:
        kinds.add("number")
    positions = [i for i, a in enumerate(taken) if str(a.type) in kinds]
    if name in _SECOND_FIRST:
        positions[:2] = [1, 0]
    return tuple(positions)


def _elementwise_rule(func: Any) -> Rule | None:
    positions = _operands(func, False)
    if positions is None:
        return None

    def rule(results: list[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides:
        for a in args:  # the usual case: all are contiguous
            if type(a) is FakeTensor and not is_plain(a):
                break
        else:
            return ()
        operands = [args[i] for i in positions if i < len(args) and args[i] is not None]
        return _follow([a if isinstance(a, torch.Tensor) else None for a in operands], results[0])

    return rule


def _follow(operands: Sequence[torch.Tensor | None], result: torch.Tensor) -> Strides:
    if result.dim() < 2 or result.device.type == "meta":
        return ()
    return (elementwise_strides(operands, result.shape),)


def _ldexp(results: list[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides:
    """The product with a power of a number, which is contiguous (`at::pow(const Scalar&, const Tensor&)`)."""
    x, result = args[0], results[0]
    if result.dim() < 2 or is_plain(x):
        return ()
    return (elementwise_strides((x, torch.empty(args[1].shape, device="meta")), result.shape),)


# ---------------------------------------------------------------- kernels of CPUs
def _on_cpu(lay_out: Callable[..., Strides]) -> Rule:
    def rule(results: list[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides:
        on_cpu = all(t.device.type == "cpu" for t in results if isinstance(t, torch.Tensor))
        return lay_out(results, *args, **kwargs) if on_cpu else ()

    return rule


def _contiguous(results: list[Any], *args: Any, **options: Any) -> Strides:
    return [make_contiguous_strides_for(t.shape) if isinstance(t, torch.Tensor) else None for t in results]


def _like(position: int) -> Callable[..., Strides]:
    """The first result is `empty_like` of an argument, if it has its sizes."""

    def lay_out(results: list[Any], *args: Any, memory_format: Any = None, **options: Any) -> Strides:
        x = args[position]
        if memory_format not in (None, torch.preserve_format):
            return ()
        return () if x.dim() < 2 or x.dim() != results[0].dim() or is_plain(x) else (dense_strides(x),)

    return lay_out


def _in_memory_format(position: int) -> Callable[..., Strides]:
    """The first result has the memory format of an argument, and is contiguous if that has none."""

    def lay_out(results: list[Any], *args: Any, **options: Any) -> Strides:
        x, first = args[position], results[0]
        if not isinstance(first, torch.Tensor) or first.dim() < 2:
            return ()
        contiguous = x.is_contiguous() or suggest_memory_format(x) is torch.contiguous_format
        sizes = tuple(first.shape)
        return (make_contiguous_strides_for(sizes) if contiguous else make_channels_last_strides_for(sizes),)

    return lay_out


def _rrelu_backward(results: list[Any], *args: Any, **options: Any) -> Strides:
    """`rrelu_with_noise_backward`: a product with the noise, or the gradient of a leaky relu."""
    gradient, x, noise, lower, upper, training = args[:6]
    return _follow([noise if training and upper - lower > 1e-6 else x, gradient], results[0])


def _roll(results: list[Any], x: Any, shifts: Any, dims: Sequence[int] = (), **options: Any) -> Strides:
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


_ON_CPUS: dict[str, Callable[..., Strides]] = {
    # Normalization.cpp: batch_norm_cpu, batch_norm_backward_cpu_template
    "native_batch_norm": _in_memory_format(0),
    "_native_batch_norm_legit": _in_memory_format(0),
    "_native_batch_norm_legit.no_stats": _in_memory_format(0),
    "_native_batch_norm_legit_no_training": _in_memory_format(0),
    "_native_batch_norm_legit_functional": _in_memory_format(0),
    "_batch_norm_with_update": _in_memory_format(0),
    "_batch_norm_with_update_functional": _in_memory_format(0),
    "_batch_norm_no_update": _in_memory_format(0),
    "native_batch_norm_backward": _in_memory_format(1),
    "batch_norm_backward": _in_memory_format(1),
    "native_layer_norm_backward": _contiguous,  # layer_norm.cpp
    "_log_softmax_backward_data": _contiguous,  # SoftMax.cpp
    "mse_loss_backward": _contiguous,  # Loss.cpp, as the next four
    "smooth_l1_loss_backward": _contiguous,
    "huber_loss_backward": _contiguous,
    "huber_loss": _like(0),
    "binary_cross_entropy_backward": _like(1),
    "log_sigmoid_forward": _contiguous,  # Activation.cpp, as the next two
    "rrelu_with_noise": _contiguous,
    "rrelu_with_noise_backward": _rrelu_backward,
    "pow.Scalar": _contiguous,  # Pow.cpp
    "normal.Tensor_float": _contiguous,  # DistributionTemplates.h
    "normal.float_Tensor": _contiguous,
    "normal.Tensor_Tensor": _contiguous,
    "poisson": _contiguous,  # Distributions.cpp
    "_standard_gamma": _contiguous,
    "masked_fill.Scalar": _contiguous,  # TensorAdvancedIndexing.cpp, as the next three
    "masked_fill.Tensor": _contiguous,
    "index_fill.int_Scalar": _like(0),
    "index_fill.int_Tensor": _like(0),
    "channel_shuffle": _in_memory_format(0),  # ChanelShuffle.cpp
    "roll": _roll,
    "replication_pad2d_backward": _in_memory_format(1),  # ReplicationPadding.cpp
}


_MADE_ALIKE = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")


def _rules() -> dict[Any, Rule | None]:
    found: dict[Any, Rule | None] = {_aten.ldexp.Tensor: _ldexp}
    for name in _MADE_ALIKE:
        packet = getattr(_aten, name)
        made = [getattr(packet, overload) for overload in packet.overloads() if not overload.endswith("out")]
        found |= dict.fromkeys(made, _on_cpu(_like(0)))
    for name, lay_out in _ON_CPUS.items():
        base, _, overload = name.partition(".")
        func = getattr(getattr(_aten, base, None), overload or "default", None)
        if func is not None:  # versions of torch differ
            found[func] = _on_cpu(lay_out)
    return found


_RULES = _rules()
