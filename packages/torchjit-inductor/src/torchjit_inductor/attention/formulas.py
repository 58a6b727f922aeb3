"""The user's functions of attention scores as values of the loop IR."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.attention.call import AttentionCall, Formula
from torchjit_inductor.indexing import largest
from torchjit_inductor.ir.values import INDEXED, Value, bounded, cast, index_value, load, substitute_all, walk
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.graph_nodes import ancestors, as_positional, tensors_in
from torchjit_inductor.lowering.registry import find_lowering
from torchjit_inductor.lowering.sizes import NotLowered, meta_of
from torchjit_inductor.lowering.tensors import Lazy, Lowered, Point, Strided, TensorMeta

__all__ = [
    "GRADIENT",
    "SCORE",
    "Addition",
    "Formulas",
    "attention_formulas",
    "loop_symbols",
]

SCORE = load("score", 0, torch.float32)
"""Stands for a score, in formulas."""
GRADIENT = load("score_gradient", 0, torch.float32)
"""Stands for the gradient of what the formula gives."""
_LARGE = 2**31 - 2**20


@final
@attrs.frozen
class Addition:
    """A part of the gradient of a tensor from outside, from each score.

    Attributes:
        tensor: its position among them.
        place: offset in a contiguous tensor of its sizes; an index or `int64`.
        value: what is added there, float32.
    """

    tensor: int
    place: Value
    value: Value


@final
@attrs.frozen
class Formulas:
    """A call's functions as values over `loop_symbols`, `SCORE` and `GRADIENT`.

    Attributes:
        score: what becomes of a score, float32.
        mask: bool.
        gradient: of the score; None where `score` has none.
        tensors: what they read, by name: `outside0` is the first tensor from outside.
        additions: gradients of these.
    """

    score: Value
    mask: Value
    gradient: Value | None
    tensors: dict[str, Strided]
    additions: tuple[Addition, ...] = ()


def loop_symbols(sizes: Sequence[int | Expr]) -> tuple[Symbol, ...]:
    """Batch, head, query and key: `x0` to `x3`."""
    most = [as_expr(size).bounds().upper for size in sizes]
    return tuple(Symbol(f"x{n}", 0, None if size is None else size - 1) for n, size in enumerate(most))


def attention_formulas(
    call: AttentionCall,
    sizes: Sequence[int | Expr],
    outside: Sequence[Strided],
    renamed: Mapping[Symbol, Expr],
) -> Formulas:
    """The functions as values.

    Args:
        sizes: batch, heads, queries, keys.
        outside: the tensors that they use.
        renamed: the symbols of the graph as kernels know them.

    Raises:
        NotLowered: a function does what no kernel does.
    """
    builder = Builder()
    # Under names of their own, from their first elements on: kernels get addresses.
    outside = [
        Strided(f"outside{n}", _known(t.sizes, renamed), _known(t.strides, renamed), constant(0), t.dtype, t.device)
        for n, t in enumerate(outside)
    ]
    device = outside[0].device if outside else torch.device("cuda")
    symbols = loop_symbols(sizes)
    indices = [Lazy((), torch.int64, device, _always(index_value(as_expr(s)))) for s in symbols]
    score = Lazy((), torch.float32, device, _always(SCORE))
    gradient = Lazy((), torch.float32, device, _always(GRADIENT))
    given = [score, *indices, *outside]
    changed, additions = _evaluated(call.score, given, gradient, builder, renamed)
    (allowed,), _ = _evaluated(call.mask, given[1:], None, builder, renamed)
    if changed[0].dtype != torch.float32 or allowed.dtype != torch.bool:
        raise NotLowered(f"scores of {changed[0].dtype}, a mask of {allowed.dtype}")
    ends = {s: as_expr(size) for s, size in zip(symbols, sizes, strict=True)}
    parts = [part for a in additions for part in (a.place, a.value)]
    folded = substitute_all((allowed, *changed, *parts), {}, lambda value: _folded(value, ends))
    _check_sizes(folded, {*symbols, *(s for e in renamed.values() for s in e.symbols)})
    read = {v.data.buffer for v in walk(*folded) if v.op == "load"}
    tensors = {t.buffer: t for t in outside if t.buffer in read}
    mask, made, added = folded[0], folded[1 : 1 + len(changed)], folded[1 + len(changed) :]
    others = tuple(map(Addition, (a.tensor for a in additions), added[::2], added[1::2]))
    return Formulas(made[0], mask, made[1] if len(made) == 2 else None, tensors, others)


def _check_sizes(values: Sequence[Value], known: set[Symbol]) -> None:
    """Make sure that formulas compute with known symbols only.

    Raises:
        NotLowered: they do not.
    """
    if any(not v.data.index.symbols <= known.union(v.data.binders) for v in walk(*values) if v.op in INDEXED):
        raise NotLowered("a function of sizes that are no tensor's")


def _known(numbers: Sequence[Expr], renamed: Mapping[Symbol, Expr]) -> tuple[Expr, ...]:
    return tuple(n.substitute(renamed) for n in numbers)


def _always(value: Value) -> Callable[[Point], Value]:
    return lambda point: value


def _evaluated(
    formula: Formula,
    given: Sequence[Lowered],
    tangent: Lowered | None,
    b: Builder,
    renamed: Mapping[Symbol, Expr],
) -> tuple[list[Value], list[Addition]]:
    """The result, the gradient where there is one, and what is added to other gradients."""
    env: dict[torch.fx.Node, Any] = dict(zip(formula.inputs, given, strict=True))
    if formula.tangent is not None:
        env[formula.tangent] = tangent
    wanted = [formula.result] if formula.gradient is None else [formula.result, formula.gradient]
    if formula.result.meta["val"].dtype not in (torch.float32, torch.bool):
        raise NotLowered(f"a function that gives {formula.result.meta['val'].dtype}")
    parts = [(n, *part) for n, node in formula.others if node is not None for part in _parts(node)]
    sources = [n for _, places, part in parts for n in (*places, part) if isinstance(n, torch.fx.Node)]
    needed = ancestors([*wanted, *sources], env)
    for node in formula.graph.nodes:
        if node in needed:
            env[node] = _called(node, env, b, renamed)
    if b.steps:
        raise NotLowered("a function whose parts lie in memory")

    def value(node: torch.fx.Node) -> Value:
        found: Value = env[node].value(Point(()))
        return found

    additions = []
    outside: Any = given[5:]

    def inside(at: torch.fx.Node | int, size: Expr) -> Value:
        if isinstance(at, int):
            return index_value(as_expr(at) if at >= 0 else size + at)
        return bounded(cast(value(at), torch.int64), size, wrap=True, dim=0, error="index")

    for number, places, part in parts:
        place: Value = index_value(0)
        for size, at in zip(outside[number].sizes, places, strict=True):
            place = place * index_value(size) + inside(at, size)
        additions.append(Addition(number, place, cast(value(part), torch.float32)))
    return [value(node) for node in wanted], additions


Part = tuple[tuple["torch.fx.Node | int", ...], torch.fx.Node]
"""At which index what is added."""


def _parts(node: torch.fx.Node) -> list[Part]:
    """The gradient of a tensor as a sum of elements at computed places.

    Raises:
        NotLowered: it is none.
    """
    if not node.meta["val"].dim():
        return [((), node)]
    divide = _SUMS.get(node.target)
    parts = None if divide is None else divide(node)
    if parts is None:
        raise NotLowered(f"a gradient by {node.target}")
    return parts


def _parts_of_cast(node: torch.fx.Node) -> list[Part]:
    """Sums are float32 here, and rounded once."""
    return _parts(_node(node.args[0]))


def _parts_of_sum(node: torch.fx.Node) -> list[Part] | None:
    if node.kwargs:
        return None
    terms = [_node(a) for a in node.args]
    if any(t.meta["val"].shape != node.meta["val"].shape for t in terms):
        return None
    return [part for t in terms for part in _parts(t)]


def _parts_of_select(node: torch.fx.Node) -> list[Part]:
    given: Any = node.args[2:]
    dim, at = given
    dim %= node.meta["val"].dim()
    return [((*places[:dim], at, *places[dim:]), part) for places, part in _parts(_node(node.args[0]))]


def _parts_of_put(node: torch.fx.Node) -> list[Part] | None:
    """One number that is added to zeros at one computed place."""
    if len(node.args) != 4 or node.args[3] is not True:
        return None
    base, places, part, _ = node.args
    whole = isinstance(places, (list, tuple)) and len(places) == node.meta["val"].dim()
    if not whole or _node(base).target not in _ZEROS or not _is_zero(_node(base)):
        return None
    at = tuple(_node(n) for n in places)  # type: ignore[union-attr]
    if any(n.meta["val"].dim() or n.meta["val"].dtype == torch.bool for n in (*at, _node(part))):
        return None
    return [(at, _node(part))]


def _node(argument: object) -> torch.fx.Node:
    if not isinstance(argument, torch.fx.Node):
        raise NotLowered("a gradient of another form")
    return argument


def _is_zero(node: torch.fx.Node) -> bool:
    target: Any = node.target
    fill = {_aten.full.default: 1, _aten.new_full.default: 2, _aten.full_like.default: 1}.get(target)
    return fill is None or bool(node.args[fill] == 0)


_aten = torch.ops.aten
_SUMS: dict[object, Callable[[torch.fx.Node], list[Part] | None]] = {
    _aten._to_copy.default: _parts_of_cast,
    torch.ops.prims.convert_element_type.default: _parts_of_cast,
    _aten.add.Tensor: _parts_of_sum,
    _aten.select_backward.default: _parts_of_select,
    _aten.index_put.default: _parts_of_put,
    _aten._unsafe_index_put.default: _parts_of_put,
}
"""How the result of an operator is a sum of elements at computed places."""
_ZEROS = (
    _aten.full.default, _aten.new_full.default, _aten.full_like.default, _aten.zeros.default, _aten.zeros_like.default,
    _aten.new_zeros.default,
)  # fmt: skip


def _called(node: torch.fx.Node, env: dict[torch.fx.Node, Any], b: Builder, renamed: Mapping[Symbol, Expr]) -> Any:
    if node.op != "call_function":
        raise NotLowered(f"a function with {node.op} {node.target}")
    mapped: Any = torch.fx.map_arg((node.args, dict(node.kwargs)), env.__getitem__)
    args, kwargs = mapped
    if node.target is operator.getitem:
        return args[0][args[1]]
    lower = find_lowering(node.target)
    if lower is None:
        raise NotLowered(f"a function with {node.target}")
    args, kwargs = as_positional(node.target, args, kwargs)
    val = node.meta["val"]
    many = isinstance(val, (tuple, list))
    found = [
        attrs.evolve(m, sizes=_known(m.sizes, renamed), strides=_known(m.strides, renamed))
        for m in map(meta_of, val if many else (val,))
    ]
    metas: TensorMeta | tuple[TensorMeta, ...] = tuple(found) if many else found[0]
    made = lower(b, metas, *args, **kwargs)
    if made is None or any(t.dtype.is_complex for t in tensors_in(made)):
        raise NotLowered(f"a function with {node.target}")
    return made


def _folded(value: Value, ends: Mapping[Symbol, Expr]) -> Value | None:
    """Arithmetic of indices as an index: kernels compute those in 32 bits, and compare them so. A position within bounds needs no test.

    Args:
        ends: sizes of the loops.
    """
    if value.op == "bounded" and _is_index(value.args[0]):
        return value.args[0] if _is_inside(_expression(value.args[0]), value.data.index, ends) else None
    if value.op == "load" and any(map(_is_index, value.args[: len(value.data.binders)])):
        return _read_at_index(value)
    if value.dtype != torch.int64 or value.op not in _FOLDS or not all(_is_index(a) for a in value.args):
        return None
    return _arithmetic(value.op, [_expression(a) for a in value.args])


def _arithmetic(op: str, parts: Sequence[Expr]) -> Value | None:
    """As an index of 32 bits; None where it does not fit, or is a division by what may not be positive."""
    if op in ("floordiv", "remainder") and not (parts[1].value or 0) > 0:
        return None
    made = _FOLDS[op](*parts)
    bound = largest(made)
    return index_value(made) if bound is not None and bound < _LARGE else None


def _is_inside(at: Expr, size: Expr, ends: Mapping[Symbol, Expr]) -> bool:
    """Is a position at least 0 and below the size, wherever the loops are?"""
    least, most = at, at
    for symbol in at.symbols & ends.keys():
        step, last = (at.substitute({symbol: as_expr(symbol) + 1}) - at).bounds(), ends[symbol] - 1
        if step.lower is not None and step.lower >= 0:
            least, most = least.substitute({symbol: 0}), most.substitute({symbol: last})
        elif step.upper is not None and step.upper <= 0:
            least, most = least.substitute({symbol: last}), most.substitute({symbol: 0})
    low, above = least.bounds().lower, (size - 1 - most).bounds().lower
    return low is not None and low >= 0 and above is not None and above >= 0


def _read_at_index(value: Value) -> Value:
    """A load with those of its computed positions that are indices put into its address."""
    data, count = value.data, len(value.data.binders)
    known = {b: _expression(a) for b, a in zip(data.binders, value.args, strict=False) if _is_index(a)}
    rest = {b: a for b, a in zip(data.binders, value.args, strict=False) if b not in known}
    mask = value.args[count] if data.masked else None
    kept = tuple(rest.values()) + (() if mask is None else (mask,))
    moved = attrs.evolve(data, index=data.index.substitute(known), binders=tuple(rest))
    return Value("load", kept, value.dtype, moved)


def _expression(value: Value) -> Expr:
    return as_expr(value.data) if value.op == "constant" else value.data.index


def _is_index(value: Value) -> bool:
    return value.op == "constant" or (value.op == "index" and not value.data.binders)


_FOLDS: dict[str, Callable[..., Expr]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "floordiv": operator.floordiv,
    "remainder": operator.mod,
}
