"""Recurrent layers (`torch.gru`, `torch.lstm`, `torch.rnn_tanh`, `torch.rnn_relu`) as one operator each, forward and backward.

Traced, torch takes such a layer apart step by step. Here it is one node, which calls torch's own function when the graph runs: with
the kernels (cuDNN's, oneDNN's) and the random numbers of eager PyTorch. Where there is a backward the node runs the function under
autograd, and what autograd remembers hangs on a small tensor, `state`, that the graph hands on to the backward's node. Where that is
not what the forward left (a hook for saved tensors gave a copy of it, an argument has been computed again elsewhere), the backward's
node runs the layer once more, with the random numbers that the forward began with: they are the elements of `state`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from torchjit_aot.refusals import TRACE_FAILED
from torchjit_core.reasons import GraphBreak

__all__ = ["RECURRENT", "read_by_recurrent_layers", "run_recurrent"]

RECURRENT: dict[Any, str] = {getattr(torch._VF, name): name for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}
"""torch's functions, with their names."""
_BY_NAME = {name: function for function, name in RECURRENT.items()}

_library: Any = torch.library.Library  # the stubs leave out its types
_LIBRARY = _library("torchjit_recurrent", "DEF")
_ARGUMENTS = (
    "str kind, Tensor data, Tensor? batches, Tensor[] states, Tensor[] weights, bool biases, int layers, float dropout, bool train, "
    "bool both_ways, bool batch_first, ScalarType dtype, ScalarType state_dtype, ScalarType? autocast, bool[] needed, bool[] once"
)
_UNSAFE = torch.Tag.cudagraph_unsafe  # a replay would run no autograd
_RANDOM = torch.Tag.nondeterministic_seeded
_LIBRARY.define(f"forward({_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)")
_LIBRARY.define(f"forward_random({_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)", tags=(_RANDOM, _UNSAFE))
_LIBRARY.define(f"remember({_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)", tags=(_UNSAFE,))
_LIBRARY.define(f"remember_random({_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)", tags=(_RANDOM, _UNSAFE))
_LIBRARY.define(f"backward(Tensor state, Tensor?[] gradients, {_ARGUMENTS}) -> Tensor[]", tags=(_UNSAFE,))
_OPERATORS: Any = torch.ops.torchjit_recurrent
_REMEMBERING = frozenset({_OPERATORS.remember.default, _OPERATORS.remember_random.default})
"""The forwards that a backward follows."""

_FUSED = frozenset({"StackBackward0", "CatBackward0"})
"""Operators whose results autograd does not remember."""


