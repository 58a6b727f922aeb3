"""Parts of a graph that depend on no input: computed once, when the graph is compiled.

Position encodings, relative positions, masks: models compute them from sizes in every call, and once sizes are numbers every call
gives the same. What a kernel computes on its way for nearly nothing (a fill, a count) stays a formula: as a tensor
it would have to be read. Numbers that the CPU computes for operators of a GPU, such as the root that attention scales with, become
numbers of its kernels.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Set
from typing import Any, final

import attrs
import torch
import torch.fx
from torch.utils._python_dispatch import _disable_current_modes

from torchjit_inductor.lowering.graph_nodes import ancestors
from torchjit_inductor.lowering.registry import find_lowering
from torchjit_torch.graph_calls import attribute_of
from torchjit_torch.operators import is_mutable

__all__ = ["Folded", "fold_constants", "scalars_on_devices"]

_aten = torch.ops.aten
MOST_BYTES = 4 << 20
"""Of one constant. They are kept as long as the compiled graph."""
MOST_BYTES_TOGETHER = 32 << 20
_FORMULAS = frozenset({
    "arange", "full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "new_full", "new_zeros", "new_ones", "scalar_tensor", "iota", "eye",
    "add", "sub", "rsub", "mul", "neg", "eq", "ne", "lt", "le", "gt", "ge", "where", "logical_and", "logical_or", "logical_not", "bitwise_and",
    "bitwise_or", "bitwise_not", "_to_copy", "convert_element_type", "clone", "alias", "lift_fresh_copy", "lift_fresh", "detach", "view", "_unsafe_view", "reshape",
    "unsqueeze", "squeeze", "expand", "permute", "transpose", "t", "slice", "select", "tril", "triu", "masked_fill", "fill", "minimum", "maximum", "clamp", "abs",
    "copy",
})  # fmt: skip
"""Operations that cost a kernel next to nothing where their result is used."""
_TAKING_SCALARS = frozenset({
    _aten._to_copy.default, _aten.copy.default, _aten.index_put.default, _aten._unsafe_index_put.default, _aten.masked_fill.Tensor,
})  # fmt: skip
"""Operators on a GPU, besides those that go element by element, that take a scalar tensor of the CPU."""


@final
@attrs.frozen
class Folded:
    """What became of a graph's parts that depend on no input.

    Attributes:
        values: the nodes that are constants of the program.
        unused: the nodes that only these are computed from.
    """

    values: dict[torch.fx.Node, torch.Tensor]
    unused: frozenset[torch.fx.Node]


def fold_constants(gm: torch.fx.GraphModule) -> Folded:
    """Compute what depends on no input and is worth keeping.

    Args:
        gm: functional ATen graph with `meta["val"]`. It is left as it is.
    """
    known = _independent(gm.graph, gm)
    wanted, formulas = _split(known)
    if not wanted:
        return Folded({}, frozenset())
    with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
        values = _evaluate(gm.graph, wanted, gm)
        own = {node: _without_base(values[node]) for node in wanted}
    return Folded(own, frozenset(known) - formulas - {*wanted})


def scalars_on_devices(graph: torch.fx.Graph, promised: Set[torch.fx.Node]) -> None:
    """Give operators of another device the scalar tensors of the CPU that depend on no input as tensors of that device.

    Beside the CPU's, a kernel ends before the operator, and no CUDA graph holds it.

    Args:
        graph: functional, of ATen operators, with `meta["val"]`; fake tensors of its mode may be made. It is changed.
        promised: is not changed.
    """
    known = _independent(graph)
    uses = [(user, source) for user in graph.nodes for source in _scalars_of(user) if source in known]
    if not uses:
        return
    with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
        scalars = _evaluate(graph, [source for _, source in uses])
        numbers = {source: scalars[source].item() for _, source in uses}
    moved: dict[tuple[torch.fx.Node, torch.device], torch.fx.Node] = {}
    for user, source in uses:
        key = source, _result(user).device
        if key not in moved:
            with graph.inserting_before(user):
                moved[key] = _number_on(graph, source, numbers[source], key[1])
        user.replace_input_with(source, moved[key])


def _scalars_of(user: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The scalar tensors of the CPU that an operator takes whose results are on another device."""
    elementwise = torch.Tag.pointwise in getattr(user.target, "tags", ())
    if not elementwise and user.target not in _TAKING_SCALARS:
        return
    if not isinstance(user.meta.get("val"), torch.Tensor) or _result(user).device.type == "cpu":
        return
    for source in user.all_input_nodes:
        value = source.meta.get("val")
        if (
            isinstance(value, torch.Tensor)
            and value.device.type == "cpu"
            and not value.dim()
            and not value.is_complex()
        ):
            yield source


def _result(node: torch.fx.Node) -> torch.Tensor:
    made: torch.Tensor = node.meta["val"]
    return made


