"""The default backend: AOT autograd, then the inductor, then CUDA graphs where the options ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import attrs
import torch

import torchjit_aot
import torchjit_aot.entry  # with the package alone its imports would come in the first call
import torchjit_cudagraphs
import torchjit_inductor
from torchjit.attention import ATTENTION
from torchjit.backends import Backend
from torchjit.config import Settings, config
from torchjit.debug_folder import tracing
from torchjit.environment import read_environment
from torchjit.options import Options
from torchjit_core.events import emit
from torchjit_frame import eager
from torchjit_inductor.lowering.registry import LOWERINGS
from torchjit_session.interrupts import compiled_later
from torchjit_torch.node_meta import RESULTS

__all__ = ["aot_eager_backend", "inductor_backend"]


def _internal(gm: torch.fx.GraphModule, kind: str) -> frozenset[int]:
    """The outputs that users do not get to see: what is saved for the backward, and gradients on their way."""
    count = len(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    shown = RESULTS.of(gm)
    return frozenset(range(0 if kind == "backward" else count if shown is None else shown, count))


def _stay(gm: torch.fx.GraphModule) -> frozenset[int]:
    """Inputs of fixed sizes whose memory stays where it is, as the program promised. One of another size begins at the same address."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    marked = (i for i, node in enumerate(placeholders) if node.meta.get("address_stays"))
    return frozenset(i for i in marked if not _is_symbolic((placeholders[i].meta["val"],)))


def _is_symbolic(inputs: Sequence[Any]) -> bool:
    """May sizes change from call to call? Guards see to it that nothing else does."""
    return any(
        not isinstance(value, torch.Tensor) or any(type(n) is not int for n in (*value.shape, *value.stride()))
        for value in inputs
    )


@final
@attrs.frozen
class _Compiler:
    """A `GraphCompiler`: the inductor, with recording as CUDA graphs when `record` is set; batches of inference graphs are then
    filled up to `capture_sizes`. `freezing`: see `Options`.

    A graph that no CUDA graph can hold as a whole is compiled and recorded in pieces.
    """

    inductor: torchjit_inductor.Inductor
    record: bool
    capture_sizes: tuple[int, ...] = ()
    freezing: bool = False

    def __call__(
        self,
        gm: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        kind: Literal["inference", "forward", "backward"],
        static_inputs: frozenset[int] = frozenset(),
        name: str = "graph",
    ) -> Callable[..., Sequence[Any]]:
        with eager():  # a backward compiles inside the user's call of backward(): the frame hook may be on
            if not self.freezing or kind != "inference":
                return self._compiled(gm, example_inputs, kind, static_inputs, name)

            def rest(
                gm: torch.fx.GraphModule, inputs: Sequence[Any], fixed: frozenset[int]
            ) -> Callable[..., Sequence[Any]]:
                return self._compiled(gm, inputs, kind, fixed, name)

            return torchjit_inductor.freeze(gm, example_inputs, static_inputs, rest)

    def _compiled(
        self,
        gm: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        kind: Literal["inference", "forward", "backward"],
        static_inputs: frozenset[int],
        name: str,
    ) -> Callable[..., Sequence[Any]]:
        # What CUDA graphs read where it lies, unlike what freezing takes for constant.
        static_inputs |= _stay(gm) if self.record else frozenset()
        parts = torchjit_cudagraphs.split(gm) if self.record else None
        if parts is None:
            compiled = self.inductor(gm, example_inputs, kind=kind, static_inputs=static_inputs, name=name)
            if not self.record:
                return compiled
            batch = self._batch(gm, kind, name, static_inputs)
            internal = _internal(gm, kind)
            return self._recorded(compiled, gm, example_inputs, internal, name, batch, takes_saved=kind == "backward")
        torchjit_cudagraphs.tell_split(parts, name)
        if self.capture_sizes:
            self._tell_no_batch(name, "it is captured in pieces")
        static = {node for position, node in enumerate(parts.inputs) if position in static_inputs}
        internal = _internal(gm, kind)
        seen = {n for position, n in enumerate(parts.outputs) if position not in internal}
        made = []
        for position, piece in enumerate(parts.pieces):
            inputs = [node.meta["val"] for node in piece.inputs]
            fixed = frozenset(k for k, node in enumerate(piece.inputs) if node in static)
            called = f"{name}_piece{position}"
            compiled = self.inductor(piece.gm, inputs, kind=kind, static_inputs=fixed, name=called)
            inside = frozenset(k for k, node in enumerate(piece.outputs) if node not in seen)
            made.append(self._recorded(compiled, piece.gm, inputs, inside, called) if piece.captured else compiled)
        return torchjit_cudagraphs.Chain(parts, made)

    def _recorded(
        self,
        compiled: torchjit_inductor.CompiledGraph,
        gm: torch.fx.GraphModule,
        inputs: Sequence[Any],
        internal: frozenset[int],
        name: str,
        batch: torchjit_cudagraphs.Batch | None = None,
        *,
        takes_saved: bool = False,
    ) -> Callable[..., Sequence[Any]]:
        return torchjit_cudagraphs.record(
            compiled, inputs, torchjit_cudagraphs.CudaGraphSettings(capture_sizes=self.capture_sizes if batch else ()),
            internal=internal, fixed_layouts=not _is_symbolic(inputs), batch=batch, names=_names(gm), name=name,
            takes_saved=takes_saved,
        )  # fmt: skip

    def _batch(
        self, gm: torch.fx.GraphModule, kind: str, name: str, static_inputs: frozenset[int]
    ) -> torchjit_cudagraphs.Batch | None:
        """Where the batch is, if there are capture sizes and the graph's batches can be filled up to them."""
        if not self.capture_sizes:
            return None
        found = torchjit_cudagraphs.find_batch(gm) if kind == "inference" else f"it is a {kind} graph"
        if not isinstance(found, str) and static_inputs & set(found.inputs):
            found = "a parameter or buffer runs along the batch"
        if isinstance(found, str):
            self._tell_no_batch(name, found)
            return None
        return found

    def _tell_no_batch(self, name: str, detail: str) -> None:
        why = torchjit_cudagraphs.NO_BATCH
        emit("fallback", reason=why.id, headline=why.headline, detail=f"{name}: {detail}")


