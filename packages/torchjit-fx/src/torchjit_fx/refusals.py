"""What eager refuses and fake tensors accept: dtypes that an operation has no kernel for, or checks for in C++ only.

`1.5 - mask` and `mask.abs()` raise in eager, as do a layer norm with weights of another dtype and a softmax over a
dimension that is not there, or a negative `beta`; torch's metadata functions return a tensor, sometimes of another dtype. So operations that can do with tensors of one
element run once for real, on such tensors, for each combination of dtypes and numbers. What the kernels support depends
on the device: for other devices than the CPU they run on `meta` tensors, which have the checks that all devices share.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from torchjit_core.forks import caught_warnings

__all__ = ["TAKEN_APART", "at_capture", "refuse_call", "refuse_dtypes", "refuse_other_dtype"]

TAKEN_APART = frozenset(
    {F.interpolate, F.one_hot, F.hardshrink, torch.hardshrink, "hardshrink", F.multi_margin_loss, F.multilabel_margin_loss}
)  # fmt: skip
"""Where sizes vary torch computes these by other operations, of which none has the checks of their kernels."""

_ABOUT_ARGUMENTS = re.compile(
    r"not implemented for '|dtype|scalar type|result type|[Bb]ool|complex|nteg|floating|long tensor|cannot be converted|Dimension out of range|used as indices"
    r"|negative values for|non-positive values for|must be in range|alpha cannot be|ound should be|>= 0|positive value"
)
_LIMIT = 10_000
_accepted: dict[Any, torch.dtype | None] = {}

_OTHERS = frozenset(
    {
        "_softmax", "_log_softmax", "native_layer_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
        "_native_batch_norm_legit_no_training", "native_group_norm", "log_sigmoid_forward", "_prelu_kernel", "binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss", "mse_loss", "smooth_l1_loss",
        "soft_margin_loss", "multi_margin_loss", "multilabel_margin_loss_forward", "nll_loss_forward", "nll_loss2d_forward", "mv", "addmv", "mm", "addmm", "bmm", "baddbmm", "addbmm", "dot", "vdot",
        "trace", "index_fill", "index_copy", "index_add", "index_put", "index", "index_select", "gather", "scatter", "scatter_add", "take", "embedding", "masked_scatter", "full_like", "full", "new_full", "fill", "constant_pad_nd", "scalar_tensor", "complex", "polar", "glu", "linalg_cross", "cumsum", "cumprod",
        "var", "std", "var_mean", "std_mean", "mean", "sum", "prod", "amax", "amin", "aminmax", "max", "min", "argmax", "argmin", "any", "all", "median",
        "nanmedian", "mode", "kthvalue", "sort", "topk", "cummax", "cummin", "logsumexp", "logcumsumexp", "linalg_vector_norm", "norm", "renorm", "triu", "tril",
        "uniform", "normal", "bernoulli", "exponential", "geometric", "log_normal", "cauchy", "random", "native_dropout", "rand_like", "randn_like", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d",
        "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_bicubic2d",
        "_cdist_forward", "_pdist_forward", "index_reduce", "put", "convolution", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d",
        "max_pool2d_with_indices", "max_pool3d_with_indices", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d", "grid_sampler_2d", "grid_sampler_3d",
        "_linalg_svd", "_linalg_eigh", "linalg_eig", "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex", "linalg_inv_ex", "linalg_cholesky_ex", "linalg_lu_factor_ex", "linalg_lu", "linalg_qr", "linalg_ldl_factor_ex", "linalg_matrix_exp",
        "linalg_solve_triangular", "triangular_solve", "cholesky_solve", "cholesky_inverse", "linalg_householder_product", "histc", "bucketize", "searchsorted", "im2col", "col2im",
    }
)  # fmt: skip
"""Not tagged as elementwise, and defined where all sizes are 1, or as in `_SIZES`."""

_SIZES = {
    "glu": 2, "linalg_cross": 3, "_pdist_forward": 2, "grid_sampler_2d": 2, "grid_sampler_3d": 3,
    "fill": 2, "full": 2, "full_like": 2, "new_full": 2,
}  # fmt: skip
"""Filling one element has no check that a number fits."""
_OF_WINDOWS = frozenset({"groups", "kernel_size", "stride", "dilation", "output_size"})
_PADDING = frozenset({"padding", "output_padding"})


def refuse_dtypes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> torch.dtype | None:
    """Raise what eager raises, if an ATen operation refuses tensors of these dtypes, or these numbers.

    Args:
        func: an overload. Only elementwise ones, and some others, are asked.
        args, kwargs: over fake tensors.

    Returns:
        The dtype of the (first) result; None if it was not asked.

    Raises:
        Exception: eager's.
    """
    size, sizes = _shrunk(func)
    if size == 0 or (func.overloadpacket in _ANY_EMPTY_INDEX and len(args) > 2 and _is_empty(args[2])):
        return None
    kwargs = kwargs or {}
    if func in _LOSSES and torch.is_grad_enabled():
        x, y = args[:2]
        if x.dtype is not y.dtype and (x.requires_grad or y.requires_grad):
            _ask_backward(func, (x.dtype, x.requires_grad), (y.dtype, y.requires_grad))
    key = func, torch.get_default_dtype(), *map(_kind, args), *((name, _kind(value)) for name, value in kwargs.items())
    if key in _accepted:
        return _accepted[key]
    if _NOT_ASKED in key or torch._C._len_torch_dispatch_stack():
        return None
    # Ambient modes of the program and default devices are not to see these calls.
    with torch._C.DisableTorchFunction(), torch.no_grad():
        try:
            made_args: Any = [_probe(arg, size) for arg in args]
            made_kwargs = {name: _probe(value, size) for name, value in kwargs.items()}
        except Exception:
            return None  # a dtype that torch cannot fill
        made_args = [_filled(arg, sizes[i]) if i in sizes else arg for i, arg in enumerate(made_args)]
        drawn = torch.default_generator.get_state() if torch.Tag.nondeterministic_seeded in func.tags else None
        made: Any = None
        try:
            with caught_warnings("ignore"):  # they would be about these tensors: of too few elements for `std`
                made = func(*made_args, **made_kwargs)
        except NotImplementedError:  # there is no kernel for these dtypes, in whatever words
            raise
        except Exception as error:
            if _ABOUT_ARGUMENTS.search(str(error)):
                raise  # others are about shapes and values, which are not those of the call
        finally:
            if drawn is not None:
                torch.default_generator.set_state(drawn)
    if len(_accepted) >= _LIMIT:
        _accepted.clear()
    first = made[0] if isinstance(made, tuple | list) and made else made
    _accepted[key] = first.dtype if isinstance(first, torch.Tensor) else None
    return _accepted[key]


def refuse_other_dtype(func: Any, kernel: torch.dtype | None, result: Any) -> None:
    """Raise if the metadata function gives a tensor of another dtype than the kernel: such a call is not for a graph.

    Args:
        func: an ATen overload.
        kernel: what `refuse_dtypes` gave.
        result: of the metadata function.

    Raises:
        RuntimeError: it does. Eager runs the call.
    """
    first = result[0] if isinstance(result, tuple | list) and result else result
    if kernel is not None and isinstance(first, torch.Tensor) and first.dtype is not kernel:
        raise RuntimeError(f"{func} gives {kernel}, and its metadata says {first.dtype}")


_LOSSES = frozenset(
    {torch.ops.aten.mse_loss.default, torch.ops.aten.huber_loss.default, torch.ops.aten.smooth_l1_loss.default}
)
"""Their forward promotes dtypes; whether their backward does depends on the version of torch."""


def _ask_backward(func: Any, *kinds: tuple[torch.dtype, bool]) -> None:
    """Raise what eager's backward of a loss raises for tensors of these dtypes with and without gradients: eager is to run it all."""
    with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        func(*(torch.ones(1, dtype=dtype, device="cpu", requires_grad=grad) for dtype, grad in kinds)).backward()