def _number_on(graph: torch.fx.Graph, like: torch.fx.Node, value: float, device: torch.device) -> torch.fx.Node:
    options: Any = {"dtype": _result(like).dtype, "device": device}
    node = graph.call_function(_aten.full.default, ([], value), {**options, "pin_memory": False})
    node.meta = {**like.meta, "val": torch.full([], value, **options)}
    return node


def _without_base(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as no view: nobody else has what it is a view of, and so an entry on disk may hold it."""
    if not tensor._is_view():
        return tensor
    made = torch.empty(0, dtype=tensor.dtype)
    return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def _independent(graph: torch.fx.Graph, owner: torch.fx.GraphModule | None = None) -> dict[torch.fx.Node, None]:
    """Tensors (and tuples of them) on the CPU that follow from no input, in the graph's order. `owner`: has the graph's attributes."""
    found: dict[torch.fx.Node, None] = {}
    for node in graph.nodes:
        follows = node.op == "call_function" and all(
            n in found or _is_held(owner, n, node) for n in node.all_input_nodes
        )
        if follows and (node.target is operator.getitem or _is_function(node)):
            found[node] = None
    return found


def _is_held(owner: torch.fx.GraphModule | None, node: torch.fx.Node, user: torch.fx.Node) -> bool:
    """A tensor that the program's text holds: `torch.tensor([...])`, which is copied before it is used.

    Without that copy it is the user's tensor, which may change.
    """
    if owner is None or node.op != "get_attr" or user.target is not _aten.lift_fresh_copy.default:
        return False
    held = attribute_of(owner, node)
    return type(held) is torch.Tensor and held.device.type == "cpu"


def _is_function(node: torch.fx.Node) -> bool:
    """Does the node give the same tensors in every call, without any other effect?"""
    op, val = node.target, node.meta.get("val")
    if not isinstance(op, torch._ops.OpOverload) or is_mutable(op) or op.namespace not in ("aten", "prims"):
        return False
    if {torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & {
        *op.tags
    }:
        return False
    if "empty" in op._opname:  # nothing is known about their contents
        return False
    results = val if isinstance(val, (tuple, list)) else (val,)
    if not all(isinstance(v, torch.Tensor) and v.device.type == "cpu" and v.layout is torch.strided for v in results):
        return False
    if any(not isinstance(n, int) for v in results for n in (*v.shape, *v.stride())):
        return False
    return all(v.numel() * v.dtype.itemsize <= MOST_BYTES for v in results)


def _dear(known: dict[torch.fx.Node, None]) -> dict[torch.fx.Node, int]:
    """How many elements a kernel that computes the node must find in memory, since it cannot compute them on its way."""
    dear: dict[torch.fx.Node, int] = {}
    for node in known:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._opname not in _FORMULAS:
            dear[node] = _size(node.meta.get("val")) or 1
        else:
            dear[node] = sum(dear.get(n, 0) for n in node.all_input_nodes)
    return dear


def _split(known: dict[torch.fx.Node, None]) -> tuple[list[torch.fx.Node], set[torch.fx.Node]]:
    """The nodes to become constants, and those that stay formulas and are read by the rest of the graph or by one another."""
    dear = _dear(known)
    wanted: list[torch.fx.Node] = []
    formulas: set[torch.fx.Node] = set()
    together = 0
    for node in reversed(known):
        users = [u for u in node.users if u not in known or u in formulas]
        if not users:
            continue  # unused, or only constants are computed from it
        copied = any(_reads_memory(u) for u in users)  # an operator's operand is in memory in any case
        size = node.meta["val"].nbytes if isinstance(node.meta["val"], torch.Tensor) else 0
        # A sum over two axes of one encoding: the encoding is kept, not the sum.
        pays = copied or (dear[node] and _size(node.meta["val"]) <= 2 * dear[node])
        if not pays or not size or together + size > MOST_BYTES_TOGETHER or all(u.op == "output" for u in users):
            formulas.add(node)
            continue
        together += size
        wanted.append(node)
    return wanted[::-1], formulas


def _reads_memory(user: torch.fx.Node) -> bool:
    op = user.target
    return isinstance(op, torch._ops.OpOverload) and op is not _aten.copy_.default and find_lowering(op) is None


def _size(val: object) -> int:
    return math.prod(val.shape) if isinstance(val, torch.Tensor) else 0


def _evaluate(
    graph: torch.fx.Graph, wanted: list[torch.fx.Node], owner: torch.fx.GraphModule | None = None
) -> dict[torch.fx.Node, Any]:
    """The values of these nodes, and of what they are computed from."""
    needed = ancestors(wanted)
    values: dict[torch.fx.Node, Any] = {}
    for node in graph.nodes:
        if node not in needed:
            continue
        if node.op == "get_attr":
            values[node] = None if owner is None else attribute_of(owner, node)
            continue
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
        values[node] = node.target(*args, **kwargs)
    return values
