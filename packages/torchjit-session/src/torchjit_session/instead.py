"""Names of PyTorch's that torchjit does not have, and what to write instead: for the errors that they give, and for docs/parity.md.

An answer begins with `equivalent: `, `needs none: ` or `not yet`.
"""

from __future__ import annotations

__all__ = ["CALLS", "COMPILER", "COMPILER_SETTINGS", "DYNAMO", "DYNAMO_SETTINGS", "OPTIONS", "SETTINGS"]

_NO_GUARD_IS_LEFT_OUT = "needs none: one C program checks all guards in a few microseconds; none is left out"
_NO_EXPORT = "needs none: `torch.export` on the uncompiled model"
_ALWAYS = "needs none: always so"

COMPILER = {
    "config": "equivalent: `torchjit.config`",
    "load_compiled_function": "equivalent: `torchjit.load_compiled`, for what `torchjit.aot_compile` has saved",
    "precompile": "equivalent: `torchjit.aot_compile`",
    "PrecompileError": "equivalent: `torchjit.exc.NotCompiledAhead`",
    "set_enable_guard_collectives": "not yet: each rank checks its own guards",
}

DYNAMO = {
    "explain": "equivalent: `torchjit.explain(f)(*args)`",
    "disable": "equivalent: `torchjit.disable`, without `wrapping=`",
    "substitute_in_graph": "equivalent: `torchjit.substitute_in_graph`, without `is_embedded_type=`",
    "optimize": "equivalent: `torchjit.compile`",
    "optimize_assert": "equivalent: `torchjit.compile(fullgraph=True)`",
    "run": 'equivalent: `torchjit.set_stance("eager_on_recompile")`',
    "skip": "equivalent: `torchjit.disable(recursive=False)`",
    "step_unsupported": "equivalent: `torchjit.graph_break`",
    "patch_dynamo_config": "equivalent: `torchjit.config.patch`",
    "OptimizedModule": "equivalent: `torchjit.is_compiled(m)`; `isinstance` with PyTorch's class answers, too",
    "config": "equivalent: `torchjit.config`",
    "export": _NO_EXPORT,
    "bytecode_debugger": "equivalent: `TORCHJIT_LOGS=bytecode` shows the code",
    "leaf_function": "equivalent: `torchjit.allow_in_graph`, or a custom operator",
    "override_cudagraphs": "not yet: the option `triton.cudagraphs` decides for a whole call of `compile`",
    "override_optimization_hint": "needs none: no kernel is chosen by the hint of a size",
    "disable_nested_graph_breaks": "needs none: a break in a called function leaves what comes before and after it compiled",
    "dont_skip_tracing": "needs none: no code of the program is skipped",
    "is_dynamo_disable_recursive": "not yet",
    "allow_c_slot": "not yet",
    "set_recursion_limit": "needs none: what comes near Python's own limit runs as it is",
    "reset_recompile_user_contexts": "not yet",
    "replay": "not yet: `TORCHJIT_TRACE` records what happened, not to be run again",
}

COMPILER_SETTINGS = {
    "force_disable_caches": "equivalent: `torchjit.config.caches = False`, `TORCHJIT_FORCE_DISABLE_CACHES=1`",
    "dynamic_shapes": "equivalent: `compile(dynamic=False)`",
    "assume_static_by_default": "equivalent: `compile(dynamic=True)` for False",
    "fail_on_recompile_limit_hit": "equivalent: `compile(fullgraph=True)`, which raises `RecompileLimitExceeded`",
    "verbose": "needs none: messages are always complete",
    "log_file_name": "equivalent: a handler of the logger `torchjit`",
    "wrap_top_frame": "needs none: hooks and forward of a module are captured either way",
    "allow_unspec_int_on_nn_module": "needs none: an int of a module that changed becomes an input",
    "skip_tensor_guards_with_matching_dict_tags": _NO_GUARD_IS_LEFT_OUT,
    "enable_cpp_symbolic_shape_guards": "needs none: conditions on sizes are part of the C program of guards",
    "cache_key_tag": "equivalent: a `TORCHJIT_CACHE_DIR` of its own",
    "compile_on_one_rank": "not yet",
    "force_cudagraph_gc": "needs none: a recording does not collect garbage",
    "dynamic_values": "equivalent: `mark_dynamic`",
    "job_id": "not yet: sizes that varied are not remembered between processes",
    "pgo_extra_read_key": "not yet: sizes that varied are not remembered between processes",
    "pgo_extra_write_key": "not yet: sizes that varied are not remembered between processes",
}

