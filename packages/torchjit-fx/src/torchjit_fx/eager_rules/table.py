"""The rule of each ATen operator that differs from its fake in anything but what its schema and tags say.

A row under a name holds for all its overloads and for the one in place; a row under `name_` for that one alone, a row under `name.overload` for this
overload. Rows for the same operator add up. Kernels: aten/src/ATen/native (torch 2.15), the file that is named with the row; found by `tools/sweep_strides.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from torchjit_fx.eager_rules import kernel_strides as strides
from torchjit_fx.eager_rules import shape_checks as shapes
from torchjit_fx.eager_rules.rule import Inside, NamedValues, OperatorRule, Overlap, Values

__all__ = ["RULES", "rule_of"]

_aten = torch.ops.aten
_NONE = OperatorRule()


def _alike(rule: OperatorRule, names: str) -> dict[str, OperatorRule]:
    return dict.fromkeys(names.split(), rule)


def _positive_dims(args: Values, kwargs: NamedValues) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments (x, ord, dim, keepdim) with dimensions counted from the front.

    For torch 2.11: over a dimension of size 1 that is counted from the back, it traces a result with that dimension.
    """
    dims = args[2] if len(args) > 2 else kwargs.get("dim")
    rank = args[0].dim()
    if not isinstance(dims, (list, tuple)) or not rank or all(d >= 0 for d in dims):
        return args, kwargs
    positive = [d + rank if -rank <= d < 0 else d for d in dims]
    return ((*args[:2], positive, *args[3:]), kwargs) if len(args) > 2 else (args, {**kwargs, "dim": positive})


# Normalization.cpp: batch_norm_cpu, batch_norm_backward_cpu_template
_BATCH_NORM = OperatorRule(probe=1, strides=strides.in_memory_format(0))
_STATISTICS = (3, 4)

