"""What torchjit has for each of PyTorch's names: written by hand, read by `write_parity.py` and `integration_tests/test_parity.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from torchjit_session.instead import COMPILER, COMPILER_SETTINGS, DYNAMO, DYNAMO_SETTINGS, OPTIONS

__all__ = ["SECTIONS", "Row", "Section"]


@final
@attrs.frozen
class Row:
    """torchjit's answer to one name of upstream's.

    Attributes:
        name: upstream's spelling, without the prefix of the section.
        answer: `has it`, or a text that begins with `equivalent: `, `needs none: ` or `not yet`.
        link: a page of the documentation.
        taken: torchjit takes the name all the same, with the same parameters, so that programs run unchanged.
    """

    name: str
    answer: str = "has it"
    link: str = ""
    taken: bool = False


@final
@attrs.frozen
class Section:
    """Names of one kind.

    Attributes:
        title: of the section.
        kind: where `has it` is looked up: `argument`, `mode`, `stance`, `backend`, `call`, `setting`, `option`, `log`, `variable`.
        prefix: what comes before the names, in upstream's spelling.
        text: below the title.
        rows: the answers.
    """

    title: str
    kind: str
    prefix: str
    text: str
    rows: tuple[Row, ...]


def _same(*names: str, link: str = "") -> tuple[Row, ...]:
    """Names that torchjit has."""
    return tuple(Row(name, link=link) for name in names)


def _rows(*rows: Row) -> tuple[Row, ...]:
    return rows


def _all(answer: str, *names: str, link: str = "") -> tuple[Row, ...]:
    """Names with the same answer."""
    return tuple(Row(name, answer, link) for name in names)


RECOMPILES, BREAKS, GRAPHS = "guide/recompiles.md", "guide/graph-breaks.md", "guide/cuda-graphs.md"
BACKENDS, LIBRARIES, SETTINGS = "guide/backends-and-passes.md", "guide/library-authors.md", "settings.md"
MIGRATING, REPORT, NUMBERS, SERVING = (
    "guide/migrating.md",
    "guide/report.md",
    "guide/wrong-numbers.md",
    "guide/serving.md",
)

_LINKS = {
    "custom_partitioner_fn": BACKENDS,
    "post_grad_custom_pre_pass": BACKENDS,
    "graph_partition": GRAPHS,
    "override_cudagraphs": GRAPHS,
    "triton.cudagraph_or_error": GRAPHS,
    "triton.cudagraph_support_input_mutation": GRAPHS,
    "triton.cudagraph_trees": GRAPHS,
    "dont_skip_tracing": BREAKS,
    "nontraceable_tensor_subclasses": BREAKS,
    "optimize_assert": BREAKS,
    "skip": BREAKS,
    "step_unsupported": BREAKS,
    "disable": LIBRARIES,
    "leaf_function": LIBRARIES,
    "substitute_in_graph": LIBRARIES,
    "OptimizedModule": MIGRATING,
    "PrecompileError": MIGRATING,
    "caching_precompile": MIGRATING,
    "compiled_autograd": MIGRATING,
    "load_compiled_function": MIGRATING,
    "optimize": MIGRATING,
    "precompile": MIGRATING,
    "allow_ignore_mark_dynamic": RECOMPILES,
    "assume_static_by_default": RECOMPILES,
    "dynamic_shapes": RECOMPILES,
    "dynamic_values": RECOMPILES,
    "error_on_recompile": RECOMPILES,
    "fail_on_recompile_limit_hit": RECOMPILES,
    "minimum_call_count": RECOMPILES,
    "run": RECOMPILES,
    "specialize_float": RECOMPILES,
    "specialize_int": RECOMPILES,
    "bytecode_debugger": REPORT,
    "explain": REPORT,
    "replay": REPORT,
    "triton.cudagraph_skip_dynamic_graphs": SERVING,
    "batch_invariant": NUMBERS,
    "deterministic": NUMBERS,
    "nan_asserts": NUMBERS,
    "numerics": NUMBERS,
    "implicit_fallbacks": "lowerings.md",
    "cache_key_tag": SETTINGS,
    "config": SETTINGS,
    "cpp.cxx": SETTINGS,
    "debug": SETTINGS,
    "debug_dir_root": SETTINGS,
    "force_disable_caches": SETTINGS,
    "fx_graph_cache": SETTINGS,
    "ignore_logging_functions": SETTINGS,
    "max_autotune_gemm": SETTINGS,
    "max_autotune_pointwise": SETTINGS,
    "patch_dynamo_config": SETTINGS,
    "prepare_freezing": SETTINGS,
}
"""Pages for names of `torchjit_session.instead`."""


def _instead(answers: Mapping[str, str]) -> tuple[Row, ...]:
    """Names that torchjit does not have, with what its errors say."""
    return tuple(Row(name, answer, _LINKS.get(name, "")) for name, answer in answers.items())


SECTIONS = (
    Section(
        "Arguments of torch.compile", "argument", "torch.compile", "`torchjit.compile` takes `on_error` besides.",
        _same("model", "fullgraph", "backend", "mode", "options", "name", "disable", link=SETTINGS)
        + _same("dynamic", "recompile_limit", "isolate_recompiles", link=RECOMPILES)
        + _same("dynamic_shapes", link=SERVING),
    ),
    Section(
        "Modes", "mode", "torch.compile(mode=...)", "",
        _same("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", link=SETTINGS)
        + _rows(Row("lite", "not yet: `backend=\"aot_eager\"` fuses nothing at all")),
    ),
    Section(
        "Backends", "backend", "torch.compile(backend=...)", "`torchjit backends` says which of them can be used now.",
        _same("inductor", "cudagraphs", "eager", "aot_eager", "tvm", "onnxrt", "openvino", "tensorrt", link=BACKENDS)
        + _rows(
            Row("ipex", "needs none: retired by its makers; `inductor`"),
            Row("openxla", "not yet", BACKENDS),
            Row("invoke_subgraph", "not yet"),
            Row("torch_tensorrt", "equivalent: `tensorrt`", BACKENDS),
            Row("aot_eager_decomp_partition", "equivalent: `aot_eager`", BACKENDS),
            Row("eager_noexcept", "equivalent: `eager` with `on_error=\"raise\"`", BACKENDS),
            Row("pre_dispatch_eager", "equivalent: `eager`", BACKENDS),
        ),
    ),
    Section(
        "torch.compiler", "call", "torch.compiler", "Marks that a library makes by upstream's names count, too.",
        _same("compile", link="guide/quick-start.md")
        + _same(
            "disable", "allow_in_graph", "assume_constant_result", "is_compiling", "is_dynamo_compiling", "is_exporting", "nonstrict_trace",
            "substitute_in_graph", "wrap_numpy", link=LIBRARIES,
        )
        + _same("reset")
        + _same("list_backends", "set_default_backend", "get_default_backend", link=BACKENDS)
        + _same("set_stance", link=RECOMPILES)
        + _same("cudagraph_mark_step_begin", "cudagraph_mark_warmup_incomplete", link=GRAPHS)
        + tuple(
            Row(name, "needs none: it is taken, and no guard is left out", MIGRATING, taken=True)
            for name in (
                "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe",
                "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
            )
        )
        + _rows(Row("nested_compile_region", "needs none: equal blocks are found in the graph, marked or not, and from five on a few are compiled for all", MIGRATING, taken=True))
        + _same("save_cache_artifacts", "load_cache_artifacts", link="guide/watching.md")
        + _instead(COMPILER),
    ),
    Section(
        "Stances", "stance", "torch.compiler.set_stance", "Also `force_backend=`; `skip_guard_eval_unsafe=` is taken, without effect.",
        _same(
            "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile", link=RECOMPILES
        ),
    ),
    Section(
        "torch._dynamo", "call", "torch._dynamo", "Its public names, and those of `torch._dynamo.decorators` that programs use.",
        _same(
            "allow_in_graph", "assume_constant_result", "disallow_in_graph", "forbid_in_graph", "nonstrict_trace", "is_compiling", link=LIBRARIES
        )
        + _same("graph_break", "error_on_graph_break", link=BREAKS)
        + _rows(Row("skip_frame", "equivalent: `torchjit.disable` on the function; `torchjit.skip_frame` is a graph break", BREAKS, taken=True))
        + _same("mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_unbacked", "set_stance", link=RECOMPILES)
        + _same("mark_static_address", link=GRAPHS)
        + _same("list_backends", "lookup_backend", "register_backend", link=BACKENDS)
        + _same("on_compile_start", "on_compile_end", link="guide/watching.md")
        + _same("reset")
        + _instead(DYNAMO),
    ),
    Section(
        "torch.compiler.config", "setting", "torch.compiler.config", "What a program sets there counts, where torchjit has it.",
        _same(
            "recompile_limit", "accumulated_recompile_limit", "automatic_dynamic_shapes", "capture_scalar_outputs",
            "capture_dynamic_output_shape_ops", "reorderable_logging_functions", link=SETTINGS,
        )
        + _same("dynamic_sources", "static_sources", "unbacked_sources", link=RECOMPILES)
        + _instead(COMPILER_SETTINGS),
    ),
    Section(
        "torch._dynamo.config", "setting", "torch._dynamo.config",
        "Those that programs set, without those above. What a program sets there counts, where torchjit has it.",
        _same("cache_size_limit", "accumulated_cache_size_limit", "disable", "suppress_errors", link=SETTINGS) + _instead(DYNAMO_SETTINGS),
    ),
    Section(
        "torch._inductor.config", "option", "torch._inductor.config",
        "Those that programs set. What torchjit has is an option of one call of `compile`; nothing is read from `torch._inductor.config`.",
        _same(
            "epilogue_fusion", "max_autotune", "coordinate_descent_tuning", "shape_padding", "fallback_random", "emulate_precision_casts",
            "freezing", "layout_optimization", "autotune_in_subproc", "triton.cudagraphs", "triton.cudagraph_capture_sizes", "trace.enabled",
            "trace.graph_diagram", link=SETTINGS,
        )
        + _same("pre_grad_custom_pass", "joint_custom_post_pass", "post_grad_custom_post_pass", link=BACKENDS)
        + _instead(OPTIONS),
    ),
    Section(
        "TORCH_LOGS", "log", "TORCH_LOGS", "Names for `TORCHJIT_LOGS` and `torchjit.set_logs`.",
        _same(
            "recompiles", "graph_breaks", "guards", "graph_code", "aot_graphs", "output_code", "kernel_code", "fusion", "autotuning",
            "perf_hints", "cudagraphs", "dynamic", "bytecode", "graph_sizes", "dynamo", "aot", "inductor", link=SETTINGS,
        )
        + _rows(
            Row("recompiles_verbose", "equivalent: `recompiles`, which says everything", RECOMPILES),
            Row("verbose_guards", "equivalent: `guards`"),
            Row("graph", "equivalent: `graph_code`"),
            Row("graph_code_verbose", "equivalent: `graph_code`"),
            Row("aot_joint_graph", "equivalent: `aot_graphs`"),
            Row("post_grad_graphs", "equivalent: `aot_graphs`"),
            Row("pre_grad_graphs", "equivalent: `graph_code`"),
            Row("cudagraph_static_inputs", "equivalent: `cudagraphs`", GRAPHS),
            Row("schedule", "equivalent: `output_code`, `fusion`"),
            Row("side_effects", "equivalent: `bytecode`, which makes them"),
            Row("ir_pre_fusion", "not yet"),
            Row("ir_post_fusion", "equivalent: the option `trace.enabled`", SETTINGS),
            Row("trace_source", "equivalent: the report", REPORT),
            Row("benchmarking", "equivalent: `autotuning`"),
            Row("caching", "not yet"),
            Row("not_implemented", "not yet"),
            Row("compiled_autograd", "not yet", MIGRATING),
            Row("compiled_autograd_verbose", "not yet", MIGRATING),
            Row("ddp_graphs", "not yet: there are no buckets"),
        )
        + _all("not yet", "sym_node", "trace_bytecode", "trace_call", "loop_ordering", "loop_tiling", "inductor_metrics", "aot_graphs_effects"),
    ),
    Section(
        "Environment variables", "variable", "", "",
        _same("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "CXX", link=SETTINGS)
        + _rows(
            Row("TORCH_LOGS", "equivalent: `TORCHJIT_LOGS`, with the same names", SETTINGS),
            Row("TORCH_LOGS_OUT", "equivalent: a handler of the logger `torchjit`"),
            Row("TORCH_TRACE", "equivalent: `TORCHJIT_TRACE`, for `torchjit report`", REPORT),
            Row("TORCH_COMPILE_DEBUG", "equivalent: the option `trace.enabled`", SETTINGS),
            Row("TORCH_COMPILE_DEBUG_DIR", "equivalent: `TORCHJIT_DEBUG_DIR`", SETTINGS),
            Row("TORCHDYNAMO_VERBOSE", "needs none: messages are always complete"),
            Row("TORCHDYNAMO_SUPPRESS_ERRORS", "equivalent: `TORCHJIT_ON_ERROR=eager`", SETTINGS),
            Row("TORCHDYNAMO_REPRO_AFTER", "not yet: there is no minifier"),
            Row("TORCHINDUCTOR_CACHE_DIR", "equivalent: `TORCHJIT_CACHE_DIR`", SETTINGS),
            Row("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "equivalent: `TORCHJIT_FORCE_DISABLE_CACHES`", SETTINGS),
            Row("TORCHINDUCTOR_FX_GRAPH_CACHE", "equivalent: `TORCHJIT_FORCE_DISABLE_CACHES`, for kernels", SETTINGS),
            Row("TORCHINDUCTOR_MAX_AUTOTUNE", "equivalent: `mode=\"max-autotune-no-cudagraphs\"`", SETTINGS),
            Row("TORCHINDUCTOR_COORDINATE_DESCENT_TUNING", "equivalent: the option `coordinate_descent_tuning`", SETTINGS),
            Row("TORCHINDUCTOR_FREEZING", "equivalent: the option `freezing`", SETTINGS),
            Row("TORCHINDUCTOR_LAYOUT_OPTIMIZATION", "equivalent: the option `layout_optimization`", SETTINGS),
            Row("TORCHINDUCTOR_COMPILE_THREADS", "not yet: as many C files at once as there are processors, at most 8"),
            Row("TORCHINDUCTOR_CPP_WRAPPER", "not yet: the host program is Python"),
            *_same(
                "TORCH_COMPILE_DYNAMIC_SOURCES", "TORCH_COMPILE_STATIC_SOURCES", "TORCH_COMPILE_UNBACKED_SOURCES", link=RECOMPILES
            ),
            Row("TORCH_COMPILE_JOB_ID", "not yet: sizes that varied are not remembered between processes"),
        ),
    ),
)  # fmt: skip