DYNAMO_SETTINGS = {
    "error_on_recompile": 'equivalent: `torchjit.set_stance("fail_on_recompile")`',
    "minimum_call_count": 'equivalent: `torchjit.set_stance("eager_then_compile")` for 2',
    "specialize_int": "equivalent: `compile(dynamic=False)`",
    "specialize_float": "equivalent: `compile(dynamic=False)`",
    "ignore_logging_functions": "equivalent: `reorderable_logging_functions`, whose calls are made at the region's end",
    "debug_dir_root": "equivalent: `TORCHJIT_DEBUG_DIR`",
    "nontraceable_tensor_subclasses": "equivalent: `torchjit.disable` on what uses them",
    "prepare_freezing": "equivalent: the option `freezing`",
    "skip_nnmodule_hook_guards": _NO_GUARD_IS_LEFT_OUT,
    "skip_fsdp_guards": _NO_GUARD_IS_LEFT_OUT,
    "guard_nn_modules": _NO_GUARD_IS_LEFT_OUT,
    "allow_rnn": "needs none: `RNN`, `LSTM` and `GRU` are captured",
    "allow_ignore_mark_dynamic": "equivalent: `maybe_mark_dynamic`",
    "inline_inbuilt_nn_modules": _ALWAYS,
    "nested_graph_breaks": _ALWAYS,
    "trace_numpy": _ALWAYS,
    "rewrite_assert_with_torch_assert": _ALWAYS,
    "capture_func_transforms": _ALWAYS,
    "enable_trace_contextlib": _ALWAYS,
    "enable_faithful_generator_behavior": _ALWAYS,
    "force_parameter_static_shapes": _ALWAYS,
    "enable_cpp_guard_manager": _NO_GUARD_IS_LEFT_OUT,
    "optimize_ddp": "equivalent: the option `gradient_buckets`",
    "compiled_autograd": "not yet",
    "caching_precompile": 'equivalent: `torchjit.config.store = "on"`',
    "skip_code_recursive_on_recompile_limit_hit": "not yet: what such a region calls is compiled on its own",
    "prefer_deferred_runtime_asserts_over_guards": "not yet",
    "only_allow_pt2_compliant_ops": "not yet",
    "use_numpy_random_stream": "not yet",
    "enable_compiler_collectives": "not yet",
    "repro_after": "not yet: there is no minifier",
    "repro_level": "not yet: there is no minifier",
    "repro_tolerance": "not yet: there is no minifier",
    "replay_record_enabled": "not yet: there is no minifier",
}

OPTIONS = {
    "max_autotune_gemm": "equivalent: `max_autotune`",
    "max_autotune_pointwise": "equivalent: `coordinate_descent_tuning`",
    "debug": "equivalent: `trace.enabled`",
    "post_grad_custom_pre_pass": "equivalent: `joint_custom_post_pass`",
    "fx_graph_cache": "equivalent: `torchjit.config.caches`, for kernels",
    "cpp.cxx": "equivalent: the variable `CXX`",
    "cpp.threads": "equivalent: `torch.set_num_threads`",
    "triton.cudagraph_skip_dynamic_graphs": "equivalent: `triton.cudagraph_capture_sizes`, or a mode without CUDA graphs",
    "verbose_progress": "needs none: after a second of compiling a terminal shows one line",
    "disable_progress": "needs none: after a second of compiling a terminal shows one line",
    "triton.cudagraph_trees": "needs none: one pool takes their place",
    "triton.cudagraph_support_input_mutation": _ALWAYS,
    "graph_partition": _ALWAYS,
    "implicit_fallbacks": _ALWAYS,
    "keep_output_stride": _ALWAYS,
    "inplace_buffers": _ALWAYS,
    "allow_buffer_reuse": _ALWAYS,
    "size_asserts": "needs none: a guard holds each size, and aten's results are compared with the strides that were promised",
    "cpp_wrapper": "not yet: the host program is Python",
    "worker_start_method": "needs none: there are no workers: several C files are compiled at once, each by a process of the compiler",
    "compile_threads": "not yet: as many C files at once as there are processors, at most 8",
    "cpp.simdlen": "not yet: the machine's widest vectors",
    "max_autotune_gemm_backends": "not yet",
    "triton.cudagraph_or_error": "not yet: `TORCHJIT_LOGS=cudagraphs` gives the reason",
    "triton.unique_kernel_names": _ALWAYS,
    "benchmark_kernel": "not yet",
    "combo_kernels": "not yet",
    "conv_1x1_as_mm": "not yet",
    "coordinate_descent_check_all_directions": "not yet",
    "joint_custom_pre_pass": "not yet",
    "custom_partitioner_fn": "equivalent: a backend that calls `torchjit_aot.compile`",
    "deterministic": "not yet",
    "batch_invariant": "not yet",
    "numerics": "not yet",
    "nan_asserts": "not yet",
    "aot_inductor.output_path": _NO_EXPORT,
}

CALLS = {**DYNAMO, **COMPILER}
"""By the name in `torch._dynamo` or `torch.compiler`."""
SETTINGS = {**DYNAMO_SETTINGS, **COMPILER_SETTINGS}
"""By the name in `torch._dynamo.config` or `torch.compiler.config`."""
