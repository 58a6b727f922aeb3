"""Control flow that depends on tensors (`torch.cond`, `while_loop`, `scan`) in a graph: one operator that runs a program.

A captured branch or body is an fx graph; a *program* is Python over such graphs. All programs run by one operator,
`torchjit_fx::run_program`, so every backend meets an ordinary opaque operator: it has a rule for fake tensors, and its gradient is
the same operator with a program that computes the gradient. Its result shares no memory with its arguments.
"""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, final

import attrs
import torch
from torch import fx

from torchjit_core.storing import Made, maker, named_here
from torchjit_fx.leaves import Raw
from torchjit_fx.modes import AmbientState
from torchjit_torch.custom_operators import define_operator
from torchjit_torch.graph_calls import GraphCall

__all__ = ["PROGRAMS", "Branches", "ControlFlow", "Loop", "Program", "Scan", "autograd_works", "name_of"]

Tensors = Sequence[torch.Tensor]
Numbers = Sequence[Any]


class Program(Protocol):
    """What the operator runs. Equal programs are equal by `key`."""

    @property
    def key(self) -> Raw:
        """Hashable: what the program does."""

    def run(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        """The results, by differentiable operations."""

    def on_fakes(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        """Tensors with the metadata of the results, whatever the data are."""


@final
class Body:
    """A captured function.

    Args:
        graph: takes the program's tensors and numbers, gives a tuple of tensors.
        ambient: autocast as it was at capture.

    Attributes:
        key: hashable: what it does.
    """

    def __init__(self, graph: fx.GraphModule, ambient: AmbientState) -> None:
        calls = [(n.op, _identity(n.target), str(n.args), str(n.kwargs)) for n in graph.graph.nodes]
        self.key: Raw = (tuple(calls), ambient.state)
        self._call = GraphCall(graph)
        self._ambient = ambient

    @property
    def graph(self) -> fx.GraphModule | None:
        """For backends that look inside; None in a process that it comes to from disk."""
        return self._call.gm

    def __call__(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        with self._ambient.made_real():
            return list(self._call(*tensors, *numbers))


def _identity(target: Raw) -> Raw:
    """What a node calls: a text if every process knows it by that, else the object."""
    if isinstance(target, ControlFlow):
        return target.program.key
    return target if isinstance(target, str) else _name_of_torchs(target) or target


def _name_of_torchs(target: Raw) -> str | None:
    """The name of an operator, or of a function of torch's or Python's own; None where there is none that leads to the very object."""
    if isinstance(target, torch._ops.OpOverload):
        return f"operator {target}"
    if isinstance(target, types.FunctionType) and target.__globals__.get("__name__") != target.__module__:
        return None  # it stands in the place of what it is named after
    try:
        module, _, name = fx.node._get_qualified_name(target).rpartition(".")
    except (AttributeError, RuntimeError):
        return None
    module = module or "builtins"
    found = getattr(sys.modules.get(module), name, None) if module.partition(".")[0] in _KNOWN_EVERYWHERE else None
    return f"{module}.{name}" if found is target else None


_KNOWN_EVERYWHERE = frozenset({"torch", "_operator", "builtins", "math", "torchjit_fx"})
"""Modules whose functions the versions in an entry's key vouch for."""


@final
@attrs.frozen(eq=False)
class Branches:
    """`torch.cond`: the first tensor decides which of two bodies runs on the others."""

    taken: Body
    other: Body

    @property
    def key(self) -> Raw:
        return ("cond", self.taken.key, self.other.key)

    def run(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        body = self.taken if bool(tensors[0]) else self.other
        return body(tensors[1:], numbers)

    def on_fakes(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        results = self.taken(tensors[1:], numbers)
        _check_equal(results, self.other(tensors[1:], numbers), "the branches of cond")
        return results


@final
@attrs.frozen(eq=False)
class Loop:
    """`while_loop` over the first `carried` tensors; the others stay what they are."""

    condition: Body
    body: Body
    carried: int

    @property
    def key(self) -> Raw:
        return ("while_loop", self.condition.key, self.body.key, self.carried)

    def run(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        state, rest = list(tensors[: self.carried]), tensors[self.carried :]
        while bool(self.condition([*state, *rest], numbers)[0]):
            state = self.body([*state, *rest], numbers)
        return state

    def on_fakes(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        (decision,) = self.condition(tensors, numbers)
        if decision.dtype is not torch.bool or decision.dim() != 0:
            raise ValueError("the condition of while_loop gives no boolean scalar")
        state = self.body(tensors, numbers)
        _check_equal(state, tensors[: self.carried], "the state of while_loop and what its body gives")
        return state


@final
@attrs.frozen(eq=False)
class Scan:
    """`scan`: the body takes `carried` tensors and a row of each of the next `rows`; gives the next state, and a row of each output."""

    body: Body
    carried: int
    rows: int

    @property
    def key(self) -> Raw:
        return ("scan", self.body.key, self.carried, self.rows)

    def _split(self, tensors: Tensors) -> tuple[list[torch.Tensor], Tensors, Tensors]:
        end = self.carried + self.rows
        return list(tensors[: self.carried]), tensors[self.carried : end], tensors[end:]

    def run(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        state, columns, rest = self._split(tensors)
        outputs: list[list[torch.Tensor]] = []
        for row in zip(*[column.unbind(0) for column in columns], strict=True):
            results = self.body([*state, *row, *rest], numbers)
            state = results[: self.carried]
            outputs.append(results[self.carried :])
        return [*state, *[torch.stack(column).contiguous() for column in zip(*outputs, strict=True)]]

    def on_fakes(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        state, columns, rest = self._split(tensors)
        results = self.body([*state, *[column[0] for column in columns], *rest], numbers)
        _check_equal(results[: self.carried], state, "the state of scan and what its body gives")
        length = columns[0].shape[0]
        made = [torch.empty((length, *r.shape), dtype=r.dtype, device=r.device) for r in results[self.carried :]]
        return [*results[: self.carried], *made]


@final
@attrs.frozen(eq=False)
class Gradient:
    """The gradients of a program's results with respect to some of its tensors.

    It takes the program's tensors and then the gradients of the results at `places`, and computes the program again.

    Attributes:
        program: what is differentiated.
        tensors: how many tensors that takes.
        wanted: which of them.
        places: the results whose gradients are given.
    """

    program: Program
    tensors: int
    wanted: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def key(self) -> Raw:
        return ("gradient", self.program.key, self.tensors, self.wanted, self.places)

    def run(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        given, gradients = tensors[: self.tensors], tensors[self.tensors :]
        with torch.enable_grad(), autograd_works():
            # A leaf of its own for each: a tensor may be given twice, and has one gradient for each place.
            leaves = [
                t.view_as(t) if t.requires_grad else t.detach().requires_grad_(i in self.wanted)
                for i, t in enumerate(given)
            ]
            results = self.program.run(leaves, numbers)
            pairs = [(results[i], g) for i, g in zip(self.places, gradients, strict=True) if results[i].requires_grad]
            found: Sequence[torch.Tensor | None] = [None] * len(self.wanted)
            if pairs:
                outputs, given_gradients = zip(*pairs, strict=True)
                wanted = [leaves[i] for i in self.wanted]
                found = torch.autograd.grad(outputs, wanted, given_gradients, create_graph=True, allow_unused=True)
            return [
                torch.zeros_like(given[i]) if g is None else _laid_out(g, given[i])
                for i, g in zip(self.wanted, found, strict=True)
            ]

    def on_fakes(self, tensors: Tensors, numbers: Numbers) -> list[torch.Tensor]:
        return [torch.empty_like(tensors[i]) for i in self.wanted]


def _laid_out(gradient: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """In the strides that `on_fakes` promised."""
    wanted = torch.empty_like(like)
    if gradient.stride() == wanted.stride():
        return gradient
    return wanted.copy_(gradient)


def _check_equal(got: Tensors, want: Tensors, what: str) -> None:
    if len(got) != len(want):
        raise ValueError(f"{what} differ in number")
    for a, b in zip(got, want, strict=True):
        if (a.dtype, a.device, a.dim()) != (b.dtype, b.device, b.dim()):
            raise ValueError(f"{what} differ in dtype, device or number of dimensions")
        if any(m != n for m, n in zip((*a.shape, *a.stride()), (*b.shape, *b.stride()), strict=True)):
            raise ValueError(f"{what} differ in sizes or strides")


# ---- the operator

PROGRAMS: dict[str, Any] = {}
_NAMES: dict[Any, str] = {}
"""Graphs that were compiled hold only the names, for as long as they live, also in the backward of some result: so
programs stay. They hold no tensors, and equal ones are kept once."""


@maker
def name_of(program: Any) -> str:
    """The name of a program, or of an attention, by which graphs refer to it; what it does is its `key`, a hashable tuple with its kind first.

    The name is a digest of that, so that compiled code means the same in another process, which calls this with the program.
    """
    key = program.key
    if key not in _NAMES:
        text = _text_of(key)
        tail = f"here_{len(_NAMES)}" if text is None else hashlib.sha256(text.encode()).hexdigest()[:24]
        _NAMES[key] = name = f"{key[0]}_{tail}"
        PROGRAMS[name] = program
        named_here(name, None if text is None else Made(name_of, (program,)))
    return _NAMES[key]


def _text_of(key: Raw) -> str | None:
    """The same in every process; None if the key holds objects of this one."""
    text = repr(key) if _is_plain(key) else None
    return None if text is None or " at 0x" in text else text


def _is_plain(key: Raw) -> bool:
    if isinstance(key, tuple):
        return all(map(_is_plain, key))
    return key is None or isinstance(key, (str, bool, int, float, torch.dtype))


def _own_memory(results: Sequence[torch.Tensor], tensors: Tensors) -> list[torch.Tensor]:
    """No result shares memory with an argument or with another result."""
    taken = {t.untyped_storage()._cdata for t in tensors}
    made = []
    for result in results:
        own = result if result.untyped_storage()._cdata not in taken else result.clone()
        taken.add(own.untyped_storage()._cdata)
        made.append(own)
    return made


def _dense(tensors: list[torch.Tensor], numbers: list[int], program: str) -> list[torch.Tensor]:
    plain = [t.detach() for t in tensors]
    return _own_memory([t.detach() for t in PROGRAMS[program].run(plain, numbers)], plain)


def _fake(tensors: list[torch.Tensor], numbers: list[Raw], program: str) -> list[torch.Tensor]:
    plain = [t.detach() for t in tensors]
    return _own_memory([t.detach() for t in PROGRAMS[program].on_fakes(plain, numbers)], plain)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Raw, program: str, numbers: Raw, *tensors: torch.Tensor) -> Raw:
        ctx.program, ctx.numbers = program, numbers
        ctx.save_for_backward(*tensors)
        with torch._C._AutoDispatchBelowAutograd():
            results = _RUN(list(tensors), numbers, program)
        ctx.places = tuple(i for i, t in enumerate(results) if t.is_floating_point() or t.is_complex())
        ctx.mark_non_differentiable(*[t for i, t in enumerate(results) if i not in ctx.places])
        return tuple(results)

    @staticmethod
    def backward(ctx: Raw, *gradients: torch.Tensor) -> Raw:
        tensors = ctx.saved_tensors
        wanted = tuple(i for i, needed in enumerate(ctx.needs_input_grad[2:]) if needed)
        program = Gradient(PROGRAMS[ctx.program], len(tensors), wanted, ctx.places)
        given = [gradients[i] for i in ctx.places]
        found = dict(zip(wanted, _RUN([*tensors, *given], ctx.numbers, name_of(program)), strict=True))
        return (None, None, *[found.get(i) for i in range(len(tensors))])


def _autograd(tensors: list[torch.Tensor], numbers: list[Raw], program: str) -> list[torch.Tensor]:
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        apply: Callable[..., Any] = _Differentiable.apply
        return list(apply(program, numbers, *tensors))
    with torch._C._AutoDispatchBelowAutograd():
        made: list[torch.Tensor] = _RUN(tensors, numbers, program)
    return made


_RUN = define_operator(
    "torchjit_fx", "run_program(Tensor[] tensors, SymInt[] numbers, str program) -> Tensor[]", _dense, _fake,
    # What runs reads data to decide: no CUDA graph can hold it. It was captured for the strides that its arguments have.
    autograd=_autograd, tags=(torch.Tag.cudagraph_unsafe, torch.Tag.needs_exact_strides),
)  # fmt: skip
_AUTOGRAD_KEYS = tuple(
    getattr(torch._C.DispatchKey, name) for name in ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor")
)


@contextmanager
def autograd_works() -> Raw:
    """Inside of an operator's kernel autograd does not record; here it does."""
    exclude = torch._C._dispatch_tls_local_exclude_set()
    for key in _AUTOGRAD_KEYS:
        exclude = exclude.remove(key)
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), exclude):
        yield


@final
class ControlFlow:
    """What stands in a graph for one call: takes `tensors` tensors and then numbers, gives a tuple of tensors."""

    def __init__(self, kind: str, program: Program, tensors: int) -> None:
        self.__name__ = self.__qualname__ = kind  # torch.fx prints a node by these
        self.program = program
        self.tensors = tensors
        self._name = name_of(program)

    def __call__(self, *values: Raw) -> tuple[torch.Tensor, ...]:
        tensors, numbers = list(values[: self.tensors]), list(values[self.tensors :])
        return tuple(_RUN(tensors, numbers, self._name))