def _frozen(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(values)


@final
@attrs.frozen(eq=False)
class _Call:
    """A call of a layer, with the arguments of the schemas in their order.

    Attributes:
        autocast: the dtype of autocast, if it is on.
        needed: for data, states and weights: is its gradient wanted?
        once: for the same: does autocast cast it once, however often it is used?
    """

    kind: str
    data: Tensor
    batches: Tensor | None
    states: tuple[Tensor, ...] = attrs.field(converter=_frozen)
    weights: tuple[Tensor, ...] = attrs.field(converter=_frozen)
    biases: bool
    layers: int
    dropout: float
    train: bool
    both_ways: bool
    batch_first: bool
    dtype: torch.dtype
    state_dtype: torch.dtype
    autocast: torch.dtype | None
    needed: tuple[bool, ...] = attrs.field(converter=_frozen)
    once: tuple[bool, ...] = attrs.field(converter=_frozen)

    @property
    def random(self) -> bool:
        """Does it draw random numbers?"""
        return self.train and self.dropout > 0 and self.layers > 1

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What may have a gradient."""
        return (self.data, *self.states, *self.weights)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """As the operators take them."""
        return tuple(list(v) if type(v) is tuple else v for v in attrs.astuple(self, recurse=False))

    def on(self, tensors: Sequence[Tensor]) -> _Call:
        """The same call of other tensors."""
        data, *rest = tensors
        count = len(self.states)
        return attrs.evolve(self, data=data, states=rest[:count], weights=rest[count:])

    def run(self) -> list[Tensor]:
        """Call torch's function: its result and the final states."""
        state = self.states if self.kind == "lstm" else self.states[0]
        options = (self.biases, self.layers, self.dropout, self.train, self.both_ways)
        with torch.autocast(self.data.device.type, self.autocast, enabled=self.autocast is not None):
            if self.batches is not None:
                return list(_BY_NAME[self.kind](self.data, self.batches, state, list(self.weights), *options))
            return list(_BY_NAME[self.kind](self.data, state, list(self.weights), *options, self.batch_first))

    def layouts(self) -> list[_Layout]:
        """Of the result and the final states."""
        data, features = self.data, self.states[0].size(2) * (2 if self.both_ways else 1)
        strides: tuple[int, ...]
        if data.dim() == 2:
            strides = (features, 1)
        elif self.batch_first:
            strides = (features, data.size(0) * features, 1)
        else:
            strides = (data.size(1) * features, features, 1)
        result = ((*data.shape[:-1], features), strides, self.dtype)
        of_states = [(tuple(s.shape), (s.size(1) * s.size(2), s.size(2), 1), self.state_dtype) for s in self.states]
        return [result, *of_states]


_Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Sizes, strides and dtype."""


def read_by_recurrent_layers(graph: fx.Graph) -> set[fx.Node]:
    """What layers with a backward read: it should be saved, since autograd holds it in any case."""
    return {source for node in graph.nodes if node.target in _REMEMBERING for source in node.all_input_nodes}


# ----------------------------------------------------------------------------------------------- while a graph is traced


def run_recurrent(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """Call one of the functions of `RECURRENT` on fakes, as one operator.

    Returns:
        What it returns.

    Raises:
        GraphBreak: it is no such operator under a transform of `torch.func`, nor with what eager PyTorch broadcasts or refuses.
    """
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    if kwargs or len(args) != 9 or transformed or torch.autograd.forward_ad._current_level >= 0:
        raise GraphBreak(TRACE_FAILED, "a recurrent layer under a transform")
    packed = not isinstance(args[3], bool)
    data, batches, state, *rest = (*args, False) if packed else (args[0], None, *args[1:])
    states = [state] if isinstance(state, Tensor) else state
    autocast = torch.get_autocast_dtype(data.device.type) if torch.is_autocast_enabled(data.device.type) else None
    given = (RECURRENT[function], data, batches, states, *rest, data.dtype, data.dtype, autocast, (), ())
    call = _Call(*given)
    _refuse(call)
    dtype, state_dtype = _dtypes(call)
    call = attrs.evolve(call, dtype=dtype, state_dtype=state_dtype)
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in call.tensors):
        return _forward_operator(call)[: 1 + len(states)]
    once = [t.is_leaf or autocast is None for t in call.tensors]
    call = attrs.evolve(call, needed=[t.requires_grad for t in call.tensors], once=once)
    made: Any = _Layer.apply(*call.tensors, call)
    return tuple(made)


def _refuse(call: _Call) -> None:
    """Look at a call on fakes.

    Raises:
        GraphBreak: it is of something else than floating-point numbers, or its initial states have not the sizes that the final ones
            get: eager PyTorch broadcasts them or raises.
    """
    plain = all(type(t) is FakeTensor and t.is_floating_point() for t in call.tensors)
    if not plain or [type(o) for o in call.arguments[5:11]] != [bool, int, float, bool, bool, bool]:
        raise GraphBreak(TRACE_FAILED, "a recurrent layer of something else than floating-point numbers")
    if not _states_fit(call):
        raise GraphBreak(TRACE_FAILED, "a recurrent layer whose initial states have other sizes than the final ones")


def _states_fit(call: _Call) -> bool:
    first = 0 if call.batch_first else 1
    batch = call.data.shape[first : first + 1] if call.batches is None else call.states[0].shape[1:2]
    sizes = (call.layers * (2 if call.both_ways else 1), *batch)
    rank = 3 if call.batches is None else 2
    return call.data.dim() == rank and all(s.dim() == 3 and s.shape[:2] == sizes for s in call.states)


def _dtypes(call: _Call) -> tuple[torch.dtype, torch.dtype]:
    """The dtypes of result and final states, from a layer over one step; raises what torch raises for wrong sizes."""
    data: Any = call.data
    with _disable_current_modes(), data.fake_mode, enable_python_dispatcher(), torch.no_grad():
        short = torch.empty((1, call.states[0].size(1), data.size(-1)), dtype=data.dtype, device=data.device)
        made = attrs.evolve(call, data=short, batches=None, batch_first=False).run()
    if call.autocast is not None and data.device.type == "cuda" and data.dtype != torch.float64:
        return call.autocast, call.autocast  # there all kernels of these layers are cast to
    return made[0].dtype, made[1].dtype


def _forward_operator(call: _Call) -> tuple[Tensor, ...]:
    name = ("remember" if any(call.needed) else "forward") + ("_random" if call.random else "")
    with torch._C._AutoDispatchBelowAutograd():
        made: tuple[Tensor, ...] = getattr(_OPERATORS, name).default(*call.arguments)
    return made


class _Layer(torch.autograd.Function):
    """The operators with their autograd; it is applied while a graph is traced."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        *tensors, call = args  # what is no tensor comes last: it has no edge
        call = call.on(tensors)
        *made, state = _forward_operator(call)
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(state, *tensors)
        return tuple(made[: 1 + len(call.states)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        state, *tensors = ctx.saved_tensors
        with torch._C._AutoDispatchBelowAutograd():
            found = iter(_OPERATORS.backward.default(state, list(gradients), *ctx.call.on(tensors).arguments))
        return (*[next(found) if needed else None for needed in ctx.call.needed], None)


# ---------------------------------------------------------------------------------------------------- when the graph runs


@contextlib.contextmanager
def _autograd_works() -> Iterator[None]:
    """Inside of an operator's kernel, and of a graph, autograd does not record; here it does, unseen by hooks of the program."""
    exclude = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.AutogradFunctionality, torch._C.DispatchKey.ADInplaceOrView):
        exclude = exclude.remove(key)
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), exclude), torch.enable_grad():
        if torch._C._autograd._top_saved_tensors_default_hooks(False) is None:
            yield
        else:
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
                yield


