"""The dispatch mode that writes the joint graph: every aten call becomes a node, as it is made."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import attrs
import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from torchjit_aot.kernel_dtypes import with_kernel_dtypes
from torchjit_aot.refusals import METADATA_MUTATION, RANDOM_IN_BACKWARD, SUBCLASS, TRACE_FAILED
from torchjit_aot.selective import what_to_do
from torchjit_aot.symbols import SYMBOLIC_TYPES, SymbolNodes
from torchjit_core.reasons import GraphBreak
from torchjit_torch.layouts import storage_key
from torchjit_torch.node_meta import BACKWARD, CHECKPOINT_POLICY, RECOMPUTE
from torchjit_torch.operators import is_random, out_of_place, writes_metadata, writes_to

__all__ = ["SOURCE_KEYS", "Recorder", "ViewStep", "add_placeholder"]

aten = torch.ops.aten
_DEVICE = torch.ops.prim.device.default
_SAME_VALUE = frozenset({aten.detach.default, aten.alias.default})
_LIFTS = frozenset({aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.lift.default})

SOURCE_KEYS = (
    "stack_trace",
    "location",
    "module_path",
    "nn_module_stack",
    "recompute",
    "ac_graph_id",
    "torchjit_block",
)
"""The parts of a torch-level node's meta that its aten nodes inherit."""


@final
@attrs.frozen(eq=False)
class ViewStep:
    """How one tensor was made from another that shares its storage.

    Attributes:
        parent: the tensor it was made from.
        func, args, kwargs: the operator and its arguments after the first.
        index: which item of the operator's result; None: the result is the tensor.
        grad_mode: was grad mode on?
    """

    parent: torch.Tensor
    func: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    index: int | None
    grad_mode: bool


def add_placeholder(graph: fx.Graph, name: str) -> fx.Node:
    """A placeholder whose name and parameter are as wanted, or with a number where this name is taken."""
    node = graph.create_node("placeholder", name, name=name)
    node.target = node.name
    return node


def _shares_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout != torch.strided or b.layout != torch.strided:
        return False
    return storage_key(a) == storage_key(b)


def _put_value(node: fx.Node, old: torch.Tensor, new: torch.Tensor) -> None:
    """Let the node's value be `new` where it was `old`; also in the list that it was taken from."""
    if node.meta["val"] is not old:
        return
    node.meta["val"] = new
    whole = node.args[0] if node.target is operator.getitem else None
    if isinstance(whole, fx.Node):
        whole.meta["val"] = type(whole.meta["val"])([new if item is old else item for item in whole.meta["val"]])