def refuse_call(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise what eager raises, if torch has another kernel for the call than the operations that it makes of fake tensors.

    Or if no fake tensor is in it, for eager to see that there is none.

    Args:
        target: what the program calls.
        args, kwargs: over fake tensors.

    Raises:
        NotImplementedError: the kernel has no code for the dtype; it is the kernel's own error, that the program sees in eager.
        RuntimeError: the norms of no tensors.
    """
    if target is _foreach_norm and args and type(args[0]) in (list, tuple) and not args[0]:
        _foreach_norm([])
    if target in _MAX_POOL1D and args and isinstance(args[0], torch.Tensor) and not kwargs.get("return_indices"):
        x = args[0]
        if x.device.type == "cpu" and not (x.requires_grad and torch.is_grad_enabled()):
            _pool_one(x.dtype)


_foreach_norm: Any = torch._foreach_norm
_MAX_POOL1D = frozenset({F.max_pool1d, torch.max_pool1d})


@functools.cache
def _pool_one(dtype: torch.dtype) -> None:
    with torch._C.DisableTorchFunction():
        torch.max_pool1d(torch.zeros(1, 1, dtype=dtype, device="cpu"), 1)


def at_capture(value: Any) -> Any:
    """The same with the values that sizes and numbers have at capture, where there are some.

    Args:
        value: fake tensors, numbers and plain values in containers.
    """
    if isinstance(value, torch.Tensor):
        sizes, grad = [at_capture(n) for n in value.shape], value.requires_grad
        return torch.empty(sizes, dtype=value.dtype, device=value.device, requires_grad=grad)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        node: Any = value.node
        return _SOME[type(value)] if node.hint is None else node.hint
    if type(value) is dict:
        return {name: at_capture(item) for name, item in value.items()}
    return type(value)(map(at_capture, value)) if type(value) in (tuple, list) else value


_SOME: dict[type, Any] = {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}

_ANY_EMPTY_INDEX = frozenset(
    {torch.ops.aten.gather, torch.ops.aten.scatter, torch.ops.aten.scatter_, torch.ops.aten.scatter_add, torch.ops.aten.scatter_add_}
)  # fmt: skip
"""Their index (the third argument) may be `torch.tensor([])`, which holds floats."""


def _is_empty(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and any(type(n) is int and n == 0 for n in t.shape)


@functools.cache
def _shrunk(func: Any) -> tuple[int, dict[int, int]]:
    """The size of each dimension in a probe, 0 for none, and the positions of arguments that are sizes, with their value there."""
    if func.namespace != "aten":
        return 0, {}
    name = func._schema.name.removeprefix("aten::")
    name = name.removesuffix("_") or name
    if name in _OTHERS:
        size = _SIZES.get(name, 1)
        return size, {i: size * (a.name not in _PADDING) for i, a in enumerate(func._schema.arguments) if _is_size(a)}
    packet: Any = getattr(torch.ops.aten, name, func.overloadpacket)  # the tag may be on one overload only
    elementwise = any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())
    return int(elementwise), {}


def _is_size(argument: Any) -> bool:
    kind = argument.real_type
    while kind.kind() in ("OptionalType", "ListType"):
        kind = kind.getElementType()
    named = argument.name == "group" or argument.name in _OF_WINDOWS or argument.name in _PADDING
    return bool(kind.kind() == "SymIntType" or (named and kind.kind() == "IntType"))


def _filled(value: Any, n: int) -> Any:
    if isinstance(value, list | tuple):
        return [n] * len(value)
    return None if value is None else n


def _kind(value: Any) -> Any:
    """What an answer depends on."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            return _NOT_ASKED
        return value.dtype, value.device.type == "cpu", value.dim()
    if isinstance(value, list | tuple):
        return tuple(map(_kind, value))
    return (type(value), value) if isinstance(value, _KNOWN) else type(value)


_KNOWN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_NOT_ASKED: Any = object()


def _probe(value: Any, size: int) -> Any:
    """A small tensor, or a number that is known."""
    if isinstance(value, torch.Tensor):
        device = "cpu" if value.device.type == "cpu" else "meta"
        fill = torch.ones if value.is_floating_point() or value.is_complex() else torch.zeros  # an index is 0
        return fill([size] * value.dim(), dtype=value.dtype, device=device)
    if isinstance(value, list | tuple):
        return [_probe(item, size) for item in value]
    if isinstance(value, torch.Generator):
        return None  # the program's
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return _SOME[type(value)]
    return value
