"""`freezing`: what an inference graph computes from its parameters alone is computed once, and batch norms become part of convolutions.

The graph is cut in two. The *constant part* depends on nothing but inputs whose storage stays (parameters, buffers); it runs in the
first call. The *rest* is compiled, and reads the results of the constant part as inputs. A parameter that is
written in place, or whose storage is replaced, lets the constant part run again; only writes through `.data` go unnoticed.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
import torch.fx

from torchjit_inductor.lowering.graph_nodes import ancestors
from torchjit_torch.operators import draws, is_mutable

__all__ = ["Frozen", "freeze"]

_aten = torch.ops.aten
_BATCH_NORM = _aten._native_batch_norm_legit_no_training.default
_VIEWS = frozenset((
    _aten.view.default, _aten.permute.default, _aten.t.default, _aten.transpose.int, _aten.expand.default, _aten.unsqueeze.default, _aten.squeeze.dim,
    _aten.slice.Tensor, _aten.select.int, _aten.alias.default, _aten.detach.default, operator.getitem,
))  # fmt: skip
"""Of a parameter they cost nothing in the rest: alone they are no reason for a constant part."""

Compile = Callable[[torch.fx.GraphModule, Sequence[Any], frozenset[int]], Callable[..., Sequence[Any]]]


@final
class Frozen:
    """A compiled inference graph whose constant part runs once for each state of the parameters.

    Args:
        constants: the constant part; its inputs are those at the positions `fixed`.
        rest: takes the inputs at the positions `moving`, then the constant part's results.
    """

    def __init__(
        self,
        constants: torch.fx.GraphModule,
        rest: Callable[..., Sequence[Any]],
        fixed: tuple[int, ...],
        moving: tuple[int, ...],
    ) -> None:
        self.constants, self.rest, self._fixed, self._moving = constants, rest, fixed, moving
        # The parameters are held, so that nothing else can get their addresses.
        self._held: tuple[torch.Tensor, ...] = ()
        self._state: tuple[tuple[int, int], ...] | None = None
        self._values: tuple[torch.Tensor, ...] = ()

    def __stored_state__(self) -> dict[str, object]:
        # Not what was computed: another process has other parameters.
        return {"constants": self.constants, "rest": self.rest, "fixed": self._fixed, "moving": self._moving}

    def __restore_state__(self, state: Any) -> None:
        Frozen.__init__(self, **state)

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        given = [inputs[k] for k in self._fixed]
        state = _state_of(given)
        if state is None or state != self._state:
            self._compute(given)
            self._held, self._state = tuple(given), state
        return self.rest(*(inputs[k] for k in self._moving), *self._values)

    def _compute(self, given: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            made = self.constants(*given)
        theirs = {t.untyped_storage().data_ptr() for t in given}
        self._values = tuple(
            _private(new, old, theirs)
            for new, old in itertools.zip_longest(made, self._values)  # the first time there are none
        )


def _private(new: torch.Tensor, old: torch.Tensor | None, theirs: set[int]) -> torch.Tensor:
    """A result that shares no memory with a parameter; at its old address, which a CUDA graph may have recorded."""
    if new.layout is not torch.strided:
        return new  # packed for oneDNN: always memory of its own
    if old is not None:
        return old.copy_(new)
    return new.clone() if new.untyped_storage().data_ptr() in theirs else new


def _state_of(tensors: Sequence[torch.Tensor]) -> tuple[tuple[int, int], ...] | None:
    """Storage and version of each; None where a tensor counts no versions (those made under `inference_mode`)."""
    if any(t.is_inference() for t in tensors):
        return None
    return tuple((t.data_ptr(), t._version) for t in tensors)


def freeze(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], static_inputs: frozenset[int], compile_rest: Compile
) -> Callable[..., Sequence[Any]]:
    """Compile an inference graph with its constant part cut off.

    Args:
        gm: functional ATen graph with `meta["val"]`; it is changed.
        example_inputs: one per input; fakes will do.
        static_inputs: positions of the inputs whose storage stays the same over the calls.
        compile_rest: compiles a graph, given its example inputs and the positions of its static ones.

    Returns:
        A `Frozen`, or what `compile_rest` gives for the whole graph where there is nothing to freeze.
    """
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    written = {n.args[0] for n in gm.graph.nodes if n.target is _aten.copy_.default}
    static = [n for k, n in enumerate(placeholders) if k in static_inputs and _is_plain(n) and n not in written]
    _fold_batch_norms(gm.graph, set(static))
    known = _constant_nodes(gm.graph, static)
    if _pack_convolutions(gm.graph, {*static, *known}):
        known = _constant_nodes(gm.graph, static)
    wanted = _wanted(known)
    if not wanted:
        gm.recompile()
        return compile_rest(gm, example_inputs, static_inputs)
    constants, sources = _constant_part(gm, wanted)
    position = {n: k for k, n in enumerate(placeholders)}
    kept = _cut(gm, placeholders, known, wanted)
    inputs = [*(example_inputs[position[n]] for n in kept), *(n.meta["val"] for n in wanted)]
    fixed = {k for k, n in enumerate(kept) if position[n] in static_inputs} | set(range(len(kept), len(inputs)))
    rest = compile_rest(gm, inputs, frozenset(fixed))
    return Frozen(constants, rest, tuple(position[n] for n in sources), tuple(position[n] for n in kept))


# ------------------------------------------------------------------------- batch norms
def _fold_batch_norms(graph: torch.fx.Graph, static: set[torch.fx.Node]) -> None:
    """Convolution and batch norm, both of parameters alone, become one convolution whose weights are computed."""
    for norm in list(graph.nodes):
        conv = _convolution_before(norm, static)
        if conv is None:
            continue
        x, weight, bias, *how = conv.args
        weight, bias = _folded(graph, norm, weight, bias, norm.args[1:5], norm.args[6])
        with graph.inserting_before(norm):
            made = graph.call_function(_aten.convolution.default, (x, weight, bias, *how))
        made.meta = dict(conv.meta)
        for user in list(norm.users):
            if user.args[1] == 0:
                user.replace_all_uses_with(made)
            graph.erase_node(user)
        graph.erase_node(norm)
        graph.erase_node(conv)


def _convolution_before(norm: torch.fx.Node, static: set[torch.fx.Node]) -> torch.fx.Node | None:
    """The convolution whose result a batch norm alone gets, if nothing but that is used, and all else are float32 parameters."""
    if norm.target is not _BATCH_NORM or any(u.args[1] != 0 and u.users for u in norm.users):
        return None
    conv, *parameters = norm.args[:5]
    if not isinstance(conv, torch.fx.Node) or conv.target is not _aten.convolution.default or len(conv.users) != 1:
        return None
    weight, bias, transposed = conv.args[1], conv.args[2], conv.args[6]
    tensors = [p for p in (weight, bias, *parameters) if p is not None]
    frozen = all(isinstance(p, torch.fx.Node) and p in static and p.meta["val"].dtype is torch.float32 for p in tensors)
    return conv if frozen and not transposed else None


def _folded(
    graph: torch.fx.Graph, norm: torch.fx.Node, weight: Any, bias: Any, parameters: Sequence[Any], eps: float
) -> tuple[torch.fx.Node, torch.fx.Node]:
    """The weight and the bias of the convolution that also normalises."""

    def call(target: Any, *args: Any) -> torch.fx.Node:
        with graph.inserting_before(norm):
            made = graph.call_function(target, args)
        made.meta = {"val": target(*(a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in args))}
        return made

    gain, shift, mean, var = parameters
    scale = call(_aten.rsqrt.default, call(_aten.add.Scalar, var, eps))
    if gain is not None:
        scale = call(_aten.mul.Tensor, scale, gain)
    column = call(_aten.view.default, scale, [-1] + [1] * (weight.meta["val"].dim() - 1))
    centre = call(_aten.neg.default, mean) if bias is None else call(_aten.sub.Tensor, bias, mean)
    moved = call(_aten.mul.Tensor, centre, scale)
    if shift is not None:
        moved = call(_aten.add.Tensor, moved, shift)
    return call(_aten.mul.Tensor, weight, column), moved


# ------------------------------------------------------------------------- packed weights
WEIGHTS_PER_ACTIVATION = 4
"""From so many on, oneDNN's conversion of the weights in each call costs more than the rest of a convolution's memory."""


def _pack_convolutions(graph: torch.fx.Graph, constant: set[torch.fx.Node]) -> bool:
    """Let convolutions with many weights for each activation read weights in oneDNN's own order; were there any?"""
    pack = getattr(torch.ops.mkldnn, "_reorder_convolution_weight", None)
    packed = getattr(torch.ops.mkldnn, "_convolution_pointwise", None)
    if not torch.backends.mkldnn.is_available() or pack is None or packed is None:  # type: ignore[no-untyped-call]
        return False
    found = False
    for conv in list(graph.nodes):
        if conv.target is not _aten.convolution.default or conv.args[6]:
            continue
        x, weight, bias, stride, padding, dilation, _, _, groups = conv.args
        if weight not in constant or not _worth_packing(x.meta["val"], weight.meta["val"]):
            continue
        if not conv.meta["val"].is_contiguous() and any(u.op == "output" for u in conv.users):
            continue
        with graph.inserting_before(conv):
            sizes = list(x.meta["val"].shape)
            reordered = graph.call_function(pack.default, (weight, padding, stride, dilation, groups, sizes))
            made = graph.call_function(
                packed.default, (x, reordered, bias, padding, stride, dilation, groups, "none", [], "")
            )
        reordered.meta = {"val": weight.meta["val"]}
        made.meta = {**conv.meta, "val": conv.meta["val"].contiguous(memory_format=torch.channels_last)}
        # Its result has the channels innermost. The user gets the strides that the graph promises.
        conv.replace_all_uses_with(made, delete_user_cb=lambda user: user.op != "output")
        if conv.users:
            with graph.inserting_after(made):
                copy = graph.call_function(_aten.clone.default, (made,), {"memory_format": torch.contiguous_format})
            copy.meta = dict(conv.meta)
            conv.replace_all_uses_with(copy)
        graph.erase_node(conv)
        found = True
    return found


