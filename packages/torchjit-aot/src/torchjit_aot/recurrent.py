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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import attrs
import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

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


@final
@attrs.frozen(eq=False)
class _Call:
    """What is no tensor in a call; see the schemas.

    Attributes:
        autocast: the dtype of autocast, if it is on.
        needed: for data, states and weights: is its gradient wanted?
        once: for the same: does autocast cast it once, however often it is used?
    """

    kind: str
    biases: bool
    layers: int
    dropout: float
    train: bool
    both_ways: bool
    batch_first: bool
    dtype: torch.dtype
    state_dtype: torch.dtype
    autocast: torch.dtype | None
    needed: tuple[bool, ...] = ()
    once: tuple[bool, ...] = ()

    @property
    def random(self) -> bool:
        """Does it draw random numbers?"""
        return self.train and self.dropout > 0 and self.layers > 1

    @property
    def options(self) -> tuple[Any, ...]:
        return (
            self.biases, self.layers, self.dropout, self.train, self.both_ways, self.batch_first,
            self.dtype, self.state_dtype, self.autocast, list(self.needed), list(self.once),
        )  # fmt: skip

    def run(self, data: Any, batches: Any, states: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Call torch's function: its result and the final states."""
        state = tuple(states) if self.kind == "lstm" else states[0]
        options = (self.biases, self.layers, self.dropout, self.train, self.both_ways)
        with torch.autocast(data.device.type, self.autocast, enabled=self.autocast is not None):
            if batches is not None:
                return list(_BY_NAME[self.kind](data, batches, state, list(weights), *options))
            return list(_BY_NAME[self.kind](data, state, list(weights), *options, self.batch_first))


def read_by_recurrent_layers(graph: fx.Graph) -> set[fx.Node]:
    """What layers with a backward read: it should be saved, since autograd holds it in any case."""
    return {source for node in graph.nodes if node.target in _REMEMBERING for source in node.all_input_nodes}


# ----------------------------------------------------------------------------------------------- while a graph is traced


def run_recurrent(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call one of the functions of `RECURRENT` on fakes, as one operator.

    Returns:
        What it returns; NotImplemented where torch has to take it apart (under transforms), or raise its own error.
    """
    if kwargs or len(args) != 9 or _is_under_transform():
        return NotImplemented
    packed = not isinstance(args[3], bool)
    data, batches, state, weights, *options = (*args, False) if packed else (args[0], None, *args[1:])
    states = [state] if isinstance(state, torch.Tensor) else list(state)
    tensors = [data, *states, *weights]
    if not all(type(t) is FakeTensor and t.is_floating_point() for t in tensors):
        return NotImplemented
    if [type(o) for o in options] != [bool, int, float, bool, bool, bool]:
        return NotImplemented
    autocast = torch.get_autocast_dtype(data.device.type) if torch.is_autocast_enabled(data.device.type) else None
    call = _read(RECURRENT[function], (*options, data.dtype, data.dtype, autocast, (), ()))
    if not _states_fit(call, data, batches, states):
        return NotImplemented
    dtype, state_dtype = _dtypes(call, data, states, weights)
    call = attrs.evolve(call, dtype=dtype, state_dtype=state_dtype)
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
        return _forward_operator(call, batches, data, states, weights)[: 1 + len(states)]
    once = tuple(t.is_leaf or autocast is None for t in tensors)
    call = attrs.evolve(call, needed=tuple(t.requires_grad for t in tensors), once=once)
    return tuple(_Layer.apply(*tensors, batches, len(states), call))


def _is_under_transform() -> bool:
    """Is this a call inside of a transform of `torch.func`, or in forward mode?"""
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    return transformed or torch.autograd.forward_ad._current_level >= 0


def _states_fit(call: _Call, data: Any, batches: Any, states: Sequence[Any]) -> bool:
    """Do the initial states have the sizes that the final ones get? If not, eager PyTorch broadcasts them or raises."""
    rank = 2 if batches is not None else 3
    rows = call.layers * (2 if call.both_ways else 1)
    if data.dim() != rank or any(s.dim() != 3 or s.size(0) != rows for s in states):
        return False
    if batches is not None:
        return all(s.size(1) == states[0].size(1) for s in states)
    return all(s.size(1) == data.size(0 if call.batch_first else 1) for s in states)


def _dtypes(call: _Call, data: Any, states: Sequence[Any], weights: Sequence[Any]) -> tuple[torch.dtype, torch.dtype]:
    """The dtypes of result and final states, from a layer over one step; raises what torch raises for wrong sizes."""
    step = attrs.evolve(call, batch_first=False)
    with _disable_current_modes(), data.fake_mode, enable_python_dispatcher(), torch.no_grad():
        short = torch.empty((1, states[0].size(1), data.size(-1)), dtype=data.dtype, device=data.device)
        made = step.run(short, None, states, weights)
    if call.autocast is not None and data.device.type == "cuda" and data.dtype != torch.float64:
        return call.autocast, call.autocast  # there all kernels of these layers are cast to
    return made[0].dtype, made[1].dtype


def _forward_operator(call: _Call, batches: Any, data: Any, states: Any, weights: Any) -> tuple[Any, ...]:
    name = ("remember" if any(call.needed) else "forward") + ("_random" if call.random else "")
    with torch._C._AutoDispatchBelowAutograd():
        made: tuple[Any, ...] = getattr(_OPERATORS, name).default(
            call.kind, data, batches, list(states), list(weights), *call.options
        )
    return made


class _Layer(torch.autograd.Function):
    """The operators with their autograd; it is applied while a graph is traced."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        *tensors, batches, count, call = args  # what is no tensor comes last: it has no edge
        data, *rest = tensors
        *made, state = _forward_operator(call, batches, data, rest[:count], rest[count:])
        ctx.call, ctx.count = call, count
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(state, batches, *tensors)
        return tuple(made[: 1 + count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        state, batches, data, *rest = ctx.saved_tensors
        call, count = ctx.call, ctx.count
        with torch._C._AutoDispatchBelowAutograd():
            found = iter(
                _OPERATORS.backward.default(
                    state, list(gradients), call.kind, data, batches, rest[:count], rest[count:], *call.options
                )
            )
        return (*[next(found) if needed else None for needed in call.needed], None, None, None)


# ---------------------------------------------------------------------------------------------------- when the graph runs


def _read(kind: str, options: Sequence[Any]) -> _Call:
    names = [field.name for field in attrs.fields(_Call)][1:]
    given: dict[str, Any] = dict(zip(names, options, strict=True))
    return _Call(kind, **{**given, "needed": tuple(given["needed"]), "once": tuple(given["once"])})


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

    def __init__(self, call: _Call, data: Any, batches: Any, states: Any, weights: Any) -> None:
        with _autograd_works():
            given = (data, *states, *weights)
            own = [t.detach() for t in given]
            # Of its own: a graph may hold initial states in one place and save them in another, as it does with zeros.
            own[1 : 1 + len(states)] = [t.detach().clone() for t in states]
            self.leaves = [t.requires_grad_(n) for t, n in zip(own, call.needed, strict=True)]
            # Autocast casts a leaf once for all steps, so that its gradient is summed up in the lower precision.
            first, *rest = [
                leaf if once else leaf.view_as(leaf) for leaf, once in zip(self.leaves, call.once, strict=True)
            ]
            self.results = call.run(first, batches, rest[: len(states)], rest[len(states) :])
        self.spent = False
        self._shared = [leaf for n, leaf in enumerate(self.leaves) if not 1 <= n <= len(states)]
        self._lock = threading.Lock()

    def gradients(self, results: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
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

    def saw(self, data: torch.Tensor, weights: Sequence[torch.Tensor]) -> bool:
        """Are these tensors the memory that it read, and is there still what autograd remembers of it?"""
        return not self.spent and all(
            leaf.data_ptr() == t.data_ptr() and leaf.stride() == t.stride()
            for leaf, t in zip(self._shared, (data, *weights), strict=True)
        )


def _run_forward(kind: str, data: Any, batches: Any, states: Any, weights: Any, *options: Any) -> tuple[Any, ...]:
    call = _read(kind, options)
    made = _conformed(call, call.run(data, batches, states, weights), data, states)
    return (*made, data.new_empty(0, dtype=torch.uint8))


def _run_remembering(kind: str, data: Any, batches: Any, states: Any, weights: Any, *options: Any) -> tuple[Any, ...]:
    call = _read(kind, options)
    state: Any = _random_state(data.device) if call.random else data.new_empty(0, dtype=torch.uint8)
    state.remembered = _Remembered(call, data, batches, states, weights)
    results = [r.detach().clone() if _is_remembered(r) else r.detach() for r in state.remembered.results]
    return (*_conformed(call, results, data, states), state)


def _run_backward(
    state: Any, gradients: Any, kind: str, data: Any, batches: Any, states: Any, weights: Any, *options: Any
) -> list[torch.Tensor]:
    call = _read(kind, options)
    remembered = getattr(state, "remembered", None)
    if remembered is None or not remembered.saw(data, weights):
        with _random_numbers_from(state, data.device) if call.random else contextlib.nullcontext():
            remembered = _Remembered(call, data, batches, states, weights)
    pairs = [(r, g) for r, g in zip(remembered.results, gradients, strict=True) if g is not None and r.requires_grad]
    wanted = [leaf for leaf in remembered.leaves if leaf.requires_grad]
    found = remembered.gradients([r for r, _ in pairs], [g.to(r.dtype) for r, g in pairs])
    return [_like(g, leaf) for g, leaf in zip(found, wanted, strict=True)]


def _keeps_graph() -> bool:
    """May the running backward be asked for again (`retain_graph`)?"""
    asked = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return asked is None or torch._C._current_graph_task_id() < 0 or bool(asked())


def _is_remembered(result: torch.Tensor) -> bool:
    """May autograd remember the memory of the result, which the graph may write to?"""
    node: Any = result.grad_fn
    while node is not None and node.name() == "TransposeBackward0":
        node = node.next_functions[0][0]
    return node is None or node.name() not in _FUSED


def _conformed(call: _Call, results: Sequence[torch.Tensor], data: Any, states: Any) -> list[torch.Tensor]:
    """The results in the layout and with the dtypes that the trace promised; an empty tensor for a missing cell state."""
    promised = _layouts(call, data, states)
    made = [_into(r, like) for r, like in zip(results, promised, strict=False)]
    return made if len(made) == 3 else [*made, data.new_empty(0)]


def _into(result: torch.Tensor, like: tuple[Any, ...]) -> torch.Tensor:
    sizes, strides, dtype = like
    if result.dtype is dtype and tuple(result.stride()) == strides and tuple(result.shape) == sizes:
        return result
    if tuple(result.shape) != sizes:
        raise RuntimeError(f"a recurrent layer gave {tuple(result.shape)} where its initial states tell {sizes}")
    made = torch.empty_strided(sizes, strides, dtype=dtype, device=result.device)
    return made.copy_(result)


def _like(gradient: torch.Tensor | None, leaf: torch.Tensor) -> torch.Tensor:
    """In the layout of what it is the gradient of; zeros where there is none."""
    leaf = leaf.detach()
    if gradient is None:
        return torch.zeros_like(leaf)
    made = torch.empty_like(leaf)
    return gradient if gradient.stride() == made.stride() else made.copy_(gradient)


def _layouts(call: _Call, data: Any, states: Any) -> list[tuple[Any, ...]]:
    """Sizes, strides and dtype of result and final states."""
    features = states[0].size(2) * (2 if call.both_ways else 1)
    result: tuple[Any, ...]
    if data.dim() == 2:
        result = ((data.size(0), features), (features, 1), call.dtype)
    elif call.batch_first:
        batch, steps = data.size(0), data.size(1)
        result = ((batch, steps, features), (features, batch * features, 1), call.dtype)
    else:
        steps, batch = data.size(0), data.size(1)
        result = ((steps, batch, features), (batch * features, features, 1), call.dtype)
    of_states = [(tuple(s.shape), (s.size(1) * s.size(2), s.size(2), 1), call.state_dtype) for s in states]
    return [result, *of_states]


_LENGTHS = {"cpu": torch.Generator("cpu").get_state().numel()}
"""How many bytes the state of a device's generator has; other devices have a seed and an offset."""


def _random_state(device: torch.device) -> torch.Tensor:
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


@contextlib.contextmanager
def _random_numbers_from(state: torch.Tensor, device: torch.device) -> Iterator[None]:
    """The generator starts from `state`, and is what it was before when the block ends."""
    before = _random_state(device)
    write: Any = torch.set_rng_state if device.type == "cpu" else lambda s: torch.cuda.set_rng_state(s, device)
    write(state.cpu())
    try:
        yield
    finally:
        write(before)


def _fake(kind: str, data: Any, batches: Any, states: Any, weights: Any, *options: Any) -> tuple[Any, ...]:
    call = _read(kind, options)
    made = [
        torch.empty_strided(sizes, strides, dtype=dtype, device=data.device)
        for sizes, strides, dtype in _layouts(call, data, states)
    ]
    if len(made) < 3:
        made.append(data.new_empty(0))
    if call.random and any(call.needed):
        state = torch.empty(_LENGTHS.get(data.device.type, 16), dtype=torch.uint8, device="cpu")
    else:
        state = data.new_empty(0, dtype=torch.uint8)
    return (*made, state)


def _fake_backward(
    state: Any, gradients: Any, kind: str, data: Any, batches: Any, states: Any, weights: Any, *options: Any
) -> list[Any]:
    given = [data, *states, *weights]
    return [torch.empty_like(t) for t, needed in zip(given, options[-2], strict=True) if needed]


for _name, _function, _shape in (
    ("forward", _run_forward, _fake),
    ("forward_random", _run_forward, _fake),
    ("remember", _run_remembering, _fake),
    ("remember_random", _run_remembering, _fake),
    ("backward", _run_backward, _fake_backward),
):
    _LIBRARY.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torchjit_recurrent::{_name}", _shape, lib=_LIBRARY)