RULES: dict[str, OperatorRule] = {
    # ---- tried with tensors of one element: not tagged as elementwise, and defined where all sizes are 1
    **_alike(
        OperatorRule(probe=1),
        "_softmax _log_softmax native_layer_norm native_group_norm _prelu_kernel binary_cross_entropy binary_cross_entropy_with_logits "
        "soft_margin_loss multi_margin_loss multilabel_margin_loss_forward nll_loss_forward nll_loss2d_forward "
        "mv addmv mm addmm bmm baddbmm addbmm dot vdot trace index index_fill embedding constant_pad_nd scalar_tensor "
        "var std var_mean std_mean mean sum prod amax amin aminmax max min argmax argmin any all median nanmedian mode kthvalue sort topk "
        "cummax cummin logsumexp logcumsumexp norm renorm triu tril uniform normal exponential geometric log_normal cauchy random "
        "native_dropout upsample_nearest1d upsample_nearest2d upsample_nearest3d "
        "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _cdist_forward "
        "avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d "
        "max_pool2d_with_indices max_pool3d_with_indices reflection_pad1d reflection_pad2d reflection_pad3d "
        "replication_pad1d replication_pad2d replication_pad3d "
        "_linalg_svd _linalg_eigh linalg_eig _linalg_det _linalg_slogdet _linalg_solve_ex linalg_inv_ex linalg_cholesky_ex "
        "linalg_lu_factor_ex linalg_lu linalg_qr linalg_ldl_factor_ex linalg_solve_triangular triangular_solve cholesky_solve "
        "cholesky_inverse linalg_householder_product histc bucketize im2col col2im convolution linalg_vector_norm",
    ),
    # Filling one element has no check that a number fits.
    **_alike(OperatorRule(probe=2), "fill full new_full glu _pdist_forward grid_sampler_2d"),
    **_alike(OperatorRule(probe=3), "linalg_cross grid_sampler_3d"),
    # ---- also about memory and shapes
    **_alike(OperatorRule(probe=1, overlap=Overlap.REFUSED, empty_index=True), "gather scatter scatter_add"),
    **_alike(OperatorRule(probe=1, overlap=Overlap.REFUSED), "index_copy masked_scatter take"),
    **_alike(OperatorRule(overlap=Overlap.REFUSED), "cat stack scatter_reduce"),
    **_alike(OperatorRule(probe=1, overlap=Overlap.REFUSED_IN_PART), "bernoulli cumsum cumprod"),
    **_alike(OperatorRule(overlap=Overlap.REFUSED_IN_PART), "copy addr"),
    "index_put": OperatorRule(probe=1, overlap=Overlap.REFUSED, shapes=shapes.index_put),
    "index_add": OperatorRule(probe=1, overlap=Overlap.REFUSED, shapes=shapes.index_add),
    "index_reduce": OperatorRule(probe=1, overlap=Overlap.REFUSED, shapes=shapes.index_reduce),
    "index_select": OperatorRule(probe=1, overlap=Overlap.REFUSED, shapes=shapes.index_select),
    "put": OperatorRule(probe=1, overlap=Overlap.REFUSED, shapes=shapes.put),
    "_index_put_impl_": OperatorRule(shapes=shapes.index_put),
    "masked_scatter_": OperatorRule(shapes=shapes.masked_scatter),
    **_alike(OperatorRule(shapes=shapes.select), "select select_copy"),
    "select_scatter": OperatorRule(shapes=shapes.select_scatter),
    "slice_scatter": OperatorRule(shapes=shapes.scattered(_aten.slice)),
    "diagonal_scatter": OperatorRule(shapes=shapes.scattered(_aten.diagonal)),
    "as_strided": OperatorRule(shapes=shapes.as_strided),
    "arange": OperatorRule(shapes=shapes.arange),
    **_alike(OperatorRule(shapes=shapes.pow_of_bools, number_apart=True), "pow.Tensor_Scalar pow.Tensor_Scalar_out"),
    "searchsorted": OperatorRule(probe=1, shapes=shapes.searchsorted),
    **_alike(
        OperatorRule(probe=1, shapes=shapes.upsample),
        "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d",
    ),
    # ---- also about what autocast changes inside
    **_alike(OperatorRule(inside=Inside.PRODUCT), "_trilinear linalg_pinv linalg_polar"),
    **_alike(OperatorRule(inside=Inside.CONCATENATION), "isin _chunk_cat"),
    "linalg_matrix_exp": OperatorRule(probe=1, inside=Inside.CONCATENATION),
    "roll": OperatorRule(inside=Inside.CONCATENATION, strides=strides.roll),
    # ---- elementwise, or not, otherwise than tagged
    **_alike(
        OperatorRule(elementwise=True),
        "floor_divide hardswish hardswish_backward hardshrink_backward hardsigmoid_backward hardtanh_backward log_sigmoid_backward "
        "mish_backward softplus_backward softshrink_backward elu_backward",
    ),
    **_alike(OperatorRule(probe=1, elementwise=True), "complex polar"),
    "leaky_relu_backward": OperatorRule(elementwise=True, second_first=True),
    "threshold_backward": OperatorRule(second_first=True),
    **_alike(OperatorRule(elementwise=False), "clone conj_physical ldexp masked_fill mvlgamma"),
    **_alike(OperatorRule(number_apart=True), "lerp.Scalar lerp.Scalar_out"),
    "where": OperatorRule(converts=frozenset({"self", "other"})),  # a number named `other` is wrapped elsewhere
    # ---- results that lie in their own way
    **_alike(OperatorRule(strides=strides.like(0)), "empty_like zeros_like ones_like randint_like"),
    **_alike(OperatorRule(probe=1, strides=strides.like(0)), "rand_like randn_like"),
    "full_like": OperatorRule(probe=2, strides=strides.like(0)),
    "native_batch_norm": OperatorRule(probe=1, strides=strides.in_memory_format(0), trains=_STATISTICS),
    **_alike(OperatorRule(trains=_STATISTICS), "cudnn_batch_norm miopen_batch_norm batch_norm"),
    **_alike(_BATCH_NORM, "_native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update"),
    **_alike(
        OperatorRule(strides=strides.in_memory_format(0)),
        "_native_batch_norm_legit_functional _batch_norm_with_update_functional _batch_norm_no_update "
        "channel_shuffle",  # ChanelShuffle.cpp
    ),
    **_alike(
        OperatorRule(strides=strides.in_memory_format(1)),
        "native_batch_norm_backward batch_norm_backward replication_pad2d_backward",  # ReplicationPadding.cpp
    ),
    **_alike(
        OperatorRule(strides=strides.contiguous),
        "native_layer_norm_backward "  # layer_norm.cpp
        "_log_softmax_backward_data "  # SoftMax.cpp
        "mse_loss_backward smooth_l1_loss_backward huber_loss_backward "  # Loss.cpp
        "rrelu_with_noise "  # Activation.cpp
        "pow.Scalar "  # Pow.cpp
        "normal.Tensor_float normal.float_Tensor normal.Tensor_Tensor "  # DistributionTemplates.h
        "poisson _standard_gamma "  # Distributions.cpp
        "masked_fill.Scalar masked_fill.Tensor",  # TensorAdvancedIndexing.cpp
    ),
    "log_sigmoid_forward": OperatorRule(probe=1, strides=strides.contiguous),  # Activation.cpp
    "rrelu_with_noise_backward": OperatorRule(strides=strides.of_plain),
    **_alike(OperatorRule(strides=strides.like(0)), "index_fill.int_Scalar index_fill.int_Tensor"),
    "ldexp.Tensor": OperatorRule(strides=strides.of_plain),
    # ---- losses: Loss.cpp
    "mse_loss": OperatorRule(probe=1, elementwise=True),
    "smooth_l1_loss": OperatorRule(probe=1, elementwise=True),
    "huber_loss": OperatorRule(probe=1, strides=strides.like(0)),
    **_alike(OperatorRule(probe_backward=True), "mse_loss.default smooth_l1_loss.default huber_loss.default"),
    "binary_cross_entropy_backward": OperatorRule(strides=strides.like(1)),
    # ---- views, and arguments that fakes take otherwise
    **_alike(OperatorRule(is_view=True), "view.default _unsafe_view.default"),
    "linalg_vector_norm.default": OperatorRule(prepare=_positive_dims),
    **_alike(OperatorRule(any_kernel=True), "convolution.default convolution_backward.default"),
}

_of_overloads: dict[OpOverload[..., Any], OperatorRule] = {}


def rule_of(func: OpOverload[..., Any]) -> OperatorRule:
    """The rule of an overload: its rows in one. Operators of others than torch have none."""
    try:
        return _of_overloads[func]
    except KeyError:
        found = _of_overloads[func] = _combined(func)
        return found


def _combined(func: OpOverload[..., Any]) -> OperatorRule:
    if func.namespace != "aten":
        return _NONE
    name = func._schema.name.removeprefix("aten::")
    rule = RULES.get(name.removesuffix("_") or name, _NONE)
    for key in ([name] if name.endswith("_") else []) + [f"{name}.{func._overloadname}"]:
        rule = rule.refined(RULES.get(key, _NONE))
    return rule