def _worth_packing(x: torch.Tensor, weight: torch.Tensor) -> bool:
    if x.device.type != "cpu" or x.dtype is not torch.float32 or weight.dtype is not torch.float32 or x.dim() != 4:
        return False
    if weight.shape[2:].numel() == 1:
        return False  # a product of matrices: oneDNN reads its weights as they are
    return all(type(n) is int for n in x.shape) and weight.numel() >= WEIGHTS_PER_ACTIVATION * x.numel() > 0


# ------------------------------------------------------------------------- the cut
def _is_plain(node: torch.fx.Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and val.layout is torch.strided and all(type(n) is int for n in val.shape)


def _constant_nodes(graph: torch.fx.Graph, static: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, None]:
    """What follows from static inputs alone and is not larger than they are, in the graph's order.

    Weights that are stored small and made larger where they are used (8 bits, for one) shall stay small.
    """
    sources: dict[torch.fx.Node, frozenset[torch.fx.Node]] = {n: frozenset((n,)) for n in static}
    found: dict[torch.fx.Node, None] = {}
    for node in graph.nodes:
        operands = node.all_input_nodes
        if node.op != "call_function" or not operands or not all(n in sources for n in operands):
            continue
        below = frozenset().union(*(sources[n] for n in operands))
        fits = _bytes(node) <= sum(map(_bytes, below)) or _is_view(node)
        if (_is_view(node) or _is_function(node)) and fits:
            sources[node] = below
            found[node] = None
    return found


def _is_view(node: torch.fx.Node) -> bool:
    return node.target in _VIEWS


def _bytes(node: torch.fx.Node) -> int:
    val = node.meta.get("val")
    return sum(
        v.numel() * v.dtype.itemsize for v in (val if isinstance(val, (tuple, list)) else (val,)) if v is not None
    )


def _is_function(node: torch.fx.Node) -> bool:
    """Does the node give the same tensors whenever its operands are the same, without any other effect?"""
    op, val = node.target, node.meta.get("val")
    if not isinstance(op, torch._ops.OpOverload) or is_mutable(op):
        return False
    if op.namespace not in ("aten", "prims") and op._opname != "_reorder_convolution_weight":
        return False
    if draws(op) or "empty" in op._opname:
        return False
    results = val if isinstance(val, (tuple, list)) else (val,)
    return all(isinstance(v, torch.Tensor) and all(type(n) is int for n in v.shape) for v in results)


def _wanted(known: dict[torch.fx.Node, None]) -> list[torch.fx.Node]:
    """Results of the constant part: tensors that the rest reads, that take some computation, and that nobody outside gets."""
    computed: set[torch.fx.Node] = set()
    for node in known:
        if not _is_view(node) or any(n in computed for n in node.all_input_nodes):
            computed.add(node)
    wanted: list[torch.fx.Node] = []
    inside = set(known)
    for node in reversed(known):
        outside = [u for u in node.users if u not in inside]
        if not outside:
            continue
        # A result of the graph is the user's own tensor in each call.
        private = isinstance(node.meta["val"], torch.Tensor) and all(u.op != "output" for u in outside)
        if private and node in computed:
            wanted.append(node)
        else:
            inside.discard(node)
    return wanted[::-1]


def _constant_part(
    gm: torch.fx.GraphModule, wanted: Sequence[torch.fx.Node]
) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
    """A graph that computes these nodes, and the inputs that it takes."""
    needed = ancestors(wanted)
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in gm.graph.nodes:
        if node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[n] for n in wanted))
    return torch.fx.GraphModule({}, graph), [n for n in copies if n.op == "placeholder"]


def _cut(
    gm: torch.fx.GraphModule,
    placeholders: Sequence[torch.fx.Node],
    known: dict[torch.fx.Node, None],
    wanted: Sequence[torch.fx.Node],
) -> list[torch.fx.Node]:
    """Let the graph take these nodes as inputs, behind those that it still needs, which are returned."""
    graph, last = gm.graph, placeholders[-1]
    for node in wanted:
        with graph.inserting_after(last):
            last = graph.create_node("placeholder", f"frozen_{node.name}", name=f"frozen_{node.name}")
        last.target = last.name
        last.meta = {"val": node.meta["val"]}
        node.replace_all_uses_with(last)
    read = {node for node in placeholders if node.users}
    for node in reversed(known):
        if not node.users:
            graph.erase_node(node)
    # An input that nothing read before stays: it may be asked for by position.
    kept = [n for n in placeholders if n.users or n not in read]
    for node in read.difference(kept):
        graph.erase_node(node)
    gm.recompile()
    return kept
