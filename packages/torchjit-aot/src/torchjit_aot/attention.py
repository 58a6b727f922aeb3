"""Hand-written attention becomes `scaled_dot_product_attention`.

The rewrite works on torch-level graphs, before differentiation, so one pattern serves inference and training: what is
differentiated is the fused operator. Values are known only while the graph is traced, so the matched calls become one call
that looks at them then, and runs the original calls where the fused operator would not do.

Left alone: dropout that is active (the fused kernels draw other random numbers than eager PyTorch); weights that are used
elsewhere; masks that need a gradient; added masks in training, or of another dtype (they would be rounded).
"""

from __future__ import annotations

import inspect
import math
import operator
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, final

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from torchjit_aot.patterns import Match, Pattern, either, literal, matches, number, once, spelled, var
from torchjit_aot.replay import with_usable_mask

__all__ = ["fuse_attention", "may_fuse_attention"]

# ------------------------------------------------------------------------------------------------- the declaration

matmul = spelled("x y", {torch.matmul: "x y", torch.bmm: "x y", operator.matmul: "x y", "matmul": "x y", "bmm": "x y"})
einsum = spelled("equation x y", {torch.einsum: "equation x y", torch.functional.einsum: "equation x y"})
divide = spelled("x y", {operator.truediv: "x y", torch.div: "x y", "div": "x y", "true_divide": "x y"})
times = spelled("x y", {operator.mul: "x y", torch.mul: "x y", "mul": "x y"})
add = spelled("x y", {operator.add: "x y", torch.add: "x y", "add": "x y"})
masked_fill = spelled("x mask value", {torch.masked_fill: "x mask value", "masked_fill": "x mask value"})
where = spelled("condition x y", {torch.where: "condition x y"})
softmax = spelled(
    "x dim dtype", {torch.softmax: "x dim dtype", F.softmax: "x dim _stacklevel dtype", "softmax": "x dim dtype"}
)
cast = spelled("x dtype", {"to": "x dtype", "type": "x dtype"})
to_float = spelled("x", {"float": "x"})
cast_like = spelled("x y", {"type_as": "x y", "to": "x y"})
dropout = spelled("x p training inplace", {F.dropout: "x p training inplace", torch.dropout: "x p training"})


