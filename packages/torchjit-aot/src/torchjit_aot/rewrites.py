"""Our own rewrites of aten graphs, declared as patterns.

`EXACT` gives the same numbers: arithmetic that changes nothing, casts there and back, chains of permutations and views,
numbers that are known while compiling. `FUSED` lets one operator do the work of two, which rounds once where eager PyTorch
rounds twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from torchjit_aot.graph_writer import GraphWriter
from torchjit_aot.joint import JointGraph
from torchjit_aot.patterns import Match, Operation, Pattern, aten_operation, either, literal, matches, number, once, var
from torchjit_aot.simplify import rename, returned_storages, same_kind
from torchjit_core.events import emit_lazy
from torchjit_torch.layouts import is_static

__all__ = ["EXACT", "FUSED", "Rule", "rewrite_graph", "rewrite_joint", "tell_rewrites"]

aten = torch.ops.aten
Becomes: TypeAlias = Callable[[Match, GraphWriter], "fx.Node | None"]


@final
@attrs.frozen(eq=False)
class Rule:
    """A rewrite.

    Attributes:
        name: for the counts.
        roots: the operators that the pattern may end with.
        pattern: what is replaced.
        becomes: the node that takes the last one's place, from the match; new nodes are added by the writer. None: not here.
    """

    name: str
    roots: tuple[OpOverload, ...]
    pattern: Pattern
    becomes: Becomes


# ------------------------------------------------------------------------------------------------- the declarations

mm, add = aten_operation(aten.mm.default), aten_operation(aten.add.Tensor)
subtract, multiply, divide = (aten_operation(op) for op in (aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor))
power, cat = aten_operation(aten.pow.Tensor_Scalar), aten_operation(aten.cat.default)
cast = Operation(("x", "dtype"), {aten._to_copy.default: ("x", "dtype")})
view = Operation(
    ("x", "size"), {op: ("x", "size") for op in (aten.view.default, aten._unsafe_view.default, aten.reshape.default)}
)
permute = Operation(("x", "dims"), {aten.permute.default: ("x", "dims")})
transpose = Operation(("x", "first", "second"), {aten.transpose.int: ("x", "first", "second")})
t = Operation(("x",), {aten.t.default: ("x",)})

x, inner, a, b, bias = var("x"), var("inner"), var("a"), var("b"), var("bias")
a_dtype = var("dtype", lambda value: isinstance(value, torch.dtype))
sizes, dims = (var(name, lambda value: isinstance(value, (list, tuple))) for name in ("sizes", "dims"))
first, second = number("first"), number("second")

turned = either(permute(x, dims), transpose(x, first, second), t(x))
_TURNS = (aten.permute.default, aten.transpose.int, aten.t.default)


def _keep(found: Match, writer: GraphWriter) -> fx.Node:
    return found["x"]  # type: ignore[no-any-return]


def _one_permutation(found: Match, writer: GraphWriter) -> fx.Node | None:
    """A turn of a turn. The inner one is read from the node, because its variables have the same names."""
    outer = _order(found.nodes[0])
    source = found["x"]
    if outer is None or source.target not in _TURNS or (before := _order(source)) is None:
        return None
    order = [before[dim] for dim in outer]
    start = source.args[0]
    assert isinstance(start, fx.Node)
    return start if order == sorted(order) else writer.call(aten.permute.default, (start, order))


def _order(node: fx.Node) -> list[int] | None:
    """The permutation that the node applies."""
    rank = node.meta["val"].dim()
    order = list(range(rank))
    if node.target is aten.permute.default:
        return [int(d) % rank for d in node.args[1]]  # type: ignore[union-attr, arg-type]
    if rank < 2:
        return order if node.target is aten.t.default else None
    i, j = (0, 1) if node.target is aten.t.default else (int(d) % rank for d in node.args[1:3])  # type: ignore[arg-type]
    order[i], order[j] = order[j], order[i]
    return order


def _one_view(found: Match, writer: GraphWriter) -> fx.Node | None:
    static = is_static(found["x"].meta["val"])
    return writer.call(aten.view.default, (found["x"], found["sizes"])) if static else None


def _lossless(found: Match, writer: GraphWriter) -> fx.Node | None:
    """A cast to a type that holds all values of the first one, and back."""
    start, there = found["x"].meta["val"].dtype, found["wide"]
    same = start == found["dtype"] and torch.promote_types(start, there) == there
    return found["x"] if same and not start.is_complex and start.is_floating_point == there.is_floating_point else None


def _add_to_product(found: Match, writer: GraphWriter) -> fx.Node | None:
    """`addmm` for a bias of the product's type that is smaller than the product and spreads over it.

    Not in float32 and float64 on GPUs: a library that adds the bias itself picks another product there than eager PyTorch does for the
    product alone, up to a third slower, and a kernel that takes in the addition costs less.
    """
    product, added = found.once[0].meta["val"], found["bias"].meta["val"]
    if product.device.type == "cuda" and product.dtype in (torch.float32, torch.float64):
        return None
    if added.dim() not in (1, 2) or (added.dtype, added.device) != (product.dtype, product.device):
        return None
    fits = [
        (str(n), str(m)) for n, m in zip(reversed(added.shape), reversed(product.shape), strict=False)
    ]  # no new guards
    small = len(fits) < 2 or any(n != m for n, m in fits)
    if not small or not product.dtype.is_floating_point or any(n not in ("1", m) for n, m in fits):
        return None
    return writer.call(aten.addmm.default, (found["bias"], found["a"], found["b"]))


def _only(found: Match, writer: GraphWriter) -> fx.Node | None:
    (whole,) = found["pieces"] if len(found["pieces"]) == 1 else (None,)
    return whole


product = once(mm(a, b))
wide = var("wide", lambda value: isinstance(value, torch.dtype))

EXACT: tuple[Rule, ...] = (
    Rule(
        "multiply by one", (aten.mul.Tensor,), either(multiply(x, literal(1, 1.0)), multiply(literal(1, 1.0), x)), _keep
    ),
    Rule("divide by one", (aten.div.Tensor,), divide(x, literal(1, 1.0)), _keep),
    Rule("subtract zero", (aten.sub.Tensor,), subtract(x, literal(0, 0.0)), _keep),
    Rule("power one", (aten.pow.Tensor_Scalar,), power(x, literal(1, 1.0)), _keep),
    Rule(
        "concatenation of one",
        (aten.cat.default,),
        cat(var("pieces", lambda v: isinstance(v, (list, tuple))), var("dim", lambda v: True)),
        _only,
    ),
    Rule("cast there and back", (aten._to_copy.default,), cast(cast(x, wide), a_dtype), _lossless),
    Rule("permutation of a permutation", _TURNS, turned, _one_permutation),
    Rule(
        "view of a view",
        (aten.view.default, aten._unsafe_view.default),
        view(view(x, var("between", lambda v: True)), sizes),
        _one_view,
    ),
)
"""Adding zero is not among them: it turns -0.0 into 0.0."""

FUSED: tuple[Rule, ...] = (
    Rule("product and bias", (aten.add.Tensor,), either(add(product, bias), add(bias, product)), _add_to_product),
)

# ------------------------------------------------------------------------------------------------- known numbers

_IEEE = frozenset(
    {
        aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.neg.default, aten.abs.default,
        aten.sqrt.default, aten.reciprocal.default, aten._to_copy.default, aten.where.self, aten.logical_not.default,
        aten.eq.Scalar, aten.ne.Scalar, aten.lt.Scalar, aten.le.Scalar, aten.gt.Scalar, aten.ge.Scalar, aten.maximum.default,
        aten.minimum.default, aten.rsub.Scalar, aten.bitwise_not.default, aten.bitwise_and.Tensor, aten.logical_and.default,
    }
)  # fmt: skip
"""Operators that give the same bits on every device."""
_MOVES = frozenset(
    {aten.expand.default, aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.permute.default,
     aten.transpose.int, aten.t.default, aten.clone.default, aten.unsqueeze.default, aten.squeeze.dim, aten.slice.Tensor,
     aten.select.int, aten.alias.default, aten.detach.default}
)  # fmt: skip
"""Operators that give a tensor of one repeated number when they get one."""


def _is_full(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.target is aten.full.default and type(node.args[1]) in (int, float, bool)


def fold_known_numbers(joint: JointGraph) -> tuple[JointGraph, int]:
    """Calls whose tensors all hold one repeated number become `full`, in place.

    Returns:
        How many.
    """
    returned, gone = returned_storages(joint), dict[fx.Node, fx.Node]()
    for node in list(joint.graph.nodes):
        sources = node.all_input_nodes
        if node.op != "call_function" or node.target not in _IEEE | _MOVES or node in returned:
            continue
        value = node.meta["val"]
        if not sources or not all(_is_full(s) for s in sources) or not isinstance(value, torch.Tensor):
            continue
        if not value.is_contiguous() or not all(type(n) is int for n in value.shape) or (known := _known(node)) is None:
            continue
        options: dict[str, Any] = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
        with joint.graph.inserting_before(node):
            made = joint.graph.call_function(aten.full.default, ([int(n) for n in value.shape], known), options)
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        joint.graph.erase_node(node)
        gone[node] = made
    return rename(joint, gone), len(gone)


def _known(node: fx.Node) -> Any:
    """The number that the call gives, from one element on the CPU; None if it cannot be told."""
    if node.target in _MOVES:
        return node.all_input_nodes[0].args[1]

    def small(source: fx.Node) -> torch.Tensor:
        like = source.meta["val"]
        number: Any = source.args[1]
        return torch.full([1] * like.dim(), number, dtype=like.dtype)

    kwargs = {k: v for k, v in node.kwargs.items() if k in ("dtype", "alpha", "rounding_mode")}
    if any(v is not None and k not in (*kwargs, "device", "layout", "pin_memory") for k, v in node.kwargs.items()):
        return None
    with torch.utils._python_dispatch._disable_current_modes():
        result = node.target(*fx.node.map_arg(node.args, small), **kwargs)  # type: ignore[operator]
        number = result.reshape(-1)[0].item() if result.numel() else None
    if result.dtype != node.meta["val"].dtype or number is None:
        return None
    # `full` keeps the sign of zero and what is infinite, not which nan
    return None if isinstance(number, float) and math.isnan(number) else number


# ------------------------------------------------------------------------------------------------- the engine


def rewrite_joint(joint: JointGraph, rules: Sequence[Rule]) -> tuple[JointGraph, Counter[str]]:
    """Apply the rules until none fits. Results keep their place, so that no two of them become one tensor."""
    returned, gone = returned_storages(joint), dict[fx.Node, fx.Node]()
    with joint.fake_mode, torch.no_grad():
        count = _rewrite(joint.graph, rules, returned, gone)
        joint, folded = fold_known_numbers(joint)
    if folded:
        count["known number"] = folded
    return rename(joint, gone), count


def rewrite_graph(graph: fx.Graph, rules: Sequence[Rule], fake_mode: FakeTensorMode) -> Counter[str]:
    """The same for a final graph, whose rules make new values in place of old ones."""
    with fake_mode, torch.no_grad():
        return _rewrite(graph, rules, (), {})


def _rewrite(
    graph: fx.Graph, rules: Sequence[Rule], returned: Collection[fx.Node], gone: dict[fx.Node, fx.Node]
) -> Counter[str]:
    by_root: dict[Any, list[Rule]] = {}
    for rule in rules:
        for root in rule.roots:
            by_root.setdefault(root, []).append(rule)
    count: Counter[str] = Counter()
    for node in list(graph.nodes):
        for rule in by_root.get(node.target, ()) if node.op == "call_function" and node not in returned else ():
            if (applied := _apply(graph, rule, node)) is not None:
                made, found = applied
                node.replace_all_uses_with(made)
                graph.erase_node(node)
                for single in found.once:  # only the node that is gone used it: it would still be computed
                    graph.erase_node(single)
                gone[node] = made
                count[rule.name] += 1
                break
    return count


def _apply(graph: fx.Graph, rule: Rule, node: fx.Node) -> tuple[fx.Node, Match] | None:
    """What takes the node's place, of the same sizes, strides and type, or it is not taken; and what it is made from."""
    for found in matches(rule.pattern, node):
        before = node.prev
        with graph.inserting_before(node):
            writer = GraphWriter(graph, node)
            try:
                made = rule.becomes(found, writer)
            except (RuntimeError, ValueError):  # an operator refused, such as a view of what cannot be viewed so
                made = None
        if made is not None and same_kind(made.meta.get("val"), node.meta.get("val")):
            return made, found
        while node.prev is not before:
            graph.erase_node(node.prev)
    return None


def tell_rewrites(name: str, count: Counter[str]) -> None:
    """Emit a `rewrites` event if there were any."""
    if count:
        emit_lazy("rewrites", lambda: {"name": name, "counts": dict(count)})
