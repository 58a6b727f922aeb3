"""Which callables belong to the tensor domain, and which of those cannot be in a graph.

Everything else (nn.Module code, context managers, optimizers, initialisers ...) is Python for the interpreter.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
import torch.nn.functional as F

from torchjit_core.reasons import Reason
from torchjit_fx import breaks
from torchjit_fx.inference_state import set_inference_mode
from torchjit_fx.intrinsics import INTRINSICS
from torchjit_fx.leaves import Function
from torchjit_fx.modes import MODE_READERS, MODE_SETTERS
from torchjit_fx.numpy.facts import NUMPY_FUNCTIONS
from torchjit_fx.strictness import set_breaks_are_errors

__all__ = [
    "CONSTANT_FUNCTIONS", "DEVICE_QUESTIONS", "LEGACY_CONSTRUCTORS", "REFUSED", "graph_target", "is_shape_question",
    "makes_placement", "owned_functions", "owns",
]  # fmt: skip

_torch: Any = torch
_C: Any = torch._C  # the stubs leave out much of it
_functional: Any = F

LEGACY_CONSTRUCTORS: dict[Any, torch.dtype | None] = {
    torch.Tensor: None,
    torch.FloatTensor: torch.float32,
    torch.DoubleTensor: torch.float64,
    torch.HalfTensor: torch.float16,
    torch.BFloat16Tensor: torch.bfloat16,
    torch.ByteTensor: torch.uint8,
    torch.CharTensor: torch.int8,
    torch.ShortTensor: torch.int16,
    torch.IntTensor: torch.int32,
    torch.LongTensor: torch.int64,
    torch.BoolTensor: torch.bool,
}
"""Classes that make tensors on the CPU, and of which dtype; None: of the default one."""

# Namespaces whose C functions (and, where the second item says so, Python functions) are graph operations.
_NAMESPACES: tuple[tuple[Any, bool], ...] = (
    (torch, False), (torch._C._VariableFunctions, False), (torch._C._nn, False), (_C._fft, False),
    (_C._linalg, False), (_C._special, False), (torch.special, False), (torch.linalg, False), (torch.fft, False),
    (torch.functional, True), (F, True),
)  # fmt: skip

# Python functions of those namespaces that the interpreter reads itself: they call back, warn about state, or are no ops.
_INTERPRETED = frozenset(
    {
        "assert_int_or_pair",
        "boolean_dispatch",
        "handle_torch_function",
        "has_torch_function",
        "has_torch_function_unary",
        "has_torch_function_variadic",
        "triplet_margin_with_distance_loss",
        "broadcast_shapes",
    }
)

DEVICE_QUESTIONS: frozenset[Any] = frozenset(
    {
        _torch.cuda.get_device_capability,
        _torch.cuda.get_device_name,
        _torch.cuda.get_device_properties,
        _torch.cuda.is_bf16_supported,
        _torch.cuda.is_tf32_supported,
    }
)
"""What they say of a device holds for the process; which device it is that they speak of, if they are given none, may change."""


_FLAGS: tuple[Any, ...] = tuple(
    getattr(_C, name)
    for name in (
        "_get_blas_preferred_backend",
        "_get_cublas_allow_bf16_reduced_precision_reduction",
        "_get_cublas_allow_fp16_accumulation",
        "_get_cublas_allow_fp16_reduced_precision_reduction",
        "_get_cublas_allow_tf32",
        "_get_cudnn_allow_tf32",
        "_get_cudnn_benchmark",
        "_get_cudnn_deterministic",
        "_get_cudnn_enabled",
        "_get_deterministic_fill_uninitialized_memory",
        "_get_fp32_precision_getter",
        "_get_linalg_preferred_backend",
        "_get_math_sdp_allow_fp16_bf16_reduction",
        "_get_mkldnn_deterministic",
        "_get_mkldnn_enabled",
        "_get_nnpack_enabled",
        "_get_onednn_allow_tf32",
    )
    if hasattr(_C, name)  # not every torch has all
)
"""What reads the flags of `torch.backends`."""

_CPU_FACTS = tuple(found for name, found in vars(torch.cpu).items() if name.startswith("_is_") and callable(found))
"""What the processor can do."""

_CONSTANT_FUNCTIONS: tuple[Any, ...] = (
    torch.is_tensor,
    torch.is_storage,
    torch.finfo,
    torch.iinfo,
    torch.device,
    torch.Size,
    torch.get_default_device,
    torch.are_deterministic_algorithms_enabled,
    torch.is_deterministic_algorithms_warn_only_enabled,
    torch.get_float32_matmul_precision,
    torch.get_num_threads,
    torch.promote_types,
    torch.result_type,
    torch.can_cast,
    torch.is_anomaly_enabled,
    torch.is_warn_always_enabled,
    torch.overrides.is_tensor_like,
    _functional.has_torch_function,
    _functional.has_torch_function_unary,
    _functional.has_torch_function_variadic,
    torch._C._has_torch_function,
    torch._C._has_torch_function_unary,
    torch._C._has_torch_function_variadic,
    _torch.jit.is_scripting,
    _torch.jit.is_tracing,
    torch._C._get_tracing_state,
    torch._C._is_tracing,
    torch._jit_internal.is_scripting,
    torch._C._is_torch_function_mode_enabled,
    torch._C._is_torch_function_enabled,
    torch._C._len_torch_function_stack,
    torch._C._functorch.maybe_current_level,
    torch._C._functorch.is_functorch_wrapped_tensor,
    torch.cuda.is_available,
    torch.cuda.is_bf16_supported,
    torch.cuda.is_tf32_supported,
    torch.cuda.device_count,
    torch.cuda.get_arch_list,
    torch.cuda.get_device_capability,
    torch.cuda.get_device_name,
    torch.cuda.get_device_properties,
    torch.cuda.current_device,
    torch.cuda.is_initialized,
    _C._get_cpu_capability,
    *_CPU_FACTS,
    torch.backends.cudnn.version,
    *_FLAGS,
    _C._accelerator_getAccelerator,
    torch.amp.is_autocast_available,
    torch._C._is_autocast_available,
    torch._C._get_privateuse1_backend_name,
)
"""Evaluated at capture; what they read is guarded by the wiring or does not change in a process."""

STATE_FUNCTIONS = frozenset(
    {
        torch.get_float32_matmul_precision,
        torch.get_num_threads,
        torch.is_anomaly_enabled,
        torch.is_warn_always_enabled,
        torch.cuda.current_device,
        torch.cuda.is_initialized,
        *_FLAGS,
    }
)
"""Those of them whose result may change: guarded where they are called."""


def _refused() -> dict[Any, Reason]:
    table: dict[Any, Reason] = {}
    for reason, names in _REFUSED_METHODS.items():
        for name in names:
            method = getattr(torch.Tensor, name, None)
            if method is not None:
                table[method] = reason
    for reason, functions in _REFUSED_FUNCTIONS.items():
        table.update(dict.fromkeys(functions, reason))
    return table


_REFUSED_METHODS: dict[Reason, tuple[str, ...]] = {
    breaks.DATA_DEPENDENT: (
        "item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__array__",
        "is_nonzero", "__repr__", "__format__", "__contains__", "__nonzero__", "__long__", "equal", "allclose",
    ),
    breaks.NOT_CAPTURABLE: (
        "storage", "untyped_storage", "_typed_storage", "data_ptr", "share_memory_", "is_shared", "is_pinned",
        "__dlpack__", "__dlpack_device__", "__deepcopy__", "__reduce_ex__", "_reduce_ex_internal", "__setstate__",
        "apply_", "map_", "map2_", "as_subclass", "_make_subclass", "_make_wrapper_subclass", "module_load", "is_set_to",
        "record_stream", "__delitem__", "rename_", "rename", "align_to", "refine_names", "type",
    ),
    breaks.AUTOGRAD_CALL: (
        "backward", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "reinforce",
    ),
    breaks.METADATA_MUTATION: (
        "set_", "resize_", "resize_as_", "resize", "resize_as", "requires_grad_", "detach_", "as_strided_", "_set_data",
    ),
    breaks.UNSUPPORTED_TENSOR: (
        "to_sparse", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc", "to_sparse_coo", "to_mkldnn",
    ),
}  # fmt: skip

_REFUSED_FUNCTIONS: dict[Reason, tuple[Any, ...]] = {
    breaks.NOT_CAPTURABLE: (
        torch.seed, torch.initial_seed, torch.random.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all, torch.get_rng_state,
        torch.set_rng_state, torch.cuda.get_rng_state, torch.cuda.set_rng_state, torch.set_default_dtype, torch.set_default_device,
        torch.save, torch.load, torch.set_default_tensor_type, torch.use_deterministic_algorithms,
        torch.set_float32_matmul_precision, torch.set_num_threads, torch.set_printoptions, torch.set_flush_denormal,
        torch.from_numpy, _torch.from_dlpack, _torch.to_dlpack, torch.frombuffer, torch.from_file, torch.cuda.synchronize,
        torch.set_deterministic_debug_mode, torch.set_warn_always, torch.set_anomaly_enabled, torch.compile,
        torch.nn.Buffer, torch.Generator, _torch.autograd.Variable,
        _torch._fused_adam_, _torch._fused_adamw_, _torch._fused_sgd_, _torch._fused_adagrad_,  # see polyfills/optimizer.py
        F.multilabel_margin_loss,  # of one row it is a number, reduced or not; fakes give it a dimension
    ),
    breaks.PARAMETER: (torch.nn.Parameter,),
    breaks.AUTOGRAD_CALL: (
        torch.autograd.backward, torch.autograd.functional.jacobian, torch.autograd.functional.hessian,
    ),
    breaks.DATA_DEPENDENT: (torch.is_nonzero, torch.equal, torch.allclose),
    breaks.UNSUPPORTED_TENSOR: (
        torch.sparse_coo_tensor, torch.sparse_csr_tensor, torch.sparse_compressed_tensor, torch.quantize_per_tensor,
        torch.quantize_per_channel,
    ),
}  # fmt: skip

REFUSED: dict[Any, Reason] = _refused()
"""Callables that the domain owns only to refuse them with a good reason."""


@functools.cache
def owned_functions() -> frozenset[Any]:
    """Every function that `owns` knows by identity."""
    found: set[Any] = set(_CONSTANT_FUNCTIONS)
    found.update(REFUSED)
    found.update(INTRINSICS)
    found.update(MODE_READERS)
    found.update(MODE_SETTERS)
    found.update(LEGACY_CONSTRUCTORS)
    found.update((torch._check_is_size, torch.autograd.grad))
    found.update((set_breaks_are_errors, set_inference_mode))
    found.update((torch.autocast_increment_nesting, torch.autocast_decrement_nesting, torch.clear_autocast_cache))
    for namespace, python_too in _NAMESPACES:
        for name in dir(namespace):
            value = getattr(namespace, name, None)
            if name in _INTERPRETED or name.startswith("__"):
                continue
            if isinstance(value, types.BuiltinFunctionType) or (
                python_too and isinstance(value, types.FunctionType) and _is_public(namespace, name, value)
            ):
                found.add(value)
    return frozenset(found)


def _is_public(namespace: Any, name: str, value: types.FunctionType) -> bool:
    if name.startswith("_"):
        return False
    return value.__module__ in (namespace.__name__, "torch._jit_internal", "torch._C._nn")


@functools.cache
def _tensor_methods() -> frozenset[Any]:
    kinds = (types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType, types.BuiltinFunctionType)
    return frozenset(
        value
        for cls in torch.Tensor.__mro__[:-1]
        for name, value in vars(cls).items()
        if isinstance(value, kinds) and name not in ("__init__", "__new__", "__torch_function__", "__init_subclass__")
    )


_SIZE_METHODS = frozenset({torch.Size.numel})


def owns(fn: Function) -> bool:
    """Do calls of `fn` belong to the tensor domain, whatever the arguments?"""
    if isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    if is_shape_question(fn) or id(fn) in NUMPY_FUNCTIONS:
        return True
    try:
        known = fn in owned_functions() or fn in _tensor_methods() or fn in _SIZE_METHODS
    except TypeError:
        return False
    return known or makes_placement(fn)


_QUESTIONS = frozenset(
    {
        "expect_true",
        "_advise_is_size",
        "guard_or_false",
        "guard_or_true",
        "guard_size_oblivious",
        "statically_known_true",
    }
)


def is_shape_question(fn: Function) -> bool:
    """Is it one of the functions by which torch programs ask and state facts about sizes?"""
    return getattr(fn, "__module__", None) == "torch.fx.experimental.symbolic_shapes" and fn.__name__ in _QUESTIONS


def makes_placement(fn: Function) -> bool:
    """Is it a class that says where the parts of a DTensor lie? Its objects cannot be changed."""
    return (
        getattr(fn, "__module__", None) == "torch.distributed.tensor.placement_types"
        and fn.__name__ in ("Shard", "Replicate", "Partial")
        and isinstance(fn, type)
    )


@functools.cache
def graph_target(fn: Function) -> tuple[str, Any]:
    """How a call of `fn` is written into a graph: (`call_function`, fn) or (`call_method`, its name)."""
    if fn in _tensor_methods():
        return "call_method", fn.__name__
    return "call_function", fn


CONSTANT_FUNCTIONS = frozenset(_CONSTANT_FUNCTIONS)
