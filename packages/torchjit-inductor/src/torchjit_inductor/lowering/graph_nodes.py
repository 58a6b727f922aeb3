"""Questions about the nodes of a graph and about what they were lowered to."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from torchjit_inductor.convolution_layouts import SAME_PLACE
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS, KERNEL_DTYPES
from torchjit_inductor.ir.kernel import Buffer, Origin
from torchjit_inductor.ir.values import RunNumber
from torchjit_inductor.lowering.registry import find_lowering
from torchjit_inductor.lowering.tensors import Lazy, Lowered, Metas, Strided
from torchjit_inductor.steps import HostNumber, KernelStep, Step
from torchjit_torch.node_meta import FROM_PLACES
from torchjit_torch.operators import is_view

__all__ = [
    "ancestors",
    "as_positional",
    "has_number",
    "is_computable",
    "is_usable",
    "origin_of",
    "origins_of",
    "picked_result",
    "places_behind",
    "read_by_operators",
    "read_whole",
    "returned_and_read",
    "tensors_in",
    "updates_input",
    "with_memory_of_its_own",
    "written_in_place",
]

_aten = torch.ops.aten
CONVERSIONS = frozenset([_aten._to_copy.default, torch.ops.prims.convert_element_type.default])
_PARTIAL_WRITES = frozenset(
    [
        _aten.index_put.default, _aten._unsafe_index_put.default, _aten.index_add.default, _aten.index_copy.default, _aten.scatter.src,
        _aten.scatter.value, _aten.scatter_add.default, _aten.scatter_reduce.two, _aten.select_scatter.default, _aten.slice_scatter.default,
    ]
)  # fmt: skip
"""Functions of a tensor that change a part of it."""


def is_usable(op: object, made: Any, tensors: list[Lowered], metas: Metas) -> bool:
    """May what `op` was lowered to stand? Formulas over dtypes or devices that kernels do not mix may not."""
    results = [m for m in (made if isinstance(made, tuple) else (made,)) if m is not None]
    computes = any(isinstance(t, Lazy) for t in (*results, *tensors))
    known = KERNEL_DTYPES | EIGHT_BIT_FLOATS if op in CONVERSIONS else KERNEL_DTYPES
    if computes and any(t.dtype not in known for t in tensors):
        return False
    devices = {m.device for m in (metas if isinstance(metas, tuple) else (metas,)) if m is not None}
    if any(t.device not in devices for t in tensors):
        return False
    return all(isinstance(m, Strided) or m.dtype in KERNEL_DTYPES for m in results)


def is_computable(steps: Sequence[Step], buffers: Mapping[str, Buffer]) -> bool:
    """Have the buffers of all kernels among these steps dtypes that kernels compute with? Complex numbers, whose views may stand, have not."""
    known = KERNEL_DTYPES | EIGHT_BIT_FLOATS
    kernels = [step.kernel for step in steps if isinstance(step, KernelStep)]
    return all(buffers[name].dtype in known for kernel in kernels for name in kernel.buffers)


def ancestors(wanted: Iterable[torch.fx.Node], known: Container[torch.fx.Node] = ()) -> set[torch.fx.Node]:
    """The nodes that these are computed from, and they themselves, without what is known."""
    needed: set[torch.fx.Node] = set()
    pending = list(wanted)
    while pending:
        node = pending.pop()
        if node not in needed and node not in known:
            needed.add(node)
            pending += node.all_input_nodes
    return needed


def has_number(tree: object) -> bool:
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, (tuple, list)):
        return any(map(has_number, tree))
    return isinstance(tree, (HostNumber, RunNumber))


def updates_input(node: torch.fx.Node) -> bool:
    """Is the node's value an input's new one?"""
    return any(u.target is torch.ops.aten.copy_.default and u.args[1] is node for u in node.users)


def written_in_place(graph: torch.fx.Graph) -> frozenset[torch.fx.Node]:
    """The nodes that may write to the memory of their first operand, whose values nobody else reads: it is an input, which
    gets the result in the end (perhaps after more such nodes), or memory that was made to be written so.

    A cache of keys and values gains one position in each call: without this it is copied twice.
    """
    found: set[torch.fx.Node] = set()
    places = {node: place for place, node in enumerate(graph.nodes)}
    last_test = max((place for node, place in places.items() if is_test(node.target)), default=-1)
    for node in graph.find_nodes(op="call_function", target=_aten.new_empty.default):
        found.update(_writes_after(node))
    for copy in graph.find_nodes(op="call_function", target=_aten.copy_.default):
        target, node = copy.args[:2]
        chain: list[torch.fx.Node] = []
        while _writes_a_part(node) and (not chain or len(node.users) == 1):
            chain.append(node)
            node = node.args[0]
        alone = chain and node is target and node.op == "placeholder" and set(node.users) == {chain[-1], copy}
        if alone and places[chain[-1]] > last_test:  # what raises comes before the first write
            found.update(chain)
    return frozenset(found)


def _writes_after(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The nodes that write to the memory of a node one after the other, each of which is the next one's alone."""
    while len(node.users) == 1:
        source, node = node, next(iter(node.users))
        if not _writes_a_part(node) or node.args[0] is not source:
            return
        yield node


