"""`compile`: from a captured graph to a callable that behaves as eager PyTorch does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from torchjit_aot.ambient import modes_aside
from torchjit_aot.autograd_forward import CalledGraph
from torchjit_aot.autograd_nodes.lazy_backward import BackwardOfSome, Backwards, LazyBackward
from torchjit_aot.autograd_nodes.nodes import Part, parts_of
from torchjit_aot.autograd_nodes.undefined_tangents import prune
from torchjit_aot.compiler_protocol import CompiledGraph, GraphCompiler, Run, writes_last
from torchjit_aot.inputs import no_autocast
from torchjit_aot.joint import JointGraph
from torchjit_aot.joint_passes import prepare_joint
from torchjit_aot.lazy_inputs import are_lazy, take_memory
from torchjit_aot.partition import Partition, Partitioner, min_cut_partition
from torchjit_aot.passes import run_on_graph
from torchjit_aot.refusals import BACKWARD_COMPILER
from torchjit_aot.rewrites import FUSED, rewrite_graph, tell_rewrites
from torchjit_aot.run_eagerly import run_eagerly
from torchjit_aot.runtime import make_inference, make_training
from torchjit_aot.settings import AotSettings
from torchjit_aot.split import BuiltGraph, build_backward, build_forward, tell_graph, tell_saved
from torchjit_aot.synthetic_bases import guard_history, guard_overlap
from torchjit_core.events import emit, phase
from torchjit_core.failures import degraded
from torchjit_core.reasons import GraphBreak

__all__ = ["compile"]

_DEFAULT = AotSettings()


def compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    compiler: GraphCompiler,
    settings: AotSettings = _DEFAULT,
    backward_compiler: GraphCompiler | None = None,
    partitioner: Partitioner | None = None,
) -> Run:
    """Compile a torch-level graph, with its backward.

    The result is specialised to what `example_inputs` are like (dtypes, devices, strides, `requires_grad`, and sizes
    where the placeholders' `meta["val"]` have no symbols) and to the ambient grad mode and autocast state; the caller
    guards on that.

    Args:
        gm: the graph. Parameters and buffers that it holds itself become inputs.
        example_inputs: this call's tensors and numbers, one per placeholder.
        compiler: compiles the final graphs.
        settings: see `AotSettings`.
        backward_compiler: compiles the backward graph, if another one should.
        partitioner: chooses what the forward saves; `min_cut_partition` by default.

    Returns:
        A callable of the placeholders' values that returns what the graph's output node holds.

    Raises:
        GraphBreak: `settings.fallback` is false and the graph cannot be compiled.
    """
    with _outside_inference_mode():
        if are_lazy(example_inputs):
            try:
                lazy = take_memory(gm, example_inputs)
            except GraphBreak as refusal:
                return _refused(gm, refusal, settings)
            return lazy.around(
                _compile(lazy.gm, lazy.example_inputs, compiler, settings, backward_compiler, partitioner)
            )
        return _compile(gm, example_inputs, compiler, settings, backward_compiler, partitioner)


@contextlib.contextmanager
def _outside_inference_mode() -> Iterator[None]:
    """Inference mode leaves out the level at which composite operators (linear, batch_norm, max_pool2d) are taken apart.

    The graph is the one of `no_grad`; its calls run in whatever mode the caller is in.
    """
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


def _compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    compiler: GraphCompiler,
    settings: AotSettings,
    backward_compiler: GraphCompiler | None,
    partitioner: Partitioner | None,
) -> Run:
    try:
        joint = prepare_joint(gm, example_inputs, settings)
    except GraphBreak as refusal:
        return _refused(gm, refusal, settings)
    owned = joint.sources[len(example_inputs) : len(joint.sources) - len(joint.bases)]
    state = [source.real for source in owned]  # as traced: a pass may have copied the module
    if joint.has_backward:
        run = _compile_training(joint, compiler, backward_compiler or compiler, partitioner, settings, state)
    else:
        run = _compile_inference(joint, compiler, settings, state)
    eager = _eager(gm)
    guarded: Any = guard_overlap(joint, guard_history(joint, run, eager), eager)
    if guarded is not run and writes_last(run):
        guarded.writes_last = False  # the graph itself writes where the program does
    for source in joint.sources:
        source.real = None  # a backward that is compiled later keeps the joint graph, not this call's tensors
    return guarded  # type: ignore[no-any-return]


def _refused(gm: fx.GraphModule, refusal: GraphBreak, settings: AotSettings) -> Run:
    if not settings.fallback:
        raise refusal
    emit("fallback", reason=refusal.reason.id, headline=refusal.reason.headline, detail=refusal.detail)
    return _eager(gm)


def _eager(gm: fx.GraphModule) -> Run:
    return gm.forward  # not `gm` itself, which prints where in the graph the user's own error came from


def _invoke(compiler: GraphCompiler, built: BuiltGraph, kind: Any, name: str) -> CompiledGraph:
    tell_graph(kind, name, built.gm)
    with phase(f"compile {kind}"), torch.no_grad(), modes_aside():
        return compiler(built.gm, built.example_inputs, kind=kind, static_inputs=built.static, name=name)


def _invoke_backward(compiler: GraphCompiler, built: BuiltGraph, name: str, settings: AotSettings) -> CompiledGraph:
    try:
        return _invoke(compiler, built, "backward", name)
    except Exception as error:  # in the middle of the user's training step there is no other way to go on
        if not settings.fallback:
            raise
        degraded(BACKWARD_COMPILER, f"{type(error).__name__}: {error}", error)
        return _operators_of(built, name)


def _operators_of(built: BuiltGraph, name: str) -> CompiledGraph:
    """The backward's operators, called one by one."""
    return run_eagerly(built.gm, built.example_inputs, kind="backward", static_inputs=built.static, name=name)


def _finish(built: BuiltGraph, joint: JointGraph, settings: AotSettings) -> None:
    """The rewrites that must not change what is saved, and the user's passes."""
    if settings.fuse:
        tell_rewrites(settings.name, rewrite_graph(built.gm.graph, FUSED, joint.fake_mode))
    run_on_graph(built.gm.graph, settings.post_grad_passes, joint.fake_mode)


def _compile_inference(
    joint: JointGraph, compiler: GraphCompiler, settings: AotSettings, state: list[torch.Tensor]
) -> Run:
    name = f"{settings.name}_inference"
    built = build_forward(joint, (), name)
    _finish(built, joint, settings)
    return make_inference(joint, built.inputs, _invoke(compiler, built, "inference", name), state, name)


def _compile_training(
    joint: JointGraph,
    compiler: GraphCompiler,
    backward_compiler: GraphCompiler,
    partitioner: Partitioner | None,
    settings: AotSettings,
    state: list[torch.Tensor],
) -> Run:
    with phase("partition"):
        partition: Partition = (
            partitioner(joint)
            if partitioner is not None
            else min_cut_partition(
                joint,
                recompute_materialized=settings.recompute_materialized,
                recompute_time=settings.recompute_time,
                memory_budget=settings.memory_budget,
                exact=not settings.fuse,
            )
        )
        forward = build_forward(joint, partition.saved, f"{settings.name}_forward")
        name = f"{settings.name}_backward"

        def build() -> BuiltGraph:
            return build_backward(joint, partition, name)

        with no_autocast():
            parts = parts_of(joint, partition.saved, build)
    _finish(forward, joint, settings)
    tell_saved(partition)
    backwards = [_backwards(part, backward_compiler, settings) for part in parts]
    compiled = _invoke(compiler, forward, "forward", f"{settings.name}_forward")
    if settings.eager_backward:
        for of_part in backwards:
            of_part.whole.compile()
    return make_training(
        joint,
        CalledGraph(compiled, forward.inputs, partition.saved),
        list(zip(parts, backwards, strict=True)),
        state,
        settings.name,
        checked=backward_compiler is not run_eagerly,
    )


def _backwards(part: Part, compiler: GraphCompiler, settings: AotSettings) -> Backwards:
    joint, name = part.joint, f"{settings.name}_backward"

    def lazily(built: BuiltGraph) -> LazyBackward:
        return LazyBackward(
            lambda: _invoke_backward(compiler, built, name, settings),
            lambda: _operators_of(built, name),
            settings.later,
        )

    def of_some(missing: tuple[bool, ...]) -> BackwardOfSome:
        try:
            with no_autocast():
                pruned = prune(part.build(), missing, joint.dependence.tangents, joint.fake_mode)
                if pruned.changed:
                    _finish(pruned.built, joint, settings)
        except Exception as error:  # as for the whole backward
            if not settings.fallback:
                raise
            degraded(BACKWARD_COMPILER, f"{type(error).__name__}: {error}", error)
            return BackwardOfSome(whole, (True,) * len(missing))
        return BackwardOfSome(lazily(pruned.built) if pruned.changed else whole, pruned.reads)

    with no_autocast():
        built = part.build()
    _finish(built, joint, settings)
    whole = lazily(built)
    return Backwards(whole, of_some, settings.later)
