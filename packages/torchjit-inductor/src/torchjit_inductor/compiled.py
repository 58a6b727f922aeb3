"""The entry point: a graph compiler, and the callable that it returns."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, final

import attrs
import torch
import torch.fx

from torchjit_core import events
from torchjit_core.expr import Symbol
from torchjit_core.failures import failures_are_raised
from torchjit_core.handlers import let_through
from torchjit_core.reasons import Reason, UserError, reason
from torchjit_core.user_warnings import warn_user
from torchjit_core.writing import NEVER, WRITES_FROM
from torchjit_inductor.assembly.workers import shared_workers
from torchjit_inductor.attention.call import AttentionOperators
from torchjit_inductor.attention.few_queries import FewQueries, few_queries
from torchjit_inductor.benchmark_choice import AutotuneCache
from torchjit_inductor.codegen_protocol import NO_COMPILER, CompiledKernel, CompilerMissing, KernelBackend
from torchjit_inductor.compiled_graph import CompiledGraph, show_ranges
from torchjit_inductor.cpp.backend import CBackend
from torchjit_inductor.cpp.depthwise import DepthwiseKernels
from torchjit_inductor.depthwise import divide_depthwise
from torchjit_inductor.estimates import TYPICAL
from torchjit_inductor.evaluated import evaluated
from torchjit_inductor.expansion import NotRepeated, expanded
from torchjit_inductor.host import write_host_program
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.layouts import preferred_layouts
from torchjit_inductor.lowering.contractions import ProductChoice
from torchjit_inductor.lowering.graph import DATA_DEPENDENT, lower_graph
from torchjit_inductor.lowering.known_sizes import GraphNotSupported
from torchjit_inductor.lowering.run_numbers import reads_data
from torchjit_inductor.lowering.sizes import NotLowered, expression
from torchjit_inductor.lowering.tensors import Strided, TensorMeta
from torchjit_inductor.matmul import choose_matmuls
from torchjit_inductor.passes import Pass, run_passes
from torchjit_inductor.quantized import with_packed_products
from torchjit_inductor.schedule.cleanup import drop_roundings, remove_dead_stores, rename_kernels, round_stores
from torchjit_inductor.schedule.fuse import FusionLimits, Refusal, fuse
from torchjit_inductor.schedule.row_totals import total_by_rows
from torchjit_inductor.settings import InductorSettings
from torchjit_inductor.steps import ExternStep, KernelStep, Program, Step
from torchjit_torch.equal_blocks import find_blocks
from torchjit_torch.graph_calls import GraphCall
from torchjit_torch.operators import ONLY_COMPUTE

__all__ = ["CompiledGraph", "Inductor", "show_ranges"]

NO_BACKEND = reason(
    "TJ-IND-004",
    "a device without a code generator",
    "Kernels are generated for CPUs and for NVIDIA GPUs. Graphs on other devices run op by op.",
)

BY_REQUEST = reason(
    "TJ-IND-007",
    "operators run one by one by request",
    "`InductorSettings(fallback_only=True)`, or the backend `cudagraphs`, was chosen: no kernels are generated.",
)
KERNEL_REFUSED = reason(
    "TJ-IND-005",
    "a kernel that the code generator cannot write",
    "This one kernel is evaluated with torch's operations, point by point: right, but slow. The rest of the graph is compiled.",
    "Report it with the graph (TORCHJIT_LOGS=aot_graphs).",
)

NO_ATTENTION = reason(
    "TJ-IND-008",
    "an attention without a kernel",
    "The functions that change its scores, or its block mask, do what no kernel of attention does. The call computes all scores "
    "in memory, as in eager: results are right, but it needs much more memory and time.",
)

Kind = Literal["inference", "forward", "backward"]
_FEWEST_BLOCKS = 5
"""Equal blocks of a graph for which it is worth the while to compile a few of them."""
_KEPT_BLOCKS = (3, 4, 6)
"""How many of them to try: the first and the last are different in the program, where kernels reach over their borders."""


@final
class _NoCodeGenerator(GraphNotSupported):
    """A kernel would be for a device that nothing is generated for."""


@final
class Inductor:
    """Compiles functional ATen graphs to kernels; a `GraphCompiler`.

    Args:
        settings: how to compile.
        cuda_backend: the code generator for CUDA devices; by default the Triton one, imported when first needed.
        attention: the operators of attention whose scores the user changes; None: none has kernels.
    """

    def __init__(
        self,
        settings: InductorSettings | None = None,
        *,
        cuda_backend: KernelBackend | None = None,
        attention: AttentionOperators | None = None,
    ) -> None:
        self.settings = settings or InductorSettings()
        self._attention_operators = attention
        self._choices = AutotuneCache(self.settings.cache_dir)
        self._depthwise = DepthwiseKernels(self.settings)
        self._backends: dict[str, KernelBackend] = {"cpu": CBackend(self.settings)}
        if cuda_backend is not None:
            self._backends["cuda"] = cuda_backend

    def __call__(
        self,
        gm: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        kind: Kind = "inference",
        static_inputs: frozenset[int] = frozenset(),
        name: str = "graph",
    ) -> CompiledGraph:
        """Compile a graph.

        Args:
            gm: functional ATen graph with `meta["val"]` on every node, mutation only as trailing `copy_`.
            example_inputs: fakes or real inputs of this call, for hints.
            kind: which part of a training step it is.
            static_inputs: positions of inputs whose addresses do not change.
            name: for reports.
        """
        device = _single_device(gm)
        graph = functools.partial(
            CompiledGraph, static_inputs=static_inputs, mutated_inputs=_mutated_inputs(gm), device=device
        )
        try:
            return self._generated(gm, kind, name, device, graph)
        except GraphNotSupported as refusal:
            why = NO_BACKEND if isinstance(refusal, _NoCodeGenerator) else DATA_DEPENDENT
            return self._interpreted(gm, why, str(refusal), graph, str(refusal))
        except CompilerMissing as missing:
            let_through()
            if failures_are_raised():
                raise UserError(NO_COMPILER, str(missing)) from missing
            _warn(str(missing))
            return self._interpreted(gm, NO_COMPILER, str(missing), graph, _waits(gm, device))

    def expect(self, gm: torch.fx.GraphModule) -> None:
        """A graph like this one comes soon, for a GPU: the processes that compile its kernels start meanwhile."""
        if torch.version.hip is None and not self.settings.fallback_only:
            shared_workers().start(max(1, len(gm.graph.nodes) // _NODES_A_PROCESS))

    def _generated(
        self, gm: torch.fx.GraphModule, kind: Kind, name: str, device: torch.device | None, graph: Callable[..., CompiledGraph]
    ) -> CompiledGraph:  # fmt: skip
        """The graph as kernels and a host program.

        Args:
            graph: makes what is compiled.

        Raises:
            GraphNotSupported: it has to be interpreted.
            CompilerMissing: there is no compiler for its device.
        """
        if self.settings.fallback_only:
            return self._interpreted(gm, BY_REQUEST, "fallback_only is set", graph, _waits(gm, device))
        if device is not None and device.type == "cuda":
            if torch.version.hip is not None:
                raise CompilerMissing("AMD GPUs are not supported yet: their graphs run op by op")
            self.expect(gm)
        if self.settings.race_matmuls:
            with events.phase("inductor matmul races"):
                gm = with_packed_products(gm, self._choices)
        program = self._repeated(gm, kind, name) if self.settings.repeated_blocks else None
        if program is None:
            program = self._scheduled(gm, self._lowered(gm, kind, name))
        boxed = kind == "backward"  # its inputs are saved tensors, which nobody else needs after their last use
        compiled, source = self._compiled(gm, program, name, boxed=boxed)
        events.emit("host_program", name=name, source=source.source)
        calls = {"boxed": source.call} if boxed else {"call": source.call}
        return graph(
            **calls,
            source=source.source,
            kernels=compiled,
            reason_not_recordable=_not_recordable(program, device),
            calls=_calls(program, device),
        )

    def _lowered(self, gm: torch.fx.GraphModule, kind: Kind, name: str) -> Program:
        with events.phase("inductor lowering"):
            race = self.settings.race_layouts and kind == "inference"
            layouts = preferred_layouts(gm, self._choices) if race else frozenset()
            rounds = self.settings.emulate_precision_casts
            return lower_graph(
                gm, name, layouts, rounds_each=rounds, products=self._products(), attention=self._attention
            )  # fmt: skip

    def _repeated(self, gm: torch.fx.GraphModule, kind: Kind, name: str) -> Program | None:
        """The program of a graph of many equal blocks, made from that of a graph with few of them; None where that does not do."""
        with events.phase("inductor repeated blocks"):
            blocks = find_blocks(gm, _FEWEST_BLOCKS)
        if blocks is None:
            return None
        fields = {"name": name, "blocks": blocks.run.count, "nodes": blocks.run.period}
        why = "what follows the blocks, or one of them, needs more than the one before it"
        for kept in _KEPT_BLOCKS:
            reduced = blocks.reduced(kept)
            if reduced is None:
                break
            try:
                program = self._scheduled(reduced.gm, self._lowered(reduced.gm, kind, name))
                with events.phase("inductor repeated blocks"):
                    program = expanded(program, reduced)
            except (NotRepeated, GraphNotSupported) as refusal:
                why = str(refusal)
                continue
            events.emit("repeated_blocks", **fields, kept=kept, expanded=True, detail="")
            return program
        events.emit("repeated_blocks", **fields, kept=blocks.run.count, expanded=False, detail=why)
        return None

    def _scheduled(self, gm: torch.fx.GraphModule, program: Program) -> Program:
        """The program after fusion, with the kernels as they will be generated."""
        hints = _hints(gm, program)
        if program.products:
            quietly = self._fusion(hints, None)
            program = self._backend("cuda").settle_products(program, lambda p: run_passes(p, quietly))
        with events.phase("inductor scheduling"):
            program = run_passes(program, self._fusion(hints, _tell if events.listening() else None))
        return run_passes(program, self._preparation(program, hints))

    def _compiled(
        self, gm: torch.fx.GraphModule, program: Program, name: str, *, boxed: bool = False
    ) -> tuple[list[CompiledKernel], Any]:
        hints = _hints(gm, program)
        for kind in _by_device([s.kernel for s in program.steps if isinstance(s, KernelStep)]):
            program = self._backend(kind).overlapped(program)
        kernels = list(dict.fromkeys(s.kernel for s in program.steps if isinstance(s, KernelStep)))
        for kernel in kernels:
            kernel.verify(program.buffers)
        events.emit_lazy("schedule", lambda: {"graph": name, "steps": [_step_fields(s) for s in program.steps]})
        compiled = self._kernels(kernels, program.buffers, hints, name)
        host = write_host_program(
            program, compiled, check_strides=self.settings.check_strides, boxed=boxed, hints=hints
        )
        return [compiled[k.name] for k in kernels], host

    def _kernels(
        self,
        kernels: Sequence[LoopKernel],
        buffers: Mapping[str, Buffer],
        hints: Mapping[Symbol, int],
        name: str,
    ) -> dict[str, CompiledKernel]:
        """The kernels of a graph by name; what a code generator refuses is evaluated with torch's operations."""
        start = time.perf_counter()
        compiled: dict[str, CompiledKernel] = {}
        for kind, group in _by_device(kernels).items():
            backend = self._backend(kind)
            refusals = {k.name: self._refusal(k, buffers) for k in group}
            accepted = [k for k in group if refusals[k.name] is None]
            results = {k.name: k for k in backend.compile(accepted, buffers, graph=name, hints=hints)}
            for kernel in group:
                why = refusals[kernel.name]
                if why is not None:
                    events.emit_fallback(KERNEL_REFUSED, why)
                made = results[kernel.name] if why is None else evaluated(kernel)
                compiled[made.name] = made
                origins = [f"{o.node} = {o.op}  {o.source}".rstrip() for o in kernel.origins]
                events.note("kernel", name=made.name, language=backend.language, graph=name, origins=origins)
                events.emit(
                    "kernel", name=made.name, language=backend.language, source=made.source, origins=origins, graph=name
                )
        end = time.perf_counter()
        events.note("phase", name="inductor kernels", seconds=end - start, end=end)
        events.emit("phase", name="inductor kernels", seconds=end - start)
        return compiled

    def _fusion(self, hints: Mapping[Symbol, int], explain: Callable[[Refusal], None] | None) -> tuple[Pass, ...]:
        """What joins kernels, and tidies up afterwards."""
        limits = FusionLimits(epilogues=self.settings.epilogue_fusion)

        def joined(program: Program) -> Program:
            return fuse(
                program,
                hints,
                limits,
                accepts=lambda kernel: self._refusal(kernel, program.buffers) is None,
                unwanted=lambda kernel: self._backend(kernel.device.type).unwanted(kernel, program.buffers, hints),
                explain=explain,
                shares=lambda kernel: self._backend(kernel.device.type).shares(kernel, program.buffers, hints),
            )

        def totals(program: Program) -> Program:
            return total_by_rows(program, hints, limits)

        rounding: tuple[Pass, ...] = (round_stores,) if self.settings.emulate_precision_casts else ()
        fusion: tuple[Pass, ...] = (totals, joined) if self.settings.fusion else ()
        return (*rounding, *fusion, remove_dead_stores, drop_roundings, rename_kernels)

    def _preparation(self, program: Program, hints: Mapping[Symbol, int]) -> tuple[Pass, ...]:
        """What comes after fusion: which library multiplies, and what the code generators of the program's devices want."""

        def raced(program: Program) -> Program:
            with events.phase("inductor matmul races"):
                return choose_matmuls(program, hints, self._choices)

        races: tuple[Pass, ...] = (raced,) if self.settings.race_matmuls else ()
        kinds = _by_device([s.kernel for s in program.steps if isinstance(s, KernelStep)])
        own = (each for kind in kinds for each in self._backend(kind).passes(hints))
        return (*races, lambda p: divide_depthwise(p, self._depthwise.gradient), *own)

    def _products(self) -> ProductChoice | None:
        """Whether a matrix product becomes a kernel, for the lowering; None: it never does."""
        if not self.settings.max_autotune:
            return None
        return lambda product: self._backend(product.device.type).takes_product(product)

    def _attention(self, node: torch.fx.Node) -> Any:
        """See `AttentionChoice`."""
        call = few_queries(node)
        if call is not None:
            return functools.partial(self._few_queries, call)
        operators = self._attention_operators
        if operators is None or node.target not in (operators.forward, operators.backward):
            return None
        query, more, name = node.args[0], node.args[3], node.args[-1]
        assert isinstance(query, torch.fx.Node) and isinstance(more, (list, tuple)) and isinstance(name, str)
        backward = node.target is operators.backward

        def kernels(places: Sequence[Strided], metas: Sequence[TensorMeta]) -> Callable[..., Any] | None:
            try:
                wanted: Any = node.args[-2] if backward else ()
                call = operators.describe(name, query.meta["val"], [n.meta["val"] for n in more], wanted)  # type: ignore[union-attr]
                if isinstance(call, str):
                    raise NotLowered(call)
                hints = _hints_of_inputs(node.graph)
                return self._backend(places[0].device.type).attention(call, places, metas, hints, backward=backward)
            except NotLowered as refusal:
                events.emit_fallback(NO_ATTENTION, str(refusal))
                return None

        return kernels

    def _few_queries(self, call: FewQueries, places: Sequence[Strided], metas: Sequence[TensorMeta]) -> Any:
        """What computes it; None: the library's operator does."""
        try:
            return self._backend(places[0].device.type).few_queries(call, places, metas[0])
        except NotLowered:
            return None

    def _refusal(self, kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> str | None:
        """Why the kernel's backend cannot compile it, or None."""
        return self._backend(kernel.device.type).unsupported(kernel, buffers)

    def _backend(self, kind: str) -> KernelBackend:
        """The code generator for a device type.

        Raises:
            GraphNotSupported: there is none.
            CompilerMissing: Triton cannot be imported.
        """
        if kind == "cuda" and kind not in self._backends:
            try:
                # Importing Triton takes a second and is only needed for CUDA graphs.
                from torchjit_inductor.triton.backend import TritonBackend  # noqa: PLC0415
            except ImportError as error:
                raise CompilerMissing(f"Triton cannot be imported: {error}") from None
            self._backends[kind] = TritonBackend(self.settings)
        if kind not in self._backends:
            raise _NoCodeGenerator(f"no code generator for {kind}")
        return self._backends[kind]

    def _interpreted(
        self,
        gm: torch.fx.GraphModule,
        why: Reason,
        detail: str,
        graph: Callable[..., CompiledGraph],
        not_recordable: str | None,
    ) -> CompiledGraph:
        """Run the graph op by op, as fx generated it."""
        events.emit_fallback(why, detail)
        spaces = "|".join(sorted(ONLY_COMPUTE))
        writes = re.compile(rf"torch\.ops\.(aten\.copy_\.|(?!({spaces})\.))")
        lines = enumerate(gm.code.split("\n"), 1)
        graph_call = GraphCall(gm)
        graph_call.__globals__[WRITES_FROM] = next((n for n, line in lines if writes.search(line)), NEVER)

        results = gm.graph.output_node().args[0]
        promised = [
            node.meta["val"].dtype if isinstance(node, torch.fx.Node) and _is_tensor(node) else None
            for node in (results if isinstance(results, (tuple, list)) else (results,))
        ]

        def call(*inputs: Any) -> Sequence[Any]:
            grad = torch.is_grad_enabled()
            try:
                torch._C._set_grad_enabled(False)  # the C function, in the block: no handler of a signal comes between
                made = graph_call(*inputs)
            finally:
                torch._C._set_grad_enabled(grad)
            found = made if isinstance(made, (tuple, list)) else (made,)
            # A kernel may know better than its metadata (statistics of a layer norm in bfloat16); what reads them is compiled.
            pairs = zip(found, promised, strict=True)
            return tuple([t if dtype is None or t.dtype == dtype else t.to(dtype) for t, dtype in pairs])

        return graph(call, reason_not_recordable=not_recordable)


def _is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


_NODES_A_PROCESS = 10
"""Nodes of a graph for which one more process compiles: they become a few kernels."""


@functools.cache  # once a process for each cause, however many graphs meet it
def _warn(detail: str) -> None:
    warn_user(f"{NO_COMPILER.id}: {NO_COMPILER.headline}: {detail}. {NO_COMPILER.explanation}", UserWarning)


def _by_device(kernels: Sequence[LoopKernel]) -> dict[str, list[LoopKernel]]:
    groups: dict[str, list[LoopKernel]] = {}
    for kernel in kernels:
        groups.setdefault(kernel.device.type, []).append(kernel)
    return groups


def _single_device(gm: torch.fx.GraphModule) -> torch.device | None:
    devices = {
        v.device
        for node in gm.graph.nodes
        for v in (node.meta.get("val"),)
        if isinstance(v, torch.Tensor) and not (v.device.type == "cpu" and v.dim() == 0)
    }
    return devices.pop() if len(devices) == 1 else None


def _mutated_inputs(gm: torch.fx.GraphModule) -> frozenset[int]:
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    return frozenset(
        placeholders.index(n.args[0])
        for n in gm.graph.nodes
        if n.op == "call_function" and n.target is torch.ops.aten.copy_.default and n.args[0] in placeholders
    )


def _hints(gm: torch.fx.GraphModule, program: Program) -> dict[Symbol, int]:
    """A typical value for each size symbol: what its placeholder was traced with."""
    known = _hints_of_inputs(gm.graph)
    hints = {symbol: known.get(symbol, TYPICAL) for symbol in program.symbol_sources}
    for symbol in program.run_symbols:
        most = symbol.bounds.upper
        hints[symbol] = max(symbol.bounds.lower or 0, TYPICAL if most is None else min(most, TYPICAL))
    return hints


def _hints_of_inputs(graph: torch.fx.Graph) -> dict[Symbol, int]:
    """A typical value for each symbol that is a size or stride of an input."""
    hints: dict[Symbol, int] = {}
    for val in (n.meta.get("val") for n in graph.nodes if n.op == "placeholder"):
        for size in (*val.shape, *val.stride()) if isinstance(val, torch.Tensor) else (val,):
            symbol = expression(size).as_symbol if isinstance(size, torch.SymInt) else None
            hint = getattr(getattr(size, "node", None), "hint", None)
            if symbol is not None and isinstance(hint, int):
                hints.setdefault(symbol, hint)
    return hints


def _calls(program: Program, device: torch.device | None) -> int | None:
    """See `CompiledGraph.calls`."""
    if device is None or device.type != "cpu" or program.constants:
        return None
    plain = all(
        isinstance(s, ExternStep) and isinstance(s.op, torch._ops.OpOverload) and s.op.namespace == "aten" and not s.mutates
        for s in program.steps
    )  # fmt: skip
    return len(program.steps) if plain else None


def _not_recordable(program: Program, device: torch.device | None) -> str | None:
    if device is None or device.type != "cuda":
        return "not on one CUDA device"
    if program.run_symbols or any(isinstance(s, ExternStep) and s.number for s in program.steps):
        return "it reads numbers out of tensors"
    for step in program.steps:
        if isinstance(step, ExternStep) and torch.Tag.cudagraph_unsafe in getattr(step.op, "tags", ()):
            return f"{step.op} says that no CUDA graph may hold it"
    return None


def _waits(gm: torch.fx.GraphModule, device: torch.device | None) -> str | None:
    """Why a CUDA graph cannot record the graph's operators called one by one; None when it can."""
    if device is None or device.type != "cuda":
        return "not on one CUDA device"
    for node in gm.graph.nodes:
        if reads_data(node.target):
            return f"{node.target} reads from the device"
        if torch.Tag.cudagraph_unsafe in getattr(node.target, "tags", ()):
            return f"{node.target} says that no CUDA graph may hold it"
    return None


def _tell(refusal: Refusal) -> None:
    events.emit("not_fused", **attrs.asdict(refusal))


def _step_fields(step: Step) -> dict[str, Any]:
    """A step for people: what it is, which nodes of the graph it computes, what it reads and writes."""
    kernel = step.kernel if isinstance(step, KernelStep) else None
    origins = (step.origin,) if isinstance(step, ExternStep) else kernel.origins if kernel else ()
    return {
        "name": kernel.name if kernel else str(getattr(step, "op", step)),
        "generated": kernel is not None,
        "nodes": [origin.node for origin in origins],
        "reads": list(step.reads),
        "writes": list(step.writes),
    }
