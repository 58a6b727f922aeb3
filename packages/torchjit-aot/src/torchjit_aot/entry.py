"""`compile`: from a captured graph to a callable that behaves as eager PyTorch does."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Sequence
from typing import Any, final

import attrs
import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

from torchjit_aot.ambient import modes_aside
from torchjit_aot.autograd_forward import CalledGraph
from torchjit_aot.autograd_nodes.delivery import InPieces, Piece
from torchjit_aot.autograd_nodes.lazy_backward import BackwardOfSome, Backwards, LazyBackward
from torchjit_aot.autograd_nodes.nodes import Part, parts_of
from torchjit_aot.autograd_nodes.pieces import Groups, PieceGraph, cut_in_pieces, groups_of
from torchjit_aot.autograd_nodes.undefined_tangents import prune
from torchjit_aot.compiler_protocol import CompiledGraph, GraphCompiler, Kind, Run, writes_last
from torchjit_aot.gradient_histories import guard_history
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
from torchjit_aot.saved_symbols import with_symbols
from torchjit_aot.settings import AotSettings
from torchjit_aot.shared_inputs import guard_overlap
from torchjit_aot.split import BuiltGraph, build_backward, build_forward, tell_graph, tell_saved
from torchjit_core.events import emit, emit_fallback, phase
from torchjit_core.failures import degraded
from torchjit_core.reasons import GraphBreak
from torchjit_core.storing import is_ahead
from torchjit_torch.graph_calls import GraphCall
from torchjit_torch.node_meta import GRADIENT_BUCKETS

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
    original, lazy = gm, None
    with _outside_inference_mode():
        try:
            if are_lazy(example_inputs):
                lazy = take_memory(gm, example_inputs)
                gm, example_inputs = lazy.gm, lazy.example_inputs
            joint = prepare_joint(gm, example_inputs, settings)
        except GraphBreak as refusal:
            if not settings.fallback:
                raise
            emit_fallback(refusal.reason, refusal.detail)
            return GraphCall(
                original
            )  # not `gm` itself, which prints where in the graph the user's own error came from
        limits = GRADIENT_BUCKETS.of(original) if settings.gradient_buckets else None
        how = _Compilation(compiler, backward_compiler or compiler, partitioner, settings, limits)
        run = how.run_of(joint, len(example_inputs), GraphCall(gm))
        return run if lazy is None else lazy.around(run)


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


@final
@attrs.frozen
class _Compilation:
    """How graphs are compiled; see `compile`."""

    compiler: GraphCompiler
    backward_compiler: GraphCompiler
    partitioner: Partitioner | None
    settings: AotSettings
    limits: tuple[int, ...] | None = None

    def run_of(self, joint: JointGraph, count: int, eager: GraphCall) -> Run:
        """The callable for a joint graph.

        Args:
            joint: traced, and changed by the passes.
            count: the number of inputs that the caller passes.
            eager: the program's graph, which runs where a call is not like the trace, and where nothing was compiled.
        """
        owned = joint.sources[count : len(joint.sources) - len(joint.bases)]
        state = [source.real for source in owned]  # as traced: a pass may have copied the module
        run = self._training(joint, state, eager) if joint.has_backward else self._inference(joint, state)
        guarded: Any = eager if run is eager else guard_overlap(joint, guard_history(joint, run, eager), eager)
        if guarded is not run and writes_last(run):
            guarded.writes_last = False  # the graph itself writes where the program does
        for source in joint.sources:
            source.real = None  # a backward that is compiled later keeps the joint graph, not this call's tensors
        return guarded  # type: ignore[no-any-return]

    def _inference(self, joint: JointGraph, state: list[torch.Tensor]) -> Run:
        name = f"{self.settings.name}_inference"
        built = build_forward(joint, (), name)
        self._finish(built, joint)
        return make_inference(joint, built.inputs, _invoke(self.compiler, built, "inference", name), state, name)

    def _training(self, joint: JointGraph, state: list[torch.Tensor], eager: GraphCall) -> Run:
        settings, name = self.settings, f"{self.settings.name}_forward"
        with phase("partition"):
            partition = with_symbols(joint, self._partition(joint))
            forward = build_forward(joint, partition.saved, name)

            def build() -> BuiltGraph:
                return build_backward(joint, partition, f"{settings.name}_backward")

            with no_autocast():
                parts = parts_of(joint, partition.saved, build)
        self._finish(forward, joint)
        tell_saved(partition)
        groups = self._groups(parts)
        backwards = [self._backwards(part, groups) for part in parts]
        compiled = _invoke(self.compiler, forward, "forward", name)
        if groups is None and len(parts) == 1 and self._is_one_call(joint, eager, compiled, backwards[0]):
            emit("one_call", name=settings.name)
            return eager
        if settings.eager_backward or is_ahead():
            for of_part in backwards:
                of_part.whole.compile()
        return make_training(
            joint,
            CalledGraph(compiled, forward.inputs, partition.saved),
            list(zip(parts, backwards, strict=True)),
            state,
            settings.name,
            checked=self.backward_compiler is not run_eagerly,
            groups=groups,
        )

    def _is_one_call(self, joint: JointGraph, eager: GraphCall, compiled: CompiledGraph, backwards: Backwards) -> bool:
        """Do compiled graphs call what the program's one operation calls, and nothing else?

        Its own node of autograd is then better than ours, which is written in Python.
        """
        settings = self.settings
        has_passes = settings.pre_grad_passes or settings.joint_passes or settings.post_grad_passes
        if has_passes or getattr(compiled, "calls", None) != 1 or eager.gm is None:
            return False
        if not _does_one_thing(eager.gm.graph) or any(map(_is_for_kernels, joint.graph.nodes)):
            return False  # and the backward is compiled when it is called
        return backwards.whole.calls() is not None

    def _partition(self, joint: JointGraph) -> Partition:
        if self.partitioner is not None:
            return self.partitioner(joint)
        return min_cut_partition(
            joint,
            recompute_materialized=self.settings.recompute_materialized,
            recompute_time=self.settings.recompute_time,
            memory_budget=self.settings.memory_budget,
            exact=not self.settings.fuse,
        )

    def _groups(self, parts: Sequence[Part]) -> Groups | None:
        """Which gradients are to be there before the others, if somebody waits for them."""
        if self.limits is None or len(parts) > 1:
            return None
        with no_autocast():
            return groups_of(parts[0].joint, parts[0].build(), self.limits)

    def _backwards(self, part: Part, groups: Groups | None) -> Backwards:
        joint, later = part.joint, self.settings.later

        def lazily(built: BuiltGraph) -> LazyBackward:
            def build() -> CompiledGraph:
                return self._invoke_backward(built) if groups is None else self._invoke_pieces(joint, built, groups)

            return LazyBackward(build, lambda: self._operators_of(built), later)

        def of_some(missing: tuple[bool, ...]) -> BackwardOfSome:
            try:
                with no_autocast():
                    pruned = prune(part.build(), missing, joint.dependence.tangents, joint.fake_mode)
                    if pruned.changed:
                        self._finish(pruned.built, joint)
            except Exception as error:  # as for the whole backward
                self._degrade(error)
                return BackwardOfSome(whole, (True,) * len(missing))
            return BackwardOfSome(lazily(pruned.built) if pruned.changed else whole, pruned.reads)

        with no_autocast():
            built = part.build()
        self._finish(built, joint)
        whole = lazily(built)
        return Backwards(whole, of_some, later)

    def _finish(self, built: BuiltGraph, joint: JointGraph) -> None:
        """The rewrites that must not change what is saved, and the user's passes."""
        if self.settings.fuse:
            tell_rewrites(self.settings.name, rewrite_graph(built.gm.graph, FUSED, joint.fake_mode))
        run_on_graph(built.gm.graph, self.settings.post_grad_passes, joint.fake_mode)

    def _invoke_backward(self, built: BuiltGraph, piece: str = "") -> CompiledGraph:
        try:
            return _invoke(self.backward_compiler, built, "backward", f"{self.settings.name}_backward{piece}")
        except Exception as error:
            self._degrade(error)
            return self._operators_of(built)

    def _invoke_pieces(self, joint: JointGraph, built: BuiltGraph, groups: Groups) -> CompiledGraph:
        with no_autocast():
            pieces, values = cut_in_pieces(joint, built, groups)
        last = {i: k for k, piece in enumerate(pieces) for i in (*piece.reads, *piece.gradients)}

        def compiled(k: int, piece: PieceGraph) -> Piece:
            graph = None if piece.built is None else self._invoke_backward(piece.built, f"_{k}")
            dead = {i for i in range(values) if last.get(i, 0) == k}
            read_last = tuple(i for i in piece.reads if i in dead and i not in piece.gradients)
            return Piece(graph, piece.reads, piece.gives, piece.gradients, read_last, tuple(sorted(dead)))

        made: Any = InPieces(tuple(compiled(k, piece) for k, piece in enumerate(pieces)), values)
        return made  # type: ignore[no-any-return]

    def _degrade(self, error: Exception) -> None:
        """In the middle of the user's training step there is no other way to go on."""
        if not self.settings.fallback:
            raise error
        degraded(BACKWARD_COMPILER, f"{type(error).__name__}: {error}", error)

    def _operators_of(self, built: BuiltGraph) -> CompiledGraph:
        """The backward's operators, called one by one."""
        name = f"{self.settings.name}_backward"
        return run_eagerly(built.gm, built.example_inputs, kind="backward", static_inputs=built.static, name=name)


def _does_one_thing(graph: fx.Graph) -> bool:
    """Is the program's graph one call of a function of torch's?"""
    around = ("placeholder", "get_attr", "output")
    done = [n for n in graph.nodes if n.op not in around and n.target is not operator.getitem]
    return len(done) == 1 and done[0].op != "call_module" and not isinstance(done[0].target, HigherOrderOperator)


def _is_for_kernels(node: fx.Node) -> bool:
    """Do compilers generate code for this operator?"""
    return isinstance(node.target, OpOverload) and not _GENERATED.isdisjoint(node.target.tags)


_GENERATED = frozenset({torch.Tag.pointwise, torch.Tag.reduction})


def _invoke(compiler: GraphCompiler, built: BuiltGraph, kind: Kind, name: str) -> CompiledGraph:
    tell_graph(kind, name, built.gm)
    with phase(f"compile {kind}"), torch.no_grad(), modes_aside():
        return compiler(built.gm, built.example_inputs, kind=kind, static_inputs=built.static, name=name)
