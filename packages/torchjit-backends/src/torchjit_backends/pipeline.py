"""Captured graph in, callable out: AOT autograd, then a compiler of its graphs, with CUDA graphs where the options ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs
import torch

import torchjit_aot
import torchjit_aot.entry  # with the package alone its imports would come in the first call
import torchjit_cudagraphs
import torchjit_inductor
from torchjit_backends.attention import ATTENTION
from torchjit_backends.options import Options
from torchjit_frame import eager
from torchjit_inductor.lowering.registry import LOWERINGS
from torchjit_session.backend_calls import Backend
from torchjit_session.interrupts import compiled_later

__all__ = ["aot_eager_backend", "cudagraphs", "inductor_backend"]


def aot_eager_backend(options: Options) -> Backend:
    """The backend `aot_eager` under those of the options that concern autograd: the budget, and the passes."""
    return _backend(torchjit_aot.run_eagerly, _aot_settings(options))


def inductor_backend(options: Options, kernels: torchjit_inductor.InductorSettings) -> Backend:
    """The backend `inductor`.

    Args:
        options: of the call of `compile`.
        kernels: where kernels are kept, and the C++ compiler; the options fill in the rest.
    """
    inductor = torchjit_inductor.Inductor(_inductor_settings(options, kernels), attention=ATTENTION)
    compiler: torchjit_aot.GraphCompiler = inductor
    if options.cudagraphs:
        compiler = torchjit_cudagraphs.RecordingCompiler(inductor, options.capture_sizes)
    settings = attrs.evolve(
        _aot_settings(options),
        decompositions=torchjit_aot.default_decompositions(),
        keep_ops=frozenset(LOWERINGS),
        fuse=True,
        functional_random=not options.fallback_random,
        repeated_blocks=options.repeated_blocks,
        compiler_passes=(
            torchjit_inductor.scalars_on_devices,
            torchjit_inductor.LayoutPlan(
                convolutions=options.layout_optimization,
                padding=options.shape_padding,
                max_autotune=options.max_autotune,
                cache_dir=kernels.cache_dir,
            ),
        ),
    )
    compiled = _backend(_outside_of_the_hook(compiler, freezing=options.freezing), settings)

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        with torch._C.DisableTorchFunctionSubclass():  # no code of the program's runs
            devices = {value.device.type for value in example_inputs if isinstance(value, torch.Tensor)}
        if "cuda" in devices:
            inductor.expect(gm)
        return compiled(gm, example_inputs)

    return backend


def cudagraphs(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """AOT autograd with eager ops, its graphs recorded as CUDA graphs."""
    plain = torchjit_inductor.Inductor(torchjit_inductor.InductorSettings(fallback_only=True))
    compiler = _outside_of_the_hook(torchjit_cudagraphs.RecordingCompiler(plain))
    return torchjit_aot.compile(gm, example_inputs, compiler=compiler)


def _backend(compiler: torchjit_aot.GraphCompiler, settings: torchjit_aot.AotSettings) -> Backend:
    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return torchjit_aot.compile(gm, example_inputs, compiler=compiler, settings=settings)

    return backend


def _outside_of_the_hook(compiler: torchjit_aot.GraphCompiler, *, freezing: bool = False) -> torchjit_aot.GraphCompiler:
    """A backward compiles inside the user's call of backward(), when the frame hook may be on. `freezing`: see `Options`."""

    def compile_graph(
        gm: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        kind: Literal["inference", "forward", "backward"],
        static_inputs: frozenset[int] = frozenset(),
        name: str = "graph",
    ) -> Callable[..., Sequence[Any]]:
        def rest(
            gm: torch.fx.GraphModule, inputs: Sequence[Any], fixed: frozenset[int]
        ) -> Callable[..., Sequence[Any]]:
            return compiler(gm, inputs, kind=kind, static_inputs=fixed, name=name)

        with eager():
            if freezing and kind == "inference":
                return torchjit_inductor.freeze(gm, example_inputs, static_inputs, rest)
            return rest(gm, example_inputs, static_inputs)

    return compile_graph


def _aot_settings(options: Options) -> torchjit_aot.AotSettings:
    return torchjit_aot.AotSettings(
        memory_budget=options.activation_memory_budget,
        gradient_buckets=options.gradient_buckets and not options.cudagraphs,
        pre_grad_passes=options.pre_grad_custom_pass,
        joint_passes=options.joint_custom_post_pass,
        post_grad_passes=options.post_grad_custom_post_pass,
        later=compiled_later,
    )


def _inductor_settings(
    options: Options, kernels: torchjit_inductor.InductorSettings
) -> torchjit_inductor.InductorSettings:
    return attrs.evolve(
        kernels,
        emulate_precision_casts=options.emulate_precision_casts,
        epilogue_fusion=options.epilogue_fusion,
        race_layouts=options.layout_optimization,
        repeated_blocks=options.repeated_blocks,
        max_autotune=options.max_autotune,
        autotune_in_subproc=options.autotune_in_subproc,
        coordinate_descent_tuning=options.coordinate_descent_tuning,
        autotune_seconds=options.autotune_seconds,
    )
