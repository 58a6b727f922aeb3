"""A graph in pieces: what CUDA graphs can hold, and what runs beside them.

A copy from the CPU, an operator that waits for the device or a result whose size depends on data would keep a whole graph
from being captured. `split` orders the calls anew, within what they depend on, so that few pieces arise, and `Chain` runs the
pieces one after the other. Who compiles and records them is the caller's to choose.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeAlias, final

import attrs
import torch
import torch.fx

from torchjit_core.events import emit_fallback
from torchjit_core.reasons import reason
from torchjit_cudagraphs.recordable import run_compiled
from torchjit_torch.graph_calls import attribute_of
from torchjit_torch.operators import aliases_operand, draws, is_mutable

__all__ = ["Chain", "Piece", "Split", "lies_in_input", "line_of", "split", "why_outside"]

__torchjit_writes_from__ = 0
"""An error that comes through here says nothing about what other pieces, or copies of inputs, have written: `torchjit_core.writing`."""

IN_PIECES = reason(
    "TJ-CG-012",
    "a part of the graph runs outside of its CUDA graphs",
    "CUDA graphs hold the work of one CUDA device that needs nothing from the host. What comes before and after such a part is "
    "captured in pieces of its own.",
    "The detail names each operation with its line and why. Keep tensors on the CUDA device, and read numbers (`.item()`, "
    "`.cpu()`) after the compiled region.",
)

SMALLEST = 3
"""A piece of fewer kernels is not worth a CUDA graph: its replay costs the host as much as a few launches."""
_NUMBERS_READ = frozenset([torch.ops.aten._local_scalar_dense.default, torch.ops.aten._assert_scalar.default])
_INDEXED = frozenset([torch.ops.aten.index.Tensor, torch.ops.aten._unsafe_index.Tensor])
"""Results of these have the sizes of the positions; a mask is turned into positions first."""
_MASKS = (torch.bool, torch.uint8)
_BRANCHES = frozenset(["cond", "while_loop", "scan", "associative_scan"])
_TAGS = {
    torch.Tag.data_dependent_output: "it reads a value back from the device",
    torch.Tag.dynamic_output_shape: "its result's size depends on data",
    torch.Tag.cudagraph_unsafe: "it says that no CUDA graph may hold it",
}

Outside: TypeAlias = Callable[[torch.fx.Node], str | None]


@final
@attrs.frozen(eq=False)
class Piece:
    """A part of a graph.

    Attributes:
        gm: the part as a graph of its own.
        inputs: the values of the whole graph that it takes, in the order of its placeholders.
        outputs: the values that it makes for later pieces and for the result.
        captured: can a CUDA graph hold it?
    """

    gm: torch.fx.GraphModule
    inputs: tuple[torch.fx.Node, ...]
    outputs: tuple[torch.fx.Node, ...]
    captured: bool


@final
@attrs.frozen(eq=False)
class Split:
    """A graph's pieces, in the order in which they run.

    Attributes:
        pieces: one after the other.
        inputs: the graph's placeholders.
        outputs: what the graph returns: nodes and constants.
        outside: the calls that no CUDA graph holds, each with the reason.
    """

    pieces: tuple[Piece, ...]
    inputs: tuple[torch.fx.Node, ...]
    outputs: tuple[Any, ...]
    outside: Mapping[torch.fx.Node, str]


def why_outside(node: torch.fx.Node, device_type: str = "cuda") -> str | None:
    """Why no CUDA graph can hold a call of a graph with `meta["val"]`, or None if one can."""
    return _why_tagged(node) or _why_on_host(node) or _why_not_on(node, device_type) or _why_data_dependent(node)


def _why_tagged(node: torch.fx.Node) -> str | None:
    """What the operator says of itself; an index by positions has a size that depends on no data."""
    tags = set(getattr(node.target, "tags", ()))
    if node.target in _INDEXED and not any(t.dtype in _MASKS for t in _indices(node)):
        tags.discard(torch.Tag.dynamic_output_shape)
    return next((why for tag, why in _TAGS.items() if tag in tags), None)


def _indices(node: torch.fx.Node) -> list[torch.Tensor]:
    given: Any = node.args[1]
    return [t for n in given if isinstance(n, torch.fx.Node) for t in _tensors(n)]


def _why_on_host(node: torch.fx.Node) -> str | None:
    if node.target in _NUMBERS_READ:
        return "the host tests a number"
    if isinstance(node.target, torch._ops.HigherOrderOperator) and str(node.target) in _BRANCHES:
        return "the host decides how it goes on"
    return None


def _why_not_on(node: torch.fx.Node, device_type: str) -> str | None:
    devices = {t.device for t in _touched(node)}
    if len(devices) > 1:
        return f"it works on {' and '.join(sorted(map(str, devices)))}"
    return next((f"it works on {d}" for d in devices if d.type != device_type), None)


def _why_data_dependent(node: torch.fx.Node) -> str | None:
    values = (source.meta.get("val") for source in node.all_input_nodes)
    numbers = [value for value in values if isinstance(value, (torch.SymInt, torch.SymFloat))]
    # Imported here: it imports sympy, which a first call without graphs and symbols need not wait for.
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols  # noqa: PLC0415

    if any(free_unbacked_symbols(v) for v in (*_touched(node), *numbers)):
        return "a number or a size that it takes depends on data"
    return None


def _touched(node: torch.fx.Node) -> list[torch.Tensor]:
    """The tensors that a call makes and reads."""
    sources = (source for source in node.all_input_nodes if not _is_number(source, node))
    return [*_tensors(node), *(t for source in sources for t in _tensors(source))]


def _is_number(source: torch.fx.Node, user: torch.fx.Node) -> bool:
    """Is a tensor of the CPU as good as a number, because its value never changes and a kernel takes it by value?"""
    val = source.meta.get("val")
    if source.op != "get_attr" or not isinstance(val, torch.Tensor) or val.dim() != 0 or val.device.type != "cpu":
        return False
    return torch.Tag.pointwise in getattr(user.target, "tags", ())


def split(gm: torch.fx.GraphModule, outside: Outside = why_outside, *, smallest: int = SMALLEST) -> Split | None:
    """Cut a functional graph (mutation only as trailing `copy_` into placeholders) into pieces.

    Args:
        gm: with `meta["val"]` on every node.
        outside: why a call cannot be captured, or None.
        smallest: pieces of fewer kernels are not captured.

    Returns:
        The pieces; None when all calls can be captured together, or none is worth it.
    """
    reasons = {n: why for n in _calls(gm.graph) if not _is_neutral(n) for why in (outside(n),) if why is not None}
    inputs = tuple(n for n in gm.graph.nodes if n.op == "placeholder")
    devices = _devices(_calls(gm.graph))
    if not reasons and len(devices) <= 1 and not any(t.device not in devices for n in inputs for t in _tensors(n)):
        return None
    needs = _dependencies(gm.graph)
    groups = _large_groups(gm.graph, needs, set(reasons), smallest)
    if all(where is None for where, _ in groups):
        return None
    groups = _later(groups, needs, smallest)
    result: Any = gm.graph.output_node().args[0]
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    pieces = _pieces(gm, groups, {o for o in outputs if isinstance(o, torch.fx.Node)})
    return Split(pieces, inputs, outputs, reasons)


def _large_groups(
    graph: torch.fx.Graph, needs: Mapping[torch.fx.Node, Set[torch.fx.Node]], outside: Set[torch.fx.Node], smallest: int
) -> list[_Group]:
    """The groups; calls of those that would be too small for a CUDA graph run outside."""
    beside = set(outside)
    while True:
        groups = _Turns(graph, needs, beside).groups()
        small = {n for where, nodes in groups if where is not None and _kernels(nodes) < smallest for n in nodes}
        small = {n for n in small if not _is_neutral(n)}
        if not small:
            return groups
        beside |= small


# ------------------------------------------------------------------------------------------------ what a node is
def _calls(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    return (n for n in graph.nodes if n.op == "call_function")


def _tensors(node: torch.fx.Node) -> list[torch.Tensor]:
    val = node.meta.get("val")
    return [v for v in (val if isinstance(val, (tuple, list)) else (val,)) if isinstance(v, torch.Tensor)]


def _is_neutral(node: torch.fx.Node) -> bool:
    """Arithmetic on sizes, which may go anywhere, and parts of a result, which go where that goes."""
    if not isinstance(node.target, torch._ops.OpOverload):
        numbers = not _tensors(node) and not isinstance(node.target, torch._ops.HigherOrderOperator)
        return numbers or node.target is operator.getitem
    return (
        not _tensors(node)
        and node.target not in _NUMBERS_READ
        and isinstance(node.meta.get("val"), (int, torch.SymInt))
    )


def _is_part(node: torch.fx.Node) -> bool:
    """Is the node an element of the tuple that its source is?"""
    if not _is_neutral(node) or not node.all_input_nodes:
        return False
    return isinstance(node.all_input_nodes[0].meta.get("val"), (tuple, list))


def _devices(nodes: Iterable[torch.fx.Node]) -> dict[torch.device, None]:
    """Where calls make tensors, in their order."""
    return {t.device: None for n in nodes for t in _tensors(n)}


def _aliases(node: torch.fx.Node) -> bool:
    """May a result share memory with an operand?"""
    return aliases_operand(node.target)


def lies_in_input(node: torch.fx.Node) -> bool:
    """Is the node's value an input of the graph, or a view of one?"""
    return _base(node).op == "placeholder"


