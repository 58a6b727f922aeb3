"""Walk an fx graph and lower every node; what has no lowering becomes a call of aten."""

from __future__ import annotations

import operator
from collections.abc import Callable, Set
from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_core.events import raised_by_listener
from torchjit_core.expr import Expr, Symbol
from torchjit_core.failures import degraded
from torchjit_core.reasons import reason
from torchjit_inductor.attention.call import AttentionChoice
from torchjit_inductor.attention.few_queries import FUSED_ATTENTION
from torchjit_inductor.codegen_protocol import CompilerMissing
from torchjit_inductor.folding import fold_constants
from torchjit_inductor.ir.dtypes import KERNEL_DTYPES
from torchjit_inductor.ir.values import RunNumber

# The tables fill as their modules are imported.
from torchjit_inductor.joint_layouts import ZERO_PADDED
from torchjit_inductor.layouts import channels_last_strides
from torchjit_inductor.lowering import (  # noqa: F401
    convolutions,
    creation,
    gather,
    norms,
    pointwise,
    pooling,
    reductions,
    running,
    scatter,
    sort,
    views,
)
from torchjit_inductor.lowering.attending import attended, attended_by_few
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.contractions import ProductChoice, tile_product
from torchjit_inductor.lowering.graph_inputs import GraphInputs, reserve_symbols
from torchjit_inductor.lowering.graph_nodes import (
    as_positional,
    has_number,
    is_computable,
    is_test,
    is_usable,
    origin_of,
    origins_of,
    picked_result,
    places_behind,
    read_by_operators,
    read_whole,
    returned_and_read,
    tensors_in,
    updates_input,
    with_memory_of_its_own,
    written_in_place,
)
from torchjit_inductor.lowering.graph_outputs import GraphOutputs
from torchjit_inductor.lowering.known_sizes import GraphNotSupported, KnownSizes
from torchjit_inductor.lowering.moved import moved_rows
from torchjit_inductor.lowering.placement import as_traced, from_storage, placed, zero_padded
from torchjit_inductor.lowering.places import settled
from torchjit_inductor.lowering.products import small_product, vector_product
from torchjit_inductor.lowering.promotion import rounded
from torchjit_inductor.lowering.registry import Lowering, find_lowering
from torchjit_inductor.lowering.run_numbers import READ, TEST, names_in, new_sizes, reads_data
from torchjit_inductor.lowering.sizes import NotLowered, expression, meta_of
from torchjit_inductor.lowering.tensors import Lazy, Lowered, Metas, Point, Strided, TensorMeta
from torchjit_inductor.memory_readers import reads_memory
from torchjit_inductor.steps import ExternStep, HostNumber, Program, Step
from torchjit_torch.graph_calls import attribute_of
from torchjit_torch.operators import is_mutable

__all__ = ["lower_graph"]

DATA_DEPENDENT = reason(
    "TJ-IND-002",
    "a graph with a value that the host program cannot hold",
    "The host program holds tensors, integers and floats, among them numbers read out of tensors and sizes that depend on "
    "data. A graph with other values, for example a truth value read out of a tensor, runs op by op instead.",
)

BROKEN_LOWERING = reason(
    "TJ-IND-006",
    "a lowering failed",
    "This is a bug in torchjit_inductor. The op is called through aten instead; the rest of the graph is compiled.",
    "Report it with the graph (TORCHJIT_LOGS=aot_graphs).",
)


_NUMBERS = (bool, int, float, torch.SymBool, torch.SymInt, torch.SymFloat)


def lower_graph(
    gm: torch.fx.GraphModule,
    name: str,
    channels_last: Set[torch.fx.Node] = frozenset(),
    *,
    rounds_each: bool = False,
    products: ProductChoice | None = None,
    attention: AttentionChoice | None = None,
) -> Program:
    """Lower a functional ATen graph.

    Args:
        channels_last: nodes whose result, if it is stored, is stored with the channels innermost.
        rounds_each: each result of a 16-bit type is rounded to it, as in memory, also inside a kernel.
        products: whether a product of matrices becomes a kernel; None: it is left to aten.
        attention: see `AttentionChoice`.

    Raises:
        GraphNotSupported: it has values that are neither tensors nor integers that follow from the inputs.
    """
    try:
        return _GraphLowering(gm, name, channels_last, rounds_each, products, attention).run()
    except NotLowered as refusal:
        # Of the whole graph, or a formula that was only evaluated later.
        raise GraphNotSupported(str(refusal)) from None


