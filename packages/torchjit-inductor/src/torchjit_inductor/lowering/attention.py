"""The user's functions of attention scores as values of the loop IR."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.attention_call import AttentionCall, Formula
from torchjit_inductor.indexing import largest
from torchjit_inductor.ir.values import Value, index_value, load, substitute_all, walk
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.graph_nodes import as_positional, tensors_in
from torchjit_inductor.lowering.registry import find_lowering
from torchjit_inductor.lowering.sizes import NotLowered, meta_of
from torchjit_inductor.lowering.tensors import Lazy, Lowered, Point, Strided, TensorMeta

__all__ = [
    "GRADIENT",
    "SCORE",
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
class Formulas:
    """A call's functions as values over `loop_symbols`, `SCORE` and `GRADIENT`.

    Attributes:
        score: what becomes of a score, float32.
        mask: bool.
        gradient: of the score; None where `score` has none.
        tensors: what they read, by name: `outside0` is the first tensor from outside.
    """

    score: Value
    mask: Value
    gradient: Value | None
    tensors: dict[str, Strided]


def loop_symbols(sizes: Sequence[int]) -> tuple[Symbol, ...]:
    """Batch, head, query and key: `x0` to `x3`."""
    return tuple(Symbol(f"x{n}", 0, size - 1) for n, size in enumerate(sizes))


def attention_formulas(
    call: AttentionCall,
    sizes: Sequence[int],
    outside: Sequence[Strided],
    features: Callable[[torch.device], frozenset[str]],
) -> Formulas:
    """The functions as values.

    Args:
        sizes: batch, heads, queries, keys.
        outside: the tensors that they use.
        features: see `codegen_protocol.FEATURES`.

    Raises:
        NotLowered: a function does what no kernel does.
    """
    builder = Builder(features)
    # Under names of their own, from their first elements on: kernels get addresses.
    outside = [
        Strided(f"outside{n}", t.sizes, t.strides, constant(0), t.dtype, t.device) for n, t in enumerate(outside)
    ]
    device = outside[0].device if outside else torch.device("cuda")
    symbols = loop_symbols(sizes)
    indices = [Lazy((), torch.int64, device, _always(index_value(as_expr(s)))) for s in symbols]
    score = Lazy((), torch.float32, device, _always(SCORE))
    gradient = Lazy((), torch.float32, device, _always(GRADIENT))
    given = [score, *indices, *outside]
    changed = _evaluated(call.score, given, gradient, builder)
    (allowed,) = _evaluated(call.mask, given[1:], None, builder)
    if changed[0].dtype != torch.float32 or allowed.dtype != torch.bool:
        raise NotLowered(f"scores of {changed[0].dtype}, a mask of {allowed.dtype}")
    folded = substitute_all((*changed, allowed), {}, _folded)
    read = {v.data.buffer for v in walk(*folded) if v.op == "load"}
    gradient_of_score = folded[1] if len(folded) == 3 else None
    return Formulas(folded[0], folded[-1], gradient_of_score, {t.buffer: t for t in outside if t.buffer in read})


def _always(value: Value) -> Callable[[Point], Value]:
    return lambda point: value


def _evaluated(formula: Formula, given: Sequence[Lowered], tangent: Lowered | None, b: Builder) -> list[Value]:
    """The result, and the gradient where there is one."""
    env: dict[torch.fx.Node, Any] = dict(zip(formula.inputs, given, strict=True))
    if formula.tangent is not None:
        env[formula.tangent] = tangent
    wanted = [formula.result] if formula.gradient is None else [formula.result, formula.gradient]
    if formula.result.meta["val"].dtype not in (torch.float32, torch.bool):
        raise NotLowered(f"a function that gives {formula.result.meta['val'].dtype}")
    needed, stack = set[torch.fx.Node](), list(wanted)
    while stack:
        node = stack.pop()
        if node not in needed and node not in env:
            needed.add(node)
            stack += node.all_input_nodes
    for node in formula.graph.nodes:
        if node in needed:
            env[node] = _called(node, env, b)
    if b.steps:
        raise NotLowered("a function whose parts lie in memory")
    return [env[node].value(Point(())) for node in wanted]


def _called(node: torch.fx.Node, env: dict[torch.fx.Node, Any], b: Builder) -> Any:
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
    metas: TensorMeta | tuple[TensorMeta, ...] = (
        tuple(map(meta_of, val)) if isinstance(val, (tuple, list)) else meta_of(val)
    )
    made = lower(b, metas, *args, **kwargs)
    if made is None or any(t.dtype.is_complex for t in tensors_in(made)):
        raise NotLowered(f"a function with {node.target}")
    return made


def _folded(value: Value) -> Value | None:
    """Arithmetic of indices as an index: kernels compute those in 32 bits, and compare them so. A position within bounds needs no test."""
    if value.op == "bounded" and _is_index(value.args[0]):
        at, size = value.args[0], value.data.index.value
        low, high = _expression(at).bounds().lower, _expression(at).bounds().upper
        return at if None not in (low, high, size) and low >= 0 and high < size else None  # type: ignore[operator]
    if value.op == "load" and any(map(_is_index, value.args[: len(value.data.binders)])):
        return _read_at_index(value)
    if value.dtype != torch.int64 or value.op not in _FOLDS or not all(_is_index(a) for a in value.args):
        return None
    parts = [_expression(a) for a in value.args]
    if value.op in ("floordiv", "remainder") and not (parts[1].value or 0) > 0:
        return None
    made = _FOLDS[value.op](*parts)
    bound = largest(made)
    return index_value(made) if bound is not None and bound < _LARGE else None


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


_FOLDS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "floordiv": operator.floordiv,
    "remainder": operator.mod,
}