def _kernels(nodes: Sequence[torch.fx.Node]) -> int:
    return sum(not _is_neutral(n) and not _aliases(n) for n in nodes)


def line_of(node: torch.fx.Node) -> str:
    """The line of the user's program that a node comes from, or ""."""
    location = node.meta.get("location")
    if location is not None:
        return f"{location} | {location.line().strip()}"
    trace = node.meta.get("stack_trace")
    return " | ".join(line.strip() for line in trace.strip().splitlines()[-2:]) if trace else ""


# ------------------------------------------------------------------------------------------------ the order of calls
def _dependencies(graph: torch.fx.Graph) -> dict[torch.fx.Node, set[torch.fx.Node]]:
    """For each call, those that have to come before: what it reads; the readers of an input that it writes; the random
    numbers and effects before its own."""
    needs = {n: {m for m in n.all_input_nodes if m.op == "call_function"} for n in _calls(graph)}
    before: torch.fx.Node | None = None
    for node in _calls(graph):
        if node.target is torch.ops.aten.copy_.default:
            needs[node] |= _readers(node.args[0])
        elif draws(node.target) or node.is_impure():
            if before is not None:
                needs[node].add(before)
            before = node
    return needs


def _readers(source: Any) -> set[torch.fx.Node]:
    """The calls that read a placeholder's memory, through views too, and do not write to it."""
    found: set[torch.fx.Node] = set()
    stack = [source]
    while stack:
        for user in stack.pop().users:
            writes = user.target is torch.ops.aten.copy_.default and user.args[0] is source
            if user.op == "call_function" and user not in found and not writes:
                found.add(user)
                if user.target is not torch.ops.aten.copy_.default and (_is_part(user) or _aliases(user)):
                    stack.append(user)
    return found