def is_test(op: object) -> bool:
    """Is it an operator without results, which raises or does nothing?"""
    return isinstance(op, torch._ops.OpOverload) and not op._schema.returns


def _writes_a_part(node: object) -> bool:
    if not isinstance(node, torch.fx.Node) or node.target not in _PARTIAL_WRITES:
        return False
    return isinstance(node.args[0], torch.fx.Node) and node.args[0] not in _behind_first(node)


def _behind_first(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The operands but the first."""
    others: list[torch.fx.Node] = []
    torch.fx.map_arg((node.args[1:], node.kwargs), others.append)
    return others


_PICKS = frozenset([_aten.gather.default, _aten.index.Tensor, _aten.index_select.default, _aten.embedding.default])
"""Functions of a tensor that read some of its elements."""
_FEW = 8
_PARTS_REPLACED = frozenset((_aten.slice_scatter.default, _aten.select_scatter.default, _aten.diagonal_scatter.default))
"""One element of so many, or less, is few."""
_STEPS = 6
"""So many formulas lie between at most: graphs can be chains of thousands."""


def read_whole(node: torch.fx.Node) -> int:
    """How many users read all of the node's result: those that pick a few elements, perhaps after a formula, do not.

    The loss of a language model picks one log-probability of each row of a large vocabulary. Slices that are read by formulas on
    a GPU and together have no more elements than the result count as one: rotary embeddings rotate halves.
    """
    whole = [user for user in node.users if not _reads_few(node, user)]
    parts = [user for user in whole if _is_part(user)]
    if len(parts) > 1:
        have = node.meta["val"].numel()
        sizes = [part.meta["val"].numel() for part in parts]
        if all(type(n) is int for n in (have, *sizes)) and sum(sizes) <= have:
            return len(whole) - len(parts) + 1
    return len(whole)


def _is_part(node: torch.fx.Node) -> bool:
    val = node.meta.get("val")
    if node.target is not _aten.slice.Tensor or not isinstance(val, torch.Tensor) or val.device.type != "cuda":
        return False
    return all(user.op == "call_function" and find_lowering(user.target) is not None for user in node.users)


def picked_result(node: torch.fx.Node) -> bool:
    """Does the graph return the node's result while another user picks a few of its elements?"""
    return any(u.op == "output" for u in node.users) and any(_reads_few(node, u) for u in node.users)


def returned_and_read(node: torch.fx.Node) -> bool:
    """Does the graph return the node's result while an operator that is called reads it, or a view of it?"""
    if not any(u.op == "output" for u in node.users):
        return False
    stack = [node]
    while stack:
        for user in stack.pop().users:
            if is_view(user.target) or user.target in SAME_PLACE:
                stack.append(user)
            elif isinstance(user.target, torch._ops.OpOverload) and find_lowering(user.target) is None:
                return True
    return False


def _reads_few(node: torch.fx.Node, user: torch.fx.Node, steps: int = _STEPS) -> bool:
    val, made = node.meta.get("val"), user.meta.get("val")
    if not isinstance(val, torch.Tensor) or not isinstance(made, torch.Tensor):
        return False
    have, want = val.numel(), made.numel()
    if type(have) is not int or type(want) is not int:
        return False
    if user.target in _PICKS:
        return user.args[0] is node and node not in _behind_first(user) and want * _FEW <= have
    by_element = torch.Tag.pointwise in getattr(user.target, "tags", ()) or user.target in (
        *SAME_PLACE,
        *CONVERSIONS,
    )
    if not by_element or have != want or not user.users or not steps:
        return False
    return all(_reads_few(user, u, steps - 1) for u in user.users)


def read_by_operators(node: torch.fx.Node) -> int:
    """How many operators that are called (matrix products, convolutions) read the node's result or a view of it."""
    count, stack = 0, [node]
    while stack:
        for user in stack.pop().users:
            if user.target in SAME_PLACE:
                stack.append(user)
            elif user.op == "call_function" and user.target is not operator.getitem:
                count += find_lowering(user.target) is None
    return count


def origins_of(tensors: list[Lowered]) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys(o for t in tensors if isinstance(t, Lazy) and t.stored is None for o in t.origins))