def _names(gm: torch.fx.GraphModule) -> list[str]:
    """What messages call the graph's inputs: their names, and where they are first used."""
    lines = [
        (n.name, next(map(torchjit_cudagraphs.line_of, n.users), "")) for n in gm.graph.nodes if n.op == "placeholder"
    ]
    return [f"input {name} (used at {line})" if line else f"input {name}" for name, line in lines]


def aot_eager_backend(options: Options) -> Backend:
    """The backend `aot_eager` under those of the options that concern autograd: the budget, and the passes."""
    settings = torchjit_aot.AotSettings(
        memory_budget=options.activation_memory_budget,
        pre_grad_passes=options.pre_grad_custom_pass,
        joint_passes=options.joint_custom_post_pass,
        post_grad_passes=options.post_grad_custom_post_pass,
        later=compiled_later,
    )

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return torchjit_aot.compile(gm, example_inputs, compiler=torchjit_aot.run_eagerly, settings=settings)

    return backend


def inductor_backend(options: Options, settings: Settings) -> Backend:
    """The backend `inductor` under these options.

    Returns:
        A function of a captured graph and its example inputs.
    """
    inductor = torchjit_inductor.Inductor(_inductor_settings(options, settings), attention=ATTENTION)
    compiler = _Compiler(
        inductor, record=options.cudagraphs, capture_sizes=options.capture_sizes, freezing=options.freezing
    )
    aot = torchjit_aot.AotSettings(
        decompositions=torchjit_aot.default_decompositions(),
        keep_ops=frozenset(LOWERINGS),
        fuse=True,
        memory_budget=options.activation_memory_budget,
        functional_random=not options.fallback_random,
        pre_grad_passes=options.pre_grad_custom_pass,
        joint_passes=options.joint_custom_post_pass,
        post_grad_passes=options.post_grad_custom_post_pass,
        compiler_passes=(
            torchjit_inductor.LayoutPlan(convolutions=options.layout_optimization, padding=options.shape_padding),
        ),
        later=compiled_later,
    )

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return torchjit_aot.compile(gm, example_inputs, compiler=compiler, settings=aot)

    return tracing(backend, options)


def _inductor_settings(options: Options, settings: Settings) -> torchjit_inductor.InductorSettings:
    environment = read_environment()
    cache = str(environment.cache_dir) if environment.cache_dir else None
    if environment.caches_off or not settings.caches:
        cache = str(torchjit_inductor.private_folder())
    return torchjit_inductor.InductorSettings(
        cache_dir=cache,
        compiler=environment.compiler,
        compiler_named_by=environment.compiler_named_by,
        compiler_seconds=environment.compiler_seconds,
        emulate_precision_casts=options.emulate_precision_casts,
        epilogue_fusion=options.epilogue_fusion,
        race_layouts=options.layout_optimization,
        max_autotune=options.max_autotune,
        autotune_in_subproc=options.autotune_in_subproc,
        coordinate_descent_tuning=options.coordinate_descent_tuning,
        autotune_seconds=options.autotune_seconds,
    )


def inductor(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The default backend with default options."""
    return inductor_backend(Options(), config.snapshot())(gm, example_inputs)


def cudagraphs(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """AOT autograd with eager ops, its graphs recorded as CUDA graphs."""
    plain = torchjit_inductor.Inductor(torchjit_inductor.InductorSettings(fallback_only=True))
    return torchjit_aot.compile(gm, example_inputs, compiler=_Compiler(plain, record=True))