_Group: TypeAlias = tuple[torch.device | None, list[torch.fx.Node]]
"""Calls, and the device whose CUDA graph holds them; None if none does."""


@final
class _Turns:
    """Puts all calls in groups, those outside and those of each device taking turns; as many calls as possible in each.

    Args:
        graph: its calls.
        needs: for each call, those that have to come before.
        beside: the calls outside.
    """

    def __init__(
        self, graph: torch.fx.Graph, needs: Mapping[torch.fx.Node, Set[torch.fx.Node]], beside: Set[torch.fx.Node]
    ) -> None:
        self._needs, self._beside = needs, beside
        self._left = list(_calls(graph))
        self._done: set[torch.fx.Node] = set()

    def groups(self) -> list[_Group]:
        """The groups. Empty where updates of inputs need one another's old values."""
        kinds = list(dict.fromkeys([None, *(_place(n, self._beside) for n in self._left if not _is_neutral(n))]))
        groups: list[_Group] = []
        turn, idle = 0, 0
        while self._left:
            where = kinds[turn % len(kinds)]
            turn += 1
            taken = self._take(where)
            if idle >= len(kinds) and not taken:
                return []
            if idle < len(kinds) and len(taken) < len(self._left) and all(map(_is_neutral, taken)):
                self._done.difference_update(taken)  # sizes are computed where they are needed
                idle += 1
                continue
            idle = 0
            members = set(taken)
            self._left = [n for n in self._left if n not in members]
            groups.append((where, taken))
        return groups

    def _take(self, where: torch.device | None) -> list[torch.fx.Node]:
        """The calls that may come now, in this kind of group."""
        taken: list[torch.fx.Node] = []
        for node in self._left:
            if self._fits(node, where, taken) and all(n in self._done for n in self._needs[node]):
                taken.append(node)
                self._done.add(node)
        return taken

    def _fits(self, node: torch.fx.Node, where: torch.device | None, taken: Sequence[torch.fx.Node]) -> bool:
        if _is_part(node):  # goes where its whole goes
            return node.all_input_nodes[0] not in self._done or node.all_input_nodes[0] in taken
        return _is_neutral(node) or _place(node, self._beside) == where


def _place(node: torch.fx.Node, beside: Set[torch.fx.Node]) -> torch.device | None:
    """The device whose CUDA graph may hold a call; None for one outside, and for one that no device does."""
    if node in beside:
        return None
    return next(iter(_devices([node, *node.all_input_nodes])), None)