def equation(name: str, first: str, second: str, result: str) -> Pattern:
    """An einsum's text that says this, whatever the letters; `*` stands for the batch's."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, str) or value.count("->") != 1:
            return False
        left, _, right = value.replace(" ", "").partition("->")
        operands = left.split(",")
        count = len(right) - 2
        if len(operands) != 2 or count not in (1, 2) or not (left.replace(",", "") + right).isalpha():
            return False
        batch, letters = right[:count], dict[str, str]()
        for have, want in zip((*operands, right), (first, second, result), strict=True):
            if have[:count] != batch or len(have) != count + 2 or len(set(have)) != len(have):
                return False
            if any(letters.setdefault(w, h) != h for w, h in zip(want, have[count:], strict=True)):
                return False
        return len(set(letters.values())) == len(letters)

    return var(name, accepts)


q, k, k_transposed, v = var("q"), var("k"), var("k_transposed"), var("v")
is_dtype = var("narrow", lambda value: isinstance(value, torch.dtype))
wide = var("wide", lambda value: isinstance(value, torch.dtype))

scores = once(either(matmul(q, k_transposed), einsum(equation("qk", "id", "jd", "ij"), q, k)))
scaled = either(once(divide(scores, number("divisor"))), once(times(scores, number("factor"))), scores)
masked = either(
    once(add(scaled, var("mask"))),
    once(add(var("mask"), scaled)),
    once(masked_fill(scaled, var("hidden"), number("fill"))),
    once(where(var("shown"), scaled, number("fill"))),
    scaled,
)
widened = either(once(cast(masked, wide)), once(to_float(masked)), masked)
weights = once(either(softmax(widened, literal(-1, 2, 3)), softmax(widened, literal(-1, 2, 3), wide)))
narrowed = either(once(cast(weights, is_dtype)), once(cast_like(weights, var("like"))), weights)
dropped = either(
    once(dropout(narrowed, number("p"), var("training", lambda x: type(x) is bool), literal(False, None))), narrowed
)
attention = either(matmul(dropped, v), einsum(equation("wv", "ij", "jd", "id"), dropped, v))

# ------------------------------------------------------------------------------------------------- the rewrite


def fuse_attention(graph: fx.Graph, count: Counter[str]) -> bool:
    """Rewrite in place.

    Args:
        graph: torch-level calls.
        count: gets the number of fused calls under "attention", while the graph is traced.

    Returns:
        Was anything matched?
    """
    position: dict[fx.Node, int] = {node: i for i, node in enumerate(graph.nodes)}
    barriers = [position[node] for node in graph.nodes if _is_barrier(node)]
    changed = False
    for node in list(graph.nodes):
        for found in matches(attention, node):
            dim = softmax.read(next(n for n in found.nodes if softmax.read(n)))
            if _crosses(barriers, [position[n] for n in found.nodes]) or dim is None or _drops(found):
                continue
            _replace(graph, node, found, dim[1], count)  # type: ignore[arg-type]  # an int: the pattern says so
            changed = True
            break
    return changed


def may_fuse_attention(graph: fx.Graph) -> bool:
    """Is there a softmax at all?"""
    return any(softmax.read(node) is not None for node in graph.nodes)


def _drops(found: Match) -> bool:
    return bool(found.get("training", False)) and found["p"] > 0


def _crosses(barriers: Sequence[int], places: Sequence[int]) -> bool:
    return any(min(places) < at < max(places) for at in barriers)


def _is_barrier(node: fx.Node) -> bool:
    """May the node write to a tensor, or change grad mode or autocast? The matched calls are made where the last one was."""
    if node.op == "call_module" or "out" in node.kwargs:
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if node.op == "call_method":
        return name.endswith("_") and not name.endswith("__")
    if node.op != "call_function":
        return False
    if isinstance(node.target, OpOverload):
        return node.target.namespace != "aten" or node.target._schema.is_mutable
    module = str(getattr(node.target, "__module__", "") or "")
    if module == "_operator":
        return name in _WRITING_OPERATORS
    if module == "torch.nn.functional":
        return name.endswith("_") or _told_to_write(node)
    return (
        module not in ("", "builtins", "math", "torch", "torch.functional", "torch._C._nn")
        or name.startswith(("_", "set_"))
        or name.endswith("_")
    )


_WRITING_OPERATORS = {"setitem", "delitem"}.union(
    name for name in dir(operator) if name[0] == "i" and hasattr(operator, f"__{name[1:]}__")
)
"""`iadd`, of `add`, and its like."""


def _told_to_write(node: fx.Node) -> bool:
    """Is the argument `inplace` of a function of `torch.nn.functional` true?"""
    if not inspect.isfunction(node.target):
        return False  # written in C: none of these has the argument
    parameters = list(inspect.signature(node.target).parameters)
    if "inplace" not in parameters:
        return False
    position = parameters.index("inplace")
    given = node.args[position] if len(node.args) > position else node.kwargs.get("inplace", False)
    return given is not False


def _replace(graph: fx.Graph, node: fx.Node, found: Match, dim: int, count: Counter[str]) -> None:
    inside = [n for n in graph.nodes if n in set(found.nodes)]
    outside = list(dict.fromkeys(source for n in inside for source in n.all_input_nodes if source not in set(inside)))
    values = {key: outside.index(value) for key, value in found.bound.items() if isinstance(value, fx.Node)}
    numbers = {key: value for key, value in found.bound.items() if not isinstance(value, fx.Node)}
    calls = tuple((n, n.op, n.target, n.args, dict(n.kwargs)) for n in inside)
    with graph.inserting_before(node):
        made = graph.call_function(_Attention(tuple(outside), values, numbers, dim, calls, count), tuple(outside))
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    for old in reversed(inside):
        graph.erase_node(old)


@final
@attrs.frozen(eq=False)
class _Attention:
    """The matched calls as one call.

    Attributes:
        outside: the nodes that its arguments stand for.
        values: positions of the pattern's variables among the arguments.
        numbers: the other variables.
        dim: the softmax's dimension.
        calls: the original calls, in order.
        count: see `fuse_attention`.
    """

    __name__: ClassVar[str] = "attention"
    outside: tuple[fx.Node, ...]
    values: dict[str, int]
    numbers: dict[str, Any]
    dim: int
    calls: tuple[tuple[fx.Node, str, Any, Any, dict[str, Any]], ...]
    count: Counter[str]

    def __call__(self, *args: Any) -> Any:
        given = {name: args[i] for name, i in self.values.items()}
        made = self._fused(given)
        if made is not None:
            self.count["attention"] += 1
            return made
        env = dict(zip(self.outside, args, strict=True))
        result: Any = None
        for node, op, target, own, kwargs in self.calls:
            first, *rest = map_arg(own, env.__getitem__)
            named = map_arg(kwargs, env.__getitem__)
            function = getattr(first, target) if op == "call_method" else target
            env[node] = result = function(*rest, **named) if op == "call_method" else function(first, *rest, **named)
        return result

    def _fused(self, given: dict[str, Any]) -> Tensor | None:
        query, value = given["q"], given["v"]
        key = given["k"] if "k" in given else given["k_transposed"]
        if not all(isinstance(t, Tensor) and t.dim() == query.dim() and t.dim() in (3, 4) for t in (query, key, value)):
            return None
        key = key if "k" in given else key.transpose(-2, -1)
        if not self._is_taken(query, key, value, "mask" in given):
            return None
        masked = self._mask(given, query, key)
        if masked is None:
            return None
        mask, dead = masked
        out = self._attend(query, key, value, mask)
        if dead is None:
            return out
        average = value.mean(-2, keepdim=True)
        if "mask" in given or self.numbers["fill"] == -math.inf:
            # nan row by row: 0 * nan is a wrong gradient elsewhere
            average = average * torch.where(dead, math.nan, 1.0).to(out.dtype)
        return torch.where(dead, average, out)

    def _is_taken(self, query: Tensor, key: Tensor, value: Tensor, added: bool) -> bool:
        """Do the fused kernels take these, and are they faster? `added`: a mask is added to the scores."""
        if not _fits(query, key, value) or self.dim not in (-1, query.dim() - 1) or not self._keeps_dtype(query.dtype):
            return False
        short = type(key.shape[-2]) is int and key.shape[-2] < _TILE
        return not (short and query.device.type == "cuda" and added)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """The fused operator, which takes four dimensions."""
        four = [t.unsqueeze(0) if t.dim() == 3 else t for t in (query, key, value)]
        if mask is not None and mask.dim() == query.dim() == 3:
            mask = mask.unsqueeze(0)
        scale = self.numbers.get("factor", 1.0) / self.numbers.get("divisor", 1.0)
        (four_q, four_k, four_v, usable), _ = with_usable_mask((*four, mask), {})
        out = F.scaled_dot_product_attention(four_q, four_k, four_v, usable, 0.0, False, scale=float(scale))
        return (out.squeeze(0) if query.dim() == 3 else out).contiguous()

    def _keeps_dtype(self, dtype: torch.dtype) -> bool:
        """Softmax in float32 of lower precision is what the fused kernels do too; float64 must stay."""
        return dtype != torch.float64 or all(self.numbers.get(name, dtype) == dtype for name in ("wide", "narrow"))

    def _mask(self, given: dict[str, Any], query: Tensor, key: Tensor) -> tuple[Tensor | None, Tensor | None] | None:
        """The mask for the fused operator, and the rows that see nothing; None: the calls stay.

        The fused kernels give zeros for such rows, and their backward takes a row of equal low scores for ones. Eager
        PyTorch has nan for scores of minus infinity, and the average of all values where the scores are equal, which
        then depend on nothing. So the kernel gets rows that see everything instead, and their result is replaced. With
        an added mask the scores still get gradients, so that is left alone in training.
        """
        held = next((given[name] for name in ("mask", "hidden", "shown") if name in given), None)
        if held is None:
            return None, None
        if not _spreads(held, query, key):
            return None
        if "mask" in given:
            training = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, given["v"]))
            if held.dtype != query.dtype or training or torch.is_autocast_enabled(query.device.type):
                return None
            return held, (held == -math.inf).all(-1, keepdim=True)
        if held.dtype != torch.bool or self.numbers["fill"] > _LOW:
            return None
        shown = held if "shown" in given else ~held
        dead = ~shown.any(-1, keepdim=True)
        return shown | dead, dead


_TILE = 64
"""Keys that the fused kernels of GPUs take at a time: with fewer, and a mask that is added, two products and a softmax are
faster (windows of 49 in Swin on an H200: 89 us a block beside 126)."""

_LOW = -1e4
"""Scores filled with this or less have no weight beside others."""


def _spreads(mask: object, query: Tensor, key: Tensor) -> bool:
    """Is it a constant mask over the scores?"""
    if not isinstance(mask, Tensor) or not 2 <= mask.dim() <= query.dim() or mask.requires_grad:
        return False
    full = (*query.shape[:-1], key.shape[-2])
    return all(n in (1, m) for n, m in zip(reversed(mask.shape), reversed(full), strict=False))


def _fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Do the fused kernels take these without copies or other results?"""
    kinds = {(t.dtype, t.device) for t in (query, key, value)}
    return (
        len(kinds) == 1
        and query.is_floating_point()
        and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        and query.shape[-1] == key.shape[-1] == value.shape[-1]
        and key.shape[-2] == value.shape[-2]
        and all(t.stride(-1) == 1 for t in (query, key, value))
        and not query.is_complex()
    )
