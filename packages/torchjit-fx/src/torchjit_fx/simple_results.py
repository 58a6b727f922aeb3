"""What some operators give, said without running them on fakes: those that torch takes apart into dozens of others only to know the sizes,
and those at which it imports a package that the program does not need.

A batch norm of a new shape took 15 to 30 ms so, and a network has 12 shapes and four such operators for each. Only the plainest calls are answered:
dense tensors of one real dtype in their usual order. For all others torch is asked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch._subclasses.fake_tensor import FakeTensor

from torchjit_fx.eager_rules.rule import Overload, Sizes, Value, Values
from torchjit_fx.eager_rules.view_strides import view_strides
from torchjit_fx.known_results import Known, Like

__all__ = ["simple_results"]

_aten = torch.ops.aten
_DTYPES = frozenset({torch.float32, torch.float64})


def simple_results(func: Overload, args: Values) -> Known | None:
    """The results of a call on tensors of known sizes; None where torch has to say."""
    rule = _RULES.get(func)
    return None if rule is None or torch.is_inference_mode_enabled() else rule(*args)


def _is_plain(value: Value) -> bool:
    return type(value) is FakeTensor and value.constant is None and not value.is_inference() and not value.is_neg()


def _contiguous(sizes: Sizes) -> tuple[int, ...]:
    strides, step = [1] * len(sizes), 1
    for dim in range(len(sizes) - 1, -1, -1):
        strides[dim] = step
        step *= sizes[dim]
    return tuple(strides)


def _is_dense(value: Value) -> bool:
    """A plain tensor in its usual order, or with its channels last, in which no size leaves the order open."""
    if not _is_plain(value) or value.dtype not in _DTYPES or 0 in value.shape:
        return False
    if value.stride() == _contiguous(value.shape):
        return True
    return 1 not in value.shape and value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)


def _is_vector(value: Value, like: torch.Tensor, size: int) -> bool:
    """One number for each channel, or nothing."""
    if value is None:
        return True
    return (
        _is_plain(value) and value.shape == (size,) and value.dtype is like.dtype and value.fake_device == _device(like)
    )


def _device(value: Any) -> torch.device:
    return value.fake_device  # type: ignore[no-any-return]


def _as(like: torch.Tensor, sizes: Sizes, strides: Sizes | None = None) -> Like:
    """A new tensor of the dtype and on the device of another one."""
    lie = _contiguous(sizes) if strides is None else tuple(strides)
    return Like(tuple(sizes), lie, like.dtype, _device(like), None)


def _trained(x: Value, channels: Values) -> bool:
    """Are statistics of more than one number for each channel taken of a plain tensor?"""
    if not _is_dense(x) or x.dim() < 2 or x.numel() <= x.shape[1]:
        return False
    return all(_is_vector(value, x, x.shape[1]) for value in channels)


def _batch_norm(
    x: Value, weight: Value, bias: Value, mean: Value, var: Value, training: Value, *rest: Value
) -> Known | None:
    if type(training) is not bool or not _trained(x, (weight, bias, mean, var)):
        return None
    if not training and (mean is None or var is None):
        return None  # refused, and torch says why
    # Outside of training CPUs give no statistics.
    statistics = _as(x, (x.shape[1] if training or _device(x).type != "cpu" else 0,))
    return Known((_as(x, x.shape, x.stride()), statistics, statistics), tuple)


def _untrained_batch_norm(
    x: Value, weight: Value, bias: Value, mean: Value, var: Value, momentum: Value, eps: Value
) -> Known | None:
    return _batch_norm(x, weight, bias, mean, var, False, momentum, eps)


def _cudnn_batch_norm(*args: Value) -> Known | None:
    known = _batch_norm(*args)
    if known is None:
        return None
    x, nothing = known.results[0], _as(args[0], (0,))
    reserve = attrs.evolve(nothing, dtype=torch.uint8)
    return Known((*(known.results if args[5] else (x, nothing, nothing)), reserve), tuple)


def _functional_batch_norm(*args: Value) -> Known | None:
    known = _batch_norm(*args) if args[5] is True else None
    if known is None or args[3] is None or args[4] is None:
        return None
    return Known((*known.results, known.results[1], known.results[1]), tuple)


def _batch_norm_backward(
    grad: Value, x: Value, weight: Value, mean: Value, var: Value, saved: Value, invstd: Value, train: Value, eps: Value, mask: Values
) -> Known | None:  # fmt: skip
    if train is not True or saved is None or invstd is None or not _trained(x, (weight, mean, var, saved, invstd)):
        return None
    if not _is_dense(grad) or (grad.shape, grad.stride(), grad.dtype) != (x.shape, x.stride(), x.dtype):
        return None
    channel = _as(x, (x.shape[1],))
    return Known((_as(x, x.shape, x.stride()), channel if mask[1] else None, channel if mask[2] else None), tuple)


def _layer_norm(x: Value, shape: Sizes, weight: Value, bias: Value, *rest: Value) -> Known | None:
    if not _is_dense(x) or x.stride() != _contiguous(x.shape) or not 0 < len(shape) <= x.dim():
        return None
    outer = x.dim() - len(shape)
    if tuple(x.shape[outer:]) != tuple(shape):
        return None
    for value in (weight, bias):
        if value is not None and not (_is_dense(value) and value.shape == tuple(shape) and value.dtype is x.dtype):
            return None
    statistics = _as(x, (*x.shape[:outer], *([1] * len(shape))))
    return Known((_as(x, x.shape), statistics, statistics), tuple)


def _addmm(bias: Value, left: Value, right: Value) -> Known | None:
    if not all(_is_plain(t) and t.dtype in _DTYPES and t.dtype is left.dtype for t in (bias, left, right)):
        return None
    if left.dim() != 2 or right.dim() != 2 or left.shape[1] != right.shape[0] or bias.dim() != 1:
        return None
    if bias.shape[0] != right.shape[1] or len({_device(t) for t in (bias, left, right)}) > 1:
        return None
    return Known((_as(left, (left.shape[0], right.shape[1])),), None)


def _pointwise_backward(grad: Value, x: Value, *rest: Value) -> Known | None:
    if not (_is_dense(grad) and _is_dense(x)) or _device(grad) != _device(x):
        return None
    alike = (grad.shape, grad.stride(), grad.dtype) == (x.shape, x.stride(), x.dtype)
    return Known((_as(x, x.shape, x.stride()),), None) if alike else None


def _view(x: Value, shape: Sizes) -> Known | None:
    if not _is_plain(x) or x.is_conj() or not x.numel() or any(n == 0 or n < -1 for n in shape):
        return None
    count = math.prod(n for n in shape if n != -1)
    if shape.count(-1) > 1 or x.numel() % count:
        return None
    sizes = tuple(x.numel() // count if n == -1 else n for n in shape)
    strides = view_strides(x.shape, x.stride(), sizes) if math.prod(sizes) == x.numel() else None
    if strides is None:
        return None  # refused, and torch says why
    return Known((Like(sizes, tuple(strides), x.dtype, _device(x), int(x.storage_offset())),), None)


def _as_twins(func: Overload, *args: Value) -> Known | None:
    """As of tensors without a mode that have the same sizes, strides and dtypes."""
    x = args[0]
    given = [value for value in args if isinstance(value, torch.Tensor)]
    if not all(_is_plain(t) and not t.is_conj() and _device(t) == _device(x) for t in given):
        return None
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        twins = [_twin(value) if isinstance(value, torch.Tensor) else value for value in args]
        try:
            result = func(*twins)
        except Exception:
            return None  # refused, and torch says why
    if result is twins[0]:
        return None
    shared = result.untyped_storage()._cdata == twins[0].untyped_storage()._cdata
    offset = int(x.storage_offset() + result.storage_offset()) if shared else None
    return Known((Like(tuple(result.shape), tuple(result.stride()), result.dtype, _device(x), offset),), None)


def _twin(t: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")


_ASK_FOR_DEVICES = (
    "permute.default select.int clone.default relu.default clamp.default clamp_min.default clamp_max.default hardtanh.default "
    "hardswish.default masked_fill.Scalar triu.default tril.default constant_pad_nd.default index_select.default"
)
"""In these C++ asks a fake for its device, which is a call of Python's. At the first such call torch looks whether it is for a DTensor, and
imports `torch.distributed.tensor`: 0.2 to 0.7 s of the first capture of a program that has nothing to do with it."""


def _overload(name: str) -> Overload:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_aten, packet), overload)  # type: ignore[no-any-return]


_RULES: dict[Overload, Callable[..., Known | None]] = {
    **{func: functools.partial(_as_twins, func) for func in map(_overload, _ASK_FOR_DEVICES.split())},
    _aten.native_batch_norm.default: _batch_norm,
    _aten._native_batch_norm_legit.default: _batch_norm,
    _aten._native_batch_norm_legit_no_training.default: _untrained_batch_norm,
    _aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    _aten._native_batch_norm_legit_functional.default: _functional_batch_norm,
    _aten.native_batch_norm_backward.default: _batch_norm_backward,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.addmm.default: _addmm,
    _aten.threshold_backward.default: _pointwise_backward,
    _aten.gelu_backward.default: _pointwise_backward,
    _aten.tanh_backward.default: _pointwise_backward,
    _aten.view.default: _view,
    _aten._unsafe_view.default: _view,
}