def tensors_in(tree: object) -> list[Lowered]:
    if isinstance(tree, Lowered):
        return [tree]
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, (tuple, list)):
        return [t for item in tree for t in tensors_in(item)]
    return []


def as_positional(op: object, args: Any, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Move keyword arguments that the schema also takes positionally to their positions."""
    schema = getattr(op, "_schema", None)
    if schema is None or not kwargs:
        return tuple(args), kwargs
    placed, rest = list(args), dict(kwargs)
    positional = [a for a in schema.arguments if not a.kwarg_only]
    last = max((k for k, a in enumerate(positional) if a.name in rest), default=-1)
    for k in range(len(placed), last + 1):
        argument = positional[k]
        placed.append(rest.pop(argument.name) if argument.name in rest else argument.default_value)
    return tuple(placed), rest


def places_behind(node: torch.fx.Node) -> torch.fx.Node | None:
    """The int8 tensor of places that the indices of a max pool's backward are computed from, where its `meta` says so."""
    if not FROM_PLACES.of(node):
        return None
    stack, seen, found = [node.args[7]], set(), []
    while stack:
        at = stack.pop()
        if not isinstance(at, torch.fx.Node) or at in seen:
            continue
        seen.add(at)
        val = at.meta.get("val")
        if isinstance(val, torch.Tensor) and val.dtype == torch.int8:
            found.append(at)
        else:
            stack.extend(at.all_input_nodes)
    return found[0] if len(found) == 1 else None


def origin_of(node: torch.fx.Node) -> Origin:
    location = node.meta.get("location")
    source = ""
    if location is not None:
        source = f"{location} | {location.line().strip()}"
    elif node.meta.get("stack_trace"):
        lines = [line.strip() for line in node.meta["stack_trace"].strip().splitlines()]
        source = " | ".join(lines[-2:])
    target = node.target
    if target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        target = node.args[0].target
    op = str(target).removeprefix("aten.") if isinstance(target, torch._ops.OpOverload) else node.op
    return Origin(node.name, op, source)


def with_memory_of_its_own(node: torch.fx.Node) -> None:
    """Give the result of a node strides under which each element has a place, where its fake has others.

    In torch 2.11 fakes of `slice_scatter` and its like have the strides of the first operand, also of an expanded one; what
    the operators return is contiguous then.
    """
    val = node.meta.get("val")
    if node.target not in _PARTS_REPLACED or not isinstance(val, torch.Tensor):
        return
    if any(type(s) is int and s == 0 and n != 1 for n, s in zip(val.shape, val.stride(), strict=True)):
        node.meta["val"] = val.new_empty(val.shape)