@final
class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes the aten operators that run under it, on fake tensors, to an `fx.Graph`.

    A tensor is known by its identity; all tensors are kept alive until the trace ends, so identities are not reused.
    A tensor that is written in place keeps its first node: reads after the write refer to it too, and it is the
    functionalization pass that gives them the new value.

    Args:
        fake_mode: the mode below.
        decompositions: operators to take apart as they come.

    Attributes:
        graph: the graph so far.
        constants: the real tensors that the trace met, with their placeholders.
        views: how tensors were made from others, by id.
        snapshots: ids of tensors that stand for another one as it was before its sizes were changed in place.
        written: did an operator with a mutable argument run?
        reshaped: what changed sizes or strides of graph inputs in place: (the input's number, operator, other arguments),
            to be done to the real inputs at the end.
        viewed: the graph inputs of which a view had its sizes or strides changed in place: from their numbers to the node of
            the last change.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap each dispatch in a call that only matters to its own compiler

    def __init__(
        self, fake_mode: FakeTensorMode, decompositions: Mapping[OpOverload, Callable[..., Any]] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.decompositions = decompositions or {}
        self.fake_mode = fake_mode
        self.graph = fx.Graph()
        self.symbols = SymbolNodes(self.graph)
        self.constants: list[tuple[fx.Node, torch.Tensor]] = []
        self.views: dict[int, ViewStep] = {}
        self.snapshots: set[int] = set()
        self.written = False
        self.reshaped: list[tuple[int, OpOverload, tuple[Any, ...]]] = []
        self.viewed: dict[int, fx.Node] = {}
        self._number: dict[int, int] = {}
        self._nodes: dict[int, fx.Node] = {}
        self._alive: list[Any] = []
        self._inputs: set[int] = set()
        self._constant_fakes: dict[int, FakeTensor] = {}
        self._source: dict[str, Any] = {}
        self._policy: Callable[..., Any] | None = None
        self._starts: list[int] = []
        self._sources: list[dict[str, Any]] = []
        self._backward = False
        if (deferred := getattr(fake_mode.shape_env, "deferred", None)) is not None:
            deferred.clear()  # what the capture relied on, about its own symbols: the graph's calls test that

    # ---------------------------------------------------------------- what the driver of the trace calls

    def placeholder(self, name: str, value: Any, *, is_input: bool = True) -> fx.Node:
        """Add a graph input whose traced value is `value` (a fake tensor, `SymInt` or number)."""
        node = add_placeholder(self.graph, name)
        node.meta["val"] = value
        if isinstance(value, torch.Tensor):
            self.track(value, node)
            if is_input:
                self._number[id(value)] = len(self._inputs)
                self._inputs.add(id(value))
        elif isinstance(value, SYMBOLIC_TYPES):
            self.symbols.bind(value, node)
        return node

    def placeholder_first(self, name: str, value: torch.Tensor) -> fx.Node:
        """A placeholder for a tangent: it comes before the nodes that there are."""
        node = self._new_placeholder(name)
        node.meta["val"] = value
        self.track(value, node)
        return node

    def track(self, tensor: torch.Tensor, node: fx.Node) -> None:
        """From now on `node` is the value of `tensor`."""
        self._nodes[id(tensor)] = node
        self._alive.append(tensor)

    def enter(self, node: fx.Node) -> None:
        """The torch-level `node` is about to run: what is recorded next is its doing."""
        self.write_checks()
        self._source = {key: node.meta[key] for key in SOURCE_KEYS if key in node.meta}
        self._policy = CHECKPOINT_POLICY.of(node)
        self._starts.append(torch._C._autograd._get_sequence_nr())
        self._sources.append(self._source)

    def write_checks(self) -> None:
        """Test, when the graph runs, what operations supposed about numbers that only the run knows."""
        deferred = getattr(self.fake_mode.shape_env, "deferred", None)
        while deferred:
            condition, text = deferred.pop(0)
            holds = self.symbols.node_of_text(str(condition))
            if isinstance(holds, fx.Node):
                text = text or self._unmet(condition)
                self._call(torch.ops.aten._assert_scalar.default, (holds, text), {}, None)

    def _unmet(self, condition: Any) -> str:
        """What to say if an operation's condition fails: what it is, where it comes from, and what its numbers are."""
        said = f"the compiled graph relies on {condition}, which does not hold in this run"
        where = self._source.get("location")
        if where is not None:
            said += f"; at {where}: {where.line().strip()}"
        for name in sorted(s.name for s in getattr(condition, "symbols", ())):
            origin = self.symbols.source(name)
            place = None if origin is None else origin.meta.get("location")
            if place is not None:
                said += f"; {name} comes from {place}: {place.line().strip()}"
        return said

    def enter_backward(self) -> None:
        """What is recorded from now on belongs to the backward."""
        self._backward = True

    def node_of(self, value: Any) -> Any:
        """The node of a tensor or symbolic number; any other value is itself.

        Raises:
            GraphBreak: it is a tensor that no operator of the trace made, but a class out of several.
        """
        if isinstance(value, torch.Tensor):
            if id(value) not in self._nodes:
                raise GraphBreak(SUBCLASS, f"a {type(value).__name__} where a plain tensor is expected")
            return self._nodes[id(value)]
        if isinstance(value, SYMBOLIC_TYPES):
            return self.symbols.node_for(value)
        return value

    # ---------------------------------------------------------------- dispatch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        for cls in types:
            if cls is not FakeTensor and hasattr(cls, "__tensor_flatten__"):
                return NotImplemented  # its own method sees the call; what it calls comes here
        if func is _DEVICE:  # nearly half of all dispatches
            tensor = args[0]
            return tensor.fake_device if type(tensor) is FakeTensor else tensor.device
        kwargs = kwargs or {}
        if func in self.decompositions:
            with self:
                out = self.decompositions[func](*args, **kwargs)
            if out is not NotImplemented:
                return out
        if func in _LIFTS and type(args[0]) is not FakeTensor:
            return self._lift(func, args[0])
        args, kwargs = self._only_fakes(args, kwargs)
        if func in _SAME_VALUE:
            out = func(*args, **kwargs)
            self.track(out, self._nodes[id(args[0])])
            self._remember_view(out, func, args, kwargs, None)
            return out
        if writes_metadata(func):
            return self._write_metadata(func, args, kwargs)
        node_args = self._to_nodes(args)
        node_kwargs = {key: self._to_nodes(value) for key, value in kwargs.items()}
        out = with_kernel_dtypes(func, args, func(*args, **kwargs))
        self._record(func, args, kwargs, node_args, node_kwargs, out)
        return out

    def _record(self, func: Any, args: Any, kwargs: Any, node_args: Any, node_kwargs: Any, out: Any) -> None:
        written = writes_to(func)
        if written:
            self.written = True
            if func.name().startswith("aten::_foreach_"):  # on real tensors these move versions, on fakes not
                lists = [args[a] if isinstance(a, int) else kwargs[a] for a in written]
                torch._C._increment_version([t for tensors in lists for t in tensors])
        elif isinstance(out, (int, float, bool)):
            return
        node = self._call(func, node_args, node_kwargs, out)
        if isinstance(out, SYMBOLIC_TYPES):
            self.symbols.bind(out, node)
            return
        if self._policy is not None and not self._backward:
            RECOMPUTE.put(node, what_to_do(self._policy, func, args, kwargs, out))
        if isinstance(out, torch.Tensor):
            self._bind(out, node, func, args, kwargs, None)
        elif isinstance(out, (tuple, list)):
            self._bind_items(out, node, func, args, kwargs)

    def _bind_items(self, out: Sequence[Any], node: fx.Node, func: OpOverload, args: Any, kwargs: Any) -> None:
        for index, item in enumerate(out):
            if isinstance(item, torch.Tensor) and id(item) not in self._nodes:
                part = self._call(operator.getitem, (node, index), {}, item)
                if RECOMPUTE.marks(node):
                    part.meta[RECOMPUTE.name] = node.meta[RECOMPUTE.name]
                self._bind(item, part, func, args, kwargs, index)

    def _bind(self, out: torch.Tensor, node: fx.Node, func: Any, args: Any, kwargs: Any, index: int | None) -> None:
        if id(out) not in self._nodes:
            if out.requires_grad:  # torch computes some sizes by code that makes the result a leaf: autograd is above
                out.requires_grad_(False)
            self.track(out, node)
            if self.fake_mode.shape_env is not None:
                self.symbols.bind_unknown(out, node)
            self._remember_view(out, func, args, kwargs, index)

    def _remember_view(self, out: torch.Tensor, func: Any, args: Any, kwargs: Any, index: int | None) -> None:
        returns = func._schema.returns
        alias = returns[0 if len(returns) == 1 else (index or 0)].alias_info
        if not args or not isinstance(args[0], torch.Tensor) or (alias is not None and alias.is_write):
            return
        if alias is None and not _shares_storage(out, args[0]):  # unsafe_split and its like do not say so
            return
        self.views[id(out)] = ViewStep(args[0], func, tuple(args[1:]), kwargs, index, torch.is_grad_enabled())

    def _call(self, target: Any, args: Any, kwargs: Any, value: Any) -> fx.Node:
        node = self.graph.create_node("call_function", target, args, kwargs)
        meta = node.meta
        meta["val"] = value
        running = torch._C._current_autograd_node() if self._backward else None
        if running is None:
            meta.update(self._source)
            meta["seq_nr"] = torch._C._autograd._get_sequence_nr() - 1
        else:
            meta["seq_nr"] = number = running._sequence_nr()
            position = bisect.bisect_right(self._starts, number) - 1
            if position >= 0:
                meta.update(self._sources[position])
        if self._backward:
            meta[BACKWARD.name] = True
            if is_random(target):
                raise GraphBreak(RANDOM_IN_BACKWARD, str(target))
        return node

    # ---------------------------------------------------------------- arguments

    def _to_nodes(self, value: Any) -> Any:
        kind = type(value)
        if kind is FakeTensor:
            try:
                return self._nodes[id(value)]
            except KeyError:
                raise GraphBreak(TRACE_FAILED, "a fake tensor that the trace did not make") from None
        if isinstance(value, (tuple, list)):
            made = [self._to_nodes(v) for v in value]
            return tuple(made) if kind is tuple else made
        if kind in SYMBOLIC_TYPES:
            return self.symbols.node_for(value)
        if kind is torch.Generator:
            raise GraphBreak(TRACE_FAILED, "a random generator of the program's own")
        return value

    def _only_fakes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments, with fakes for the real tensors among them."""
        if self._all_fake(args) and self._all_fake(tuple(kwargs.values())):
            return args, kwargs
        return tree_map_only(torch.Tensor, self._fake_of, (args, kwargs))  # type: ignore[no-any-return]

    def _all_fake(self, values: Sequence[Any]) -> bool:
        for value in values:
            if isinstance(value, torch.Tensor):
                if type(value) is not FakeTensor:
                    return False
            elif isinstance(value, (tuple, list)) and not self._all_fake(value):
                return False
        return True

    def _fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if type(tensor) is FakeTensor else self._constant(tensor)

    def _constant(self, real: torch.Tensor) -> FakeTensor:
        found = self._constant_fakes.get(id(real))
        if found is not None:
            return found
        if type(real) not in (torch.Tensor, torch.nn.Parameter):
            raise GraphBreak(SUBCLASS, f"a constant of type {type(real).__name__}")
        if real.requires_grad:
            raise GraphBreak(TRACE_FAILED, "a tensor that requires grad is used but is no input of the graph")
        fake = torch.empty_strided(
            real.size(), real.stride(), dtype=real.dtype, device=real.device
        )  # the recorder is off inside its own handler, the fake mode is on
        node = self._new_placeholder(f"constant{len(self.constants)}")
        node.meta["val"] = fake
        self.track(fake, node)
        self._inputs.add(id(fake))
        self.constants.append((node, real))
        self._constant_fakes[id(real)] = fake  # type: ignore[assignment]
        self._alive.append(real)
        return fake  # type: ignore[return-value]

    def _new_placeholder(self, name: str) -> fx.Node:
        first = next(iter(self.graph.nodes), None)
        if first is None:
            return add_placeholder(self.graph, name)
        with self.graph.inserting_before(first):
            return add_placeholder(self.graph, name)

    def _lift(self, func: Any, real: torch.Tensor) -> Any:
        """`torch.tensor(...)` inside the graph: a number becomes `full`, a larger tensor a constant input, cloned."""
        out = func(real)
        if real.dim() == 0:
            options = {"dtype": real.dtype, "device": real.device, "pin_memory": False}
            with torch._C._DisableTorchDispatch():
                number = real.item()
            node = self._call(aten.full.default, ([], number), options, out)
        else:
            constant = self._nodes[id(self._constant(real))]
            node = self._call(aten.clone.default, (constant,), {}, out)
        self.track(out, node)
        return out

    def _may_reshape(self, tensor: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Can the change be done to the real input at the end? Not if autograd or a symbolic number takes part."""
        plain = all(isinstance(a, (int, list, tuple)) for a in args[1:]) and not kwargs
        return id(tensor) in self._number and not tensor.requires_grad and plain

    def _inputs_behind(self, view: torch.Tensor) -> set[int]:
        others = (t for t in self._alive if id(t) in self._number and t is not view)
        return {self._number[id(t)] for t in others if _shares_storage(t, view)}

    def _write_metadata(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """`t_`, `unsqueeze_` ...: record the out-of-place operator and bind its node to the same tensor object."""
        tensor = args[0]
        functional = out_of_place(func)
        if functional is None or (id(tensor) in self._inputs and not self._may_reshape(tensor, args, kwargs)):
            raise GraphBreak(METADATA_MUTATION, str(func))
        if tensor.requires_grad and tensor._is_view():
            # a later write's gradient lands in the wrong elements: autograd on fakes keeps the strides from before
            raise GraphBreak(METADATA_MUTATION, f"{func} of a view under autograd")
        if id(tensor) in self._inputs:
            self.reshaped.append((self._number[id(tensor)], func, tuple(args[1:])))
        node = self._nodes[id(tensor)]
        before = aten.detach.default(tensor)
        self.track(before, node)
        self.snapshots.add(id(before))
        _put_value(node, tensor, before)
        step = self.views.get(id(tensor))
        if step is not None:
            self.views[id(before)] = step
        for child, made_from in self.views.items():
            if made_from.parent is tensor:
                self.views[child] = attrs.evolve(made_from, parent=before)
        arguments = self._to_nodes(tuple(args[1:]))
        func(*args, **kwargs)
        made = self._call(functional, (node, *arguments), dict(kwargs), tensor)
        self.viewed.update(dict.fromkeys(self._inputs_behind(tensor), made))
        self._nodes[id(tensor)] = made
        self.views[id(tensor)] = ViewStep(before, functional, tuple(args[1:]), kwargs, None, torch.is_grad_enabled())
        return tensor