def _before_writes(step: Step, written: Set[str]) -> Step:
    """A call without results tests something: it reads, so to speak, the inputs that the graph writes, so that no write moves ahead
    of it. Where it raises, plain Python may run in place of the graph."""
    if not isinstance(step, ExternStep) or not is_test(step.op):
        return step
    return attrs.evolve(step, reads=tuple(dict.fromkeys((*step.reads, *sorted(written)))))


@final
@attrs.frozen(eq=False)
class _Call:
    """A call of an operator.

    Attributes:
        node: of the graph.
        args, kwargs: as they were lowered, positional where they can be.
        metas: of the results.
    """

    node: torch.fx.Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    metas: Metas

    @property
    def is_computable(self) -> bool:
        """Have all operands and results types that kernels compute with?"""
        results = self.metas if isinstance(self.metas, tuple) else (self.metas,)
        dtypes = {t.dtype for t in tensors_in((self.args, self.kwargs))} | {m.dtype for m in results if m is not None}
        return dtypes <= KERNEL_DTYPES


@final
class _GraphLowering:
    def __init__(
        self,
        gm: torch.fx.GraphModule,
        name: str,
        channels_last: Set[torch.fx.Node],
        rounds_each: bool,
        products: ProductChoice | None,
        attention: AttentionChoice | None,
    ) -> None:
        self.gm, self.name, self.channels_last, self.rounds_each = gm, name, channels_last, rounds_each
        self.products, self.attention = products, attention
        self.builder = Builder()
        self.env: dict[torch.fx.Node, Any] = {}
        self.sizes = KnownSizes()
        self.inputs = GraphInputs(self.builder, self.sizes)
        self.outputs = GraphOutputs(self.builder, self.env)
        self.constants: dict[str, torch.Tensor] = {}
        self.numbers: dict[tuple[HostNumber, torch.device], RunNumber] = {}
        self.in_place = written_in_place(gm.graph)

    def run(self) -> Program:
        outputs: tuple[Any, ...] = ()
        reserve_symbols(self.builder, self.gm.graph)
        folded = fold_constants(self.gm)
        for node in self.gm.graph.nodes:
            self.builder.origin = origin_of(node)
            if node in folded.values:
                self._hold(node, folded.values[node])
                self.outputs.folded.add(self.env[node].buffer)
            elif node in folded.unused:
                continue
            elif node.op == "placeholder":
                self.env[node] = self.inputs.take(node)
            elif node.op == "get_attr":
                self._constant(node)
            elif node.op == "call_function":
                self.env[node] = self._call(node)
            elif node.op == "output":
                outputs = self.outputs.results(node)
            else:
                raise GraphNotSupported(f"node kind {node.op}")
        self.inputs.check()
        b, updated = self.builder, [node for node, _ in self.outputs.updates]
        mutated = frozenset(map(self.inputs.position, updated))
        written = {self.env[node].buffer for node in updated}
        steps = tuple(_before_writes(step, written) for step in b.steps) if written else tuple(b.steps)
        return Program(
            self.name, self.inputs.of_program(), b.buffers, steps, outputs, mutated, self.sizes.sources, self.constants,
            tuple(self.sizes.found), b.products,
        )  # fmt: skip

    # ------------------------------------------------------------------ constants
    def _constant(self, node: torch.fx.Node) -> None:
        held = attribute_of(self.gm, node)
        if not isinstance(held, torch.Tensor):
            raise GraphNotSupported(f"attribute {node.target} is a {type(held).__name__}")
        self._hold(node, held)

    def _hold(self, node: torch.fx.Node, held: torch.Tensor) -> None:
        place = self.builder.buffer(node.name, meta_of(held))
        self.constants[place.buffer] = held
        self.env[node] = place

    # ------------------------------------------------------------------ calls
    def _call(self, node: torch.fx.Node) -> Any:
        with_memory_of_its_own(node)
        special = _SPECIAL.get(node.target)
        return self._operator(node) if special is None else special(self, node)

    def _operator(self, node: torch.fx.Node) -> Any:
        val = node.meta.get("val")
        if isinstance(val, _NUMBERS):
            return self._number(node, val)
        if any(isinstance(n.meta.get("val"), (bool, torch.SymBool)) for n in node.all_input_nodes):
            raise GraphNotSupported(f"{node.name} computes with a truth value of the run")
        args, kwargs = self._operands(node)
        if self.sizes.found or reads_data(node.target):
            sizes = new_sizes(val, self.sizes.symbols)
            if sizes:
                return self._depends_on_data(node, args, kwargs, sizes)
        call = _Call(node, args, kwargs, self.sizes.metas(val))
        made: Any = next((result for way in _WAYS if (result := way(self, call)) is not None), None)
        if isinstance(made, tuple):
            return made
        if node.target is torch.ops.aten.new_empty.default:
            self.builder.own.add(made.buffer)
        return self._settle(node, made)

    def _picked(self, node: torch.fx.Node) -> Any:
        source, key = node.args
        return self._settle(node, self._argument(source)[key])

    def _number(self, node: torch.fx.Node, val: object) -> Expr | HostNumber:
        """A node whose value is no tensor."""
        if isinstance(val, (torch.SymInt, int)) and not isinstance(val, bool):
            return self.sizes.known(val, node)
        # The value of a comparison that a test settles is True while tracing; the test still has to make it.
        if isinstance(node.target, torch._ops.OpOverload) or isinstance(val, float):
            raise GraphNotSupported(f"{node.name} is a {type(val).__name__}")
        # Python arithmetic on numbers: the host program does it as Python does.
        self.builder.reserve(node.name)
        return HostNumber(node.name, node.target, tuple(self._argument(a) for a in node.args))

    def _operands(self, node: torch.fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What an operator gets, positional, in memory where it looks at memory."""
        args, kwargs = as_positional(node.target, self._argument(node.args), self._argument(node.kwargs))
        if node.target is torch.ops.aten.as_strided.default:
            args = from_storage(self.builder, node, args, self.env)
        elif reads_memory(node.target) and not is_mutable(node.target):
            args = (*as_traced(self.builder, node.args, args, meta_of), *args[len(node.args) :])
        return args, kwargs

    def _zero_padded(self, call: _Call) -> Lowered | None:
        if not call.node.meta.get(ZERO_PADDED) or not isinstance(call.metas, TensorMeta):
            return None
        if call.args[0].dtype not in KERNEL_DTYPES:
            return None
        return zero_padded(self.builder, call.args[0], call.metas)

    def _product(self, call: _Call) -> Lowered | None:
        """A product of matrices that is no call of a library."""
        if call.kwargs:
            return None
        op = call.node.target
        small = small_product(self.builder, op, call.args, call.metas)
        if small is not None:
            return rounded(small) if self.rounds_each else small
        made = vector_product(self.builder, op, call.args, call.metas)
        if made is None and self.products is not None:
            made = tile_product(self.builder, op, call.args, call.metas, self.products)
        return made

    def _moved(self, call: _Call) -> Lowered | None:
        """Rows that are stored where they end."""
        if not call.is_computable:
            return None
        return moved_rows(self.builder, call.node, self.env, call.metas)

    def _attention(self, call: _Call) -> Any:
        """The results of a call of attention that has kernels, or None."""
        return attended(self.builder, call.node, call.args, call.metas, self.attention)

    def _few_queries(self, node: torch.fx.Node) -> Any:
        """Attention over many keys by kernels of ours, or by the operator that it is."""
        made = attended_by_few(self.builder, node, self.env, self.attention)
        return self._operator(node) if made is None else made

    # ------------------------------------------------------------------ numbers that only the run knows
    def _read(self, node: torch.fx.Node) -> Any:
        """A number read out of a tensor becomes a variable of the host program."""
        val = node.meta.get("val")
        made: Any
        if isinstance(val, torch.SymFloat):
            self.builder.reserve(node.name)
            name, made = node.name, HostNumber(node.name)
        else:
            made = expression(val) if isinstance(val, torch.SymInt) else None
            symbol = None if made is None else made.as_symbol
            if symbol is None or symbol in self.sizes.symbols:
                raise GraphNotSupported(f"{node.name} is a {type(val).__name__}")
            name = symbol.name
            self.sizes.found[symbol] = None
        self.builder.extern(READ, (self._argument(node.args[0]),), {}, None)
        self.builder.amend(number=name)
        return made

    def _test(self, node: torch.fx.Node) -> None:
        """The program or an operation relies on something about such numbers."""
        args = self._argument(node.args)
        if args[0] is not True:
            self.builder.extern(TEST, args, {}, None)
            self.builder.amend(tested=names_in(args[0]))

    def _depends_on_data(
        self, node: torch.fx.Node, args: Any, kwargs: dict[str, Any], found: list[tuple[Symbol, int, int]]
    ) -> Any:
        """An aten call with a result whose size only the run knows: the size is read off the result."""
        self.sizes.found.update(dict.fromkeys(symbol for symbol, _, _ in found))
        made = self.builder.extern(node.target, args, kwargs, self.sizes.metas(node.meta["val"]))
        results = made if isinstance(made, tuple) else (made,)
        self.builder.amend(sizes=tuple((symbol.name, results[k].buffer, dim) for symbol, k, dim in found))
        return made

    def _lowered(self, call: _Call) -> Any:
        """The result of the lowering, or None."""
        lower = find_lowering(call.node.target)
        if lower is None or call.metas is None or call.metas == ():
            return None
        args, kwargs = self._arguments_of_lowering(call)
        tensors, before = tensors_in((args, kwargs)), self.builder.savepoint()
        self.builder.operand_origins = origins_of(tensors)
        self.builder.in_place = call.node in self.in_place
        made = self._formula(call, lower, args, kwargs)
        if made is not None and not (
            is_usable(call.node.target, made, tensors, call.metas)
            and is_computable(self.builder.steps[before[0] :], self.builder.buffers)
        ):
            made = None
        if made is None:
            # Operands that a lowering stored before it gave up may stay.
            self.builder.back_to(before, tensors)
        else:
            made = tuple(map(self._finished, made)) if isinstance(made, tuple) else self._finished(made)
        self.builder.operand_origins = ()
        return made

    def _arguments_of_lowering(self, call: _Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        places = places_behind(call.node)
        args = settled(call.node, call.args) if places is None else (*call.args[:7], self._argument(places))
        if not has_number((args, call.kwargs)):
            return args, call.kwargs
        metas = call.metas if isinstance(call.metas, tuple) else (call.metas,)
        device = next(m.device for m in metas if m is not None)
        return self._as_operands(args, device), self._as_operands(call.kwargs, device)

    def _formula(self, call: _Call, lower: Lowering, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the lowering makes; None where it gives up, or is broken."""
        try:
            made = lower(self.builder, call.metas, *args, **kwargs)
            for result in made if isinstance(made, tuple) else (made,):
                if isinstance(result, Lazy) and result.dtype in KERNEL_DTYPES:
                    # A formula that cannot be evaluated shows now, when there is still aten.
                    self.builder.cost(result)
        except NotLowered:
            return None
        except (GraphNotSupported, CompilerMissing):
            raise
        except Exception as error:  # a bug in one lowering must not cost the graph
            if raised_by_listener(error) or isinstance(error, MemoryError | torch.OutOfMemoryError):
                raise
            # A formula that wants a number's value now is no bug: aten gets the number when it runs. Nor is one that fails on complex
            # numbers: views and copies of them are lowered, and what computes with them finds out.
            if not has_number((args, kwargs)) and call.is_computable:
                degraded(BROKEN_LOWERING, f"{call.node.target}: {error!r}", error, repeats=True)
            return None
        return made

    def _finished(self, made: Lowered) -> Lowered:
        """A result of a lowering, rounded where every one is, and with the nodes that it computes."""
        if self.rounds_each:
            made = rounded(made)
        if isinstance(made, Lazy) and not made.origins:
            made.origins = self.builder.all_origins()
        return made

    def _as_operands(self, tree: Any, device: torch.device) -> Any:
        """With floats of the run as operands of formulas: kernels load them from memory."""
        if isinstance(tree, HostNumber):
            key = (tree, device)
            if key not in self.numbers:
                meta = TensorMeta((), (), torch.float64, device)
                options = {"dtype": torch.float64, "device": device}
                place = self.builder.extern(torch.ops.aten.full.default, ([], tree), options, meta)
                self.numbers[key] = RunNumber(tree, place.value(Point(())))
            return self.numbers[key]
        if isinstance(tree, (tuple, list)):
            return type(tree)(self._as_operands(item, device) for item in tree)
        if isinstance(tree, dict):
            return {key: self._as_operands(item, device) for key, item in tree.items()}
        return tree

    def _extern(self, call: _Call) -> Any:
        """A call of aten."""
        node, args, metas = call.node, call.args, call.metas
        if metas is None and getattr(node.target, "_schema", None) is not None and node.users:
            raise GraphNotSupported(f"result of {node.target}")
        args, metas = placed(self.builder, node, args, call.kwargs, metas, self.channels_last, self.sizes.metas)
        made = self.builder.extern(node.target, args, call.kwargs, metas)
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor) and val.is_neg() and val.dtype in KERNEL_DTYPES:
            # Real numbers of lazily negated complex ones: kernels do not see the bit that aten sets.
            return self.builder.extern(torch.ops.aten.resolve_neg.default, (made,), {}, call.metas)
        return made

    def _settle(self, node: torch.fx.Node, made: Any) -> Any:
        if isinstance(made, Lazy):
            meta = meta_of(node.meta["val"])
            if node in self.channels_last and len(meta.sizes) == 4:
                meta = attrs.evolve(meta, strides=channels_last_strides(meta.sizes))
            if made.layout is None:
                made.layout = meta.strides
            if made.device.type == "cuda" and made.dtype in KERNEL_DTYPES and updates_input(node):
                # Here, beside what it is computed from, rather than at the end where the input is written.
                return self.builder.materialize(made, meta.strides)
            if made.device.type == "cuda" and made.dtype in KERNEL_DTYPES and read_by_operators(node) > 1:
                # Once, in one layout, rather than as an operand of each of them.
                return self.builder.materialize(made, meta.strides)
            if made.dtype in KERNEL_DTYPES and (picked_result(node) or returned_and_read(node)):
                # It will be stored anyway: who picks elements of it need not have its operands stored for that, nor an operator a view of it.
                return self.builder.materialize(made, meta.strides)
            return self.builder.settled(made, meta, read_whole(node))
        return made

    def _update(self, node: torch.fx.Node) -> Strided:
        return self.outputs.update(node.args[0], self._argument(node.args[1]))

    # ------------------------------------------------------------------ arguments
    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, torch.fx.Node):
            if arg not in self.env:
                raise GraphNotSupported(f"{arg.name} is a {type(arg.meta.get('val')).__name__}")
            return self.env[arg]
        if isinstance(arg, (tuple, list)):
            return tuple(self._argument(a) for a in arg) if isinstance(arg, tuple) else [self._argument(a) for a in arg]
        if isinstance(arg, dict):
            return {k: self._argument(v) for k, v in arg.items()}
        if isinstance(arg, slice):
            raise GraphNotSupported("a slice argument")
        return arg


_SPECIAL: dict[object, Callable[[_GraphLowering, torch.fx.Node], Any]] = {
    operator.getitem: _GraphLowering._picked,
    torch.ops.aten.copy_.default: _GraphLowering._update,
    READ: _GraphLowering._read,
    TEST: _GraphLowering._test,
    **dict.fromkeys(FUSED_ATTENTION, _GraphLowering._few_queries),
}
"""Calls that are no operators of tensors to the program, or whose operands need not all be there."""
_WAYS: tuple[Callable[[_GraphLowering, _Call], Any], ...] = (
    _GraphLowering._zero_padded,
    _GraphLowering._attention,
    _GraphLowering._moved,
    _GraphLowering._lowered,
    _GraphLowering._product,
    _GraphLowering._extern,
)
"""How an operator becomes part of the program, the better way first."""