@final
class _Remembered:
    """A layer that ran under autograd.

    Attributes:
        leaves: data, states and weights, as it saw them.
        results: what it gave, with their history.
        spent: a backward has freed that.
    """

    def __init__(self, call: _Call) -> None:
        with _autograd_works():
            # States of its own: a graph may hold initial states in one place and save them in another, as it does with zeros.
            own = attrs.evolve(call, states=[t.clone() for t in call.states]).tensors
            self.leaves = [t.detach().requires_grad_(n) for t, n in zip(own, call.needed, strict=True)]
            # Autocast casts a leaf once for all steps, so that its gradient is summed up in the lower precision.
            used = [leaf if once else leaf.view_as(leaf) for leaf, once in zip(self.leaves, call.once, strict=True)]
            self.results = call.on(used).run()
        self.spent = False
        self._shared = [leaf for n, leaf in enumerate(self.leaves) if not 1 <= n <= len(call.states)]
        self._lock = threading.Lock()

    def gradients(self, results: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of the leaves that want one.

        They are summed up in the leaves: asked for by name (`autograd.grad`), the engine would first look which of all its nodes lead
        to them.
        """
        with self._lock, _autograd_works():
            keep = _keeps_graph()
            self.spent = not keep
            torch.autograd.backward(results, tangents, retain_graph=keep)
            found = [leaf.grad for leaf in self.leaves if leaf.requires_grad]
            for leaf in self.leaves:
                leaf.grad = None
        return found

    def saw(self, call: _Call) -> bool:
        """Are these tensors the memory that it read, and is there still what autograd remembers of it?"""
        return not self.spent and all(
            leaf.data_ptr() == t.data_ptr() and leaf.stride() == t.stride()
            for leaf, t in zip(self._shared, (call.data, *call.weights), strict=True)
        )


def _run_forward(*given: Any) -> tuple[Tensor, ...]:
    call = _Call(*given)
    return (*_conformed(call, call.run()), call.data.new_empty(0, dtype=torch.uint8))


def _run_remembering(*given: Any) -> tuple[Tensor, ...]:
    call = _Call(*given)
    state: Any = _random_state(call.data.device) if call.random else call.data.new_empty(0, dtype=torch.uint8)
    state.remembered = _Remembered(call)
    results = [r.detach().clone() if _is_remembered(r) else r.detach() for r in state.remembered.results]
    return (*_conformed(call, results), state)


def _run_backward(state: Tensor, gradients: Sequence[Tensor | None], *given: Any) -> list[Tensor]:
    call = _Call(*given)
    remembered = getattr(state, "remembered", None)
    if remembered is None or not remembered.saw(call):
        with _random_numbers_from(state, call.data.device) if call.random else contextlib.nullcontext():
            remembered = _Remembered(call)
    pairs = [(r, g) for r, g in zip(remembered.results, gradients, strict=True) if g is not None and r.requires_grad]
    wanted = [leaf for leaf in remembered.leaves if leaf.requires_grad]
    found = remembered.gradients([r for r, _ in pairs], [g.to(r.dtype) for r, g in pairs])
    return [_like(g, leaf) for g, leaf in zip(found, wanted, strict=True)]


def _keeps_graph() -> bool:
    """May the running backward be asked for again (`retain_graph`)?"""
    asked = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return asked is None or torch._C._current_graph_task_id() < 0 or bool(asked())


def _is_remembered(result: Tensor) -> bool:
    """May autograd remember the memory of the result, which the graph may write to?"""
    node: Any = result.grad_fn
    while node is not None and node.name() == "TransposeBackward0":
        node = node.next_functions[0][0]
    return node is None or node.name() not in _FUSED


def _conformed(call: _Call, results: Sequence[Tensor]) -> list[Tensor]:
    """The results in the layout and with the dtypes that the trace promised; an empty tensor for a missing cell state."""
    made = [_into(r, like) for r, like in zip(results, call.layouts(), strict=False)]
    return made if len(made) == 3 else [*made, call.data.new_empty(0)]


def _into(result: Tensor, like: _Layout) -> Tensor:
    sizes, strides, dtype = like
    if result.dtype is dtype and tuple(result.stride()) == strides and tuple(result.shape) == sizes:
        return result
    if tuple(result.shape) != sizes:
        raise RuntimeError(f"a recurrent layer gave {tuple(result.shape)} where its initial states tell {sizes}")
    made = torch.empty_strided(sizes, strides, dtype=dtype, device=result.device)
    return made.copy_(result)


def _like(gradient: Tensor | None, leaf: Tensor) -> Tensor:
    """In the layout of what it is the gradient of; zeros where there is none."""
    leaf = leaf.detach()
    if gradient is None:
        return torch.zeros_like(leaf)
    made = torch.empty_like(leaf)
    return gradient if gradient.stride() == made.stride() else made.copy_(gradient)


_LENGTHS = {"cpu": torch.Generator("cpu").get_state().numel()}
"""How many bytes the state of a device's generator has; other devices have a seed and an offset."""


def _random_state(device: torch.device) -> Tensor:
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


@contextlib.contextmanager
def _random_numbers_from(state: Tensor, device: torch.device) -> Iterator[None]:
    """The generator starts from `state`, and is what it was before when the block ends."""
    before = _random_state(device)
    write: Any = torch.set_rng_state if device.type == "cpu" else lambda s: torch.cuda.set_rng_state(s, device)
    write(state.cpu())
    try:
        yield
    finally:
        write(before)


def _fake(*given: Any) -> tuple[Tensor, ...]:
    call = _Call(*given)
    made = [torch.empty_strided(n, s, dtype=d, device=call.data.device) for n, s, d in call.layouts()]
    if len(made) < 3:
        made.append(call.data.new_empty(0))
    if call.random and any(call.needed):
        state = torch.empty(_LENGTHS.get(call.data.device.type, 16), dtype=torch.uint8, device="cpu")
    else:
        state = call.data.new_empty(0, dtype=torch.uint8)
    return (*made, state)


def _fake_backward(state: Tensor, gradients: Sequence[Tensor | None], *given: Any) -> list[Tensor]:
    call = _Call(*given)
    return [torch.empty_like(t) for t, needed in zip(call.tensors, call.needed, strict=True) if needed]


for _name, _function, _shape in (
    ("forward", _run_forward, _fake),
    ("forward_random", _run_forward, _fake),
    ("remember", _run_remembering, _fake),
    ("remember_random", _run_remembering, _fake),
    ("backward", _run_backward, _fake_backward),
):
    _LIBRARY.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torchjit_recurrent::{_name}", _shape, lib=_LIBRARY)
