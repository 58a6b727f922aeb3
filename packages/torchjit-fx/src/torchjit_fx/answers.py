"""Which calls give Python values that a tensor's metadata decides: a fake tensor may answer those, and no others."""

from __future__ import annotations

from typing import Any

import torch

from torchjit_fx.outcomes import Constant, Template, parts

__all__ = ["answers_from_metadata", "has_answer"]

_NAMES = frozenset(
    {
        "size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "storage_offset", "get_device", "__len__",
        "is_contiguous", "is_floating_point", "is_complex", "is_signed", "is_conj", "is_neg", "is_inference", "is_same_size",
        "is_non_overlapping_and_dense", "is_coalesced", "is_distributed", "is_sparse", "is_tensor", "is_storage",
        "_is_zerotensor", "has_names", "dense_dim", "sparse_dim", "result_type", "can_cast", "promote_types", "type", "sym_size",
        "sym_numel", "sym_stride", "sym_storage_offset", "sym_is_contiguous", "dim_order", "_has_symbolic_sizes_strides",
        "_fused_sdp_choice", "_use_cudnn_ctc_loss", "cudnn_is_acceptable", "_has_compatible_shallow_copy_type",
        "can_use_flash_attention", "can_use_efficient_attention", "default_generator", "symint", "is_vulkan_available",
        "layout", "device", "dtype", "len", "getattr", "sym_max", "sym_min", "sym_int", "sym_float", "sym_not", "sym_ite",
    }
)  # fmt: skip

_NAMESPACES_OF_TORCH = frozenset({"aten", "prims", "prim", "quantized"})


def has_answer(template: Template) -> bool:
    """Is there a number, truth value or text in a result?"""
    values = [part.value for part in parts(template) if type(part) is Constant]
    return any(isinstance(value, int | float | complex | str) for value in values)


def answers_from_metadata(target: Any, args: Any) -> bool:
    """May a fake tensor answer this call?"""
    if target is getattr:
        return True
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        space, name = _qualified(target)
        return space not in _NAMESPACES_OF_TORCH or name in _NAMES
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name in _NAMES or name.startswith("__torch")


def _qualified(target: Any) -> tuple[str, str]:
    """Namespace and name, without the overload's."""
    name = target._qualified_op_name if isinstance(target, torch._ops.OpOverloadPacket) else target.name()
    space, _, rest = name.partition("::")
    return space, rest.partition(".")[0]