def _later(groups: list[_Group], needs: Mapping[torch.fx.Node, Set[torch.fx.Node]], smallest: int) -> list[_Group]:
    """The groups, with captured calls moved on to the first captured group that takes their results, where less memory is
    held between the groups by that. Unchanged if a group would become too small."""
    places = _Places(groups, needs)
    for node in reversed([n for _, nodes in groups for n in nodes]):
        places.move_on(node)
    moved: list[_Group] = [(where, []) for where, _ in groups]
    for node in (n for n in needs if n in places.at):  # in the graph's order
        moved[places.at[node]][1].append(node)
    small = any(where is not None and _kernels(nodes) < smallest for where, nodes in moved)
    return groups if small else moved


@final
class _Places:
    """In which group each call is.

    Attributes:
        at: the number of its group.
    """

    def __init__(self, groups: Sequence[_Group], needs: Mapping[torch.fx.Node, Set[torch.fx.Node]]) -> None:
        self.at = {n: k for k, (_, nodes) in enumerate(groups) for n in nodes}
        self._devices = [where for where, _ in groups]
        self._after: dict[torch.fx.Node, set[torch.fx.Node]] = {n: set() for n in self.at}
        for node, sources in needs.items():
            for source in sources:
                self._after[source].add(node)
        self._bases = {n: _base(n) for n in self.at}
        self._readers: dict[torch.fx.Node, set[torch.fx.Node]] = {}
        for node in self.at:
            for source in node.all_input_nodes:
                self._readers.setdefault(self._bases.get(source, source), set()).add(node)

    def move_on(self, node: torch.fx.Node) -> None:
        """Move a call to the first group that takes its result, if it may go there and less is held by that."""
        goal = min((self.at[n] for n in self._after[node]), default=self.at[node])
        if self._may_go(node, goal) and sum(map(_nbytes, self._kept_longer(node, goal))) <= _nbytes(node):
            self.at[node] = goal

    def _may_go(self, node: torch.fx.Node, goal: int) -> bool:
        where = self._devices[self.at[node]]
        if where is None or goal == self.at[node] or self._devices[goal] != where:
            return False
        return not any(user.op == "output" for user in node.users) and not _stays(node)

    def _kept_longer(self, node: torch.fx.Node, goal: int) -> list[torch.fx.Node]:
        """The results that nothing takes from there on. A view holds what it is a view of anyway."""
        if self._bases[node] is not node:
            return []
        sources = {self._bases[n] for n in node.all_input_nodes if n in self._bases}
        return [
            n for n in sources if n.op == "call_function" and all(self.at[u] < goal for u in self._readers[n] - {node})
        ]


def _stays(node: torch.fx.Node) -> bool:
    """Is the node's place fixed: by what it writes or draws, by being a part, or because it has parts?"""
    if is_mutable(node.target) or node.is_impure() or _is_part(node) or len(_tensors(node)) != 1:
        return True
    return draws(node.target)


def _base(node: torch.fx.Node) -> torch.fx.Node:
    """What a view is a view of; other nodes themselves."""
    while node.op == "call_function" and node.all_input_nodes and (_is_part(node) or _aliases(node)):
        node = node.all_input_nodes[0]
    return node


def _nbytes(node: torch.fx.Node) -> int:
    """Bytes of a call's results, as far as they are known."""
    sizes = [t.numel() * t.element_size() for t in _tensors(node)]
    return sum(n for n in sizes if isinstance(n, int))


# ------------------------------------------------------------------------------------------------ graphs of their own
def _views_of(nodes: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """Views that these calls read and that others make, in an order in which they can be made: a view of a parameter is made
    where it is needed, since the result of an earlier piece has no address that stays."""
    members = set(nodes)
    found: dict[torch.fx.Node, None] = {}

    def visit(node: torch.fx.Node) -> None:
        for source in node.all_input_nodes:
            if source not in members and source not in found and _is_view(source):
                visit(source)
                found[source] = None

    for node in nodes:
        visit(node)
    return list(found)


def _is_view(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or is_mutable(node.target) or not _aliases(node):
        return False
    return len(_tensors(node)) == 1 and not isinstance(node.meta.get("val"), (tuple, list)) and lies_in_input(node)


def _pieces(gm: torch.fx.GraphModule, groups: Sequence[_Group], wanted: Set[torch.fx.Node]) -> tuple[Piece, ...]:
    order = {n: k for k, n in enumerate(gm.graph.nodes)}
    complete = [[*_views_of(nodes), *nodes] for _, nodes in groups]
    reads = [{m for n in nodes for m in n.all_input_nodes} - set(nodes) for nodes in complete]
    pieces = []
    for position, ((where, own), nodes) in enumerate(zip(groups, complete, strict=True)):
        later = {*wanted, *(n for read in reads[position + 1 :] for n in read)}
        outputs = tuple(n for n in own if n in later)
        pieces.append(_piece(gm, nodes, sorted(reads[position], key=order.__getitem__), outputs, where is not None))
    return tuple(pieces)


def _piece(
    gm: torch.fx.GraphModule,
    nodes: Sequence[torch.fx.Node],
    read: Sequence[torch.fx.Node],
    outputs: tuple[torch.fx.Node, ...],
    captured: bool,
) -> Piece:
    """These calls as a graph of their own; `read` is what they take from outside, in the graph's order."""
    inputs = tuple(n for n in read if n.op != "get_attr")
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in inputs:
        made = copies[node] = graph.create_node("placeholder", node.name, name=node.name)
        made.meta = dict(node.meta)
    for node in (*(n for n in read if n.op == "get_attr"), *nodes):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[n] for n in outputs))
    part = torch.fx.GraphModule(gm, graph)
    part.meta = dict(gm.meta)
    return Piece(part, inputs, outputs, captured)


# ------------------------------------------------------------------------------------------------ running them
@final
@attrs.frozen(eq=False)
class _Step:
    call: Any
    takes: tuple[int, ...]
    makes: tuple[int, ...]
    drops: tuple[int, ...]


@final
class Chain:
    """Runs the compiled pieces of a graph: call it with the graph's inputs, get a list of its outputs.

    Args:
        parts: the graph's pieces.
        compiled: for each piece what runs it, positionally or through an attribute `boxed` with a list that it empties.
    """

    def __init__(self, parts: Split, compiled: Sequence[Any]) -> None:
        places = {n: k for k, n in enumerate(parts.inputs)}
        for node in (n for piece in parts.pieces for n in piece.outputs):
            places[node] = len(places)
        self._size = len(places)
        self._outputs = [_place_or_constant(o, places) for o in parts.outputs]
        kept = {place for place, _ in self._outputs}
        last = {places[n]: k for k, piece in enumerate(parts.pieces) for n in (*piece.inputs, *piece.outputs)}
        self._unused = tuple(k for k in range(len(parts.inputs)) if k not in last and k not in kept)
        drops = [
            tuple(place for place, at in last.items() if at == k and place not in kept)
            for k in range(len(parts.pieces))
        ]
        self._steps = [
            _Step(
                call,
                tuple(map(places.__getitem__, piece.inputs)),
                tuple(map(places.__getitem__, piece.outputs)),
                gone,
            )
            for piece, call, gone in zip(parts.pieces, compiled, drops, strict=True)
        ]

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        return self.boxed(list(inputs))

    def boxed(self, inputs: list[Any]) -> Sequence[Any]:
        """Call with the inputs in a list, which is emptied; every value is dropped after its last use."""
        values: list[Any] = [*inputs, *[None] * (self._size - len(inputs))]
        inputs.clear()
        for place in self._unused:
            values[place] = None
        for step in self._steps:
            arguments = [values[place] for place in step.takes]
            for place in step.drops:
                values[place] = None
            results = run_compiled(step.call, arguments)
            arguments.clear()
            for place, result in zip(step.makes, results, strict=True):
                values[place] = result
            del results
        return [values[place] if place >= 0 else constant for place, constant in self._outputs]


def _place_or_constant(output: Any, places: Mapping[torch.fx.Node, int]) -> tuple[int, Any]:
    if isinstance(output, torch.fx.Node) and output.op != "get_attr":
        return places[output], None
    if isinstance(output, torch.fx.Node):
        return -1, attribute_of(output.graph.owning_module, output)
    return -1, output


def tell_split(parts: Split, name: str) -> None:
    """One `fallback` event for the operations outside, with their lines."""
    lines = [f"{n.name} ({line})" if (line := line_of(n)) else n.name for n in parts.outside]
    whys = [f"{text}: {why}" for text, why in zip(lines, parts.outside.values(), strict=True)]
    captured = sum(piece.captured for piece in parts.pieces)
    more = f"; and {len(whys) - 4} more" if len(whys) > 4 else ""
    detail = f"{name}: {captured} of {len(parts.pieces)} pieces are captured; outside: {'; '.join(whys[:4])}{more}"
    emit_fallback(IN_PIECES, detail)
