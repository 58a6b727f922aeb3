"""Tensors that consist of others (traceable wrapper subclasses) in a graph.

The graph is given the tensors that an argument consists of; its first step puts the argument together. From there the calls are
recorded as the program makes them: who runs or traces the graph calls the class's `__torch_dispatch__`, which sees the operators as
in eager PyTorch, above autograd's formulas and below them. At the end a result is taken apart, and around the graph it is put together
again. So what a compiler sees are plain tensors.
"""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_core.guards import IdIs, Predicate, TensorMatches
from torchjit_core.paths import AccessPath
from torchjit_core.reasons import GraphBreak
from torchjit_core.storing import never_stored
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.calls.constants import evaluate
from torchjit_fx.calls.rules import rule_of_call
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import leaves_in, map_raw
from torchjit_fx.followed_classes import dispatches
from torchjit_fx.intrinsics import INTRINSICS, announce_block, call_whole, convert_results, switch_dispatch
from torchjit_fx.leaves import Function, InputLeaf, OpaqueLeaf, Raw, RawArgs, RawKwargs, SymLeaf, TensorLeaf
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.records import TensorRecord, key_set_of, kind_of
from torchjit_fx.subclasses import see_subclass
from torchjit_fx.symbols.arithmetic import ARITHMETIC
from torchjit_fx.tracing import may_write
from torchjit_fx.wrapper_values import (
    DISTRIBUTED,
    Assembling,
    Below,
    Pieces,
    WholeCall,
    described,
    is_same_wrapping,
    part_of,
)

__all__ = ["Wrappers", "is_wrapped"]

_C: Any = torch._C
_PLAIN_VALUES = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device)
_MAY_SEE_WRAPPERS = frozenset({announce_block, call_whole, convert_results, switch_dispatch})
_RECORDED_ALL_THE_SAME = (ARITHMETIC - {operator.eq, operator.ne}) | {
    operator.getitem, torch.Tensor.__getitem__, torch.Tensor.size, len, torch.Tensor.__len__, torch.Tensor.dim, torch.Tensor.ndimension,
    torch.Tensor.squeeze, torch.squeeze,
}  # fmt: skip
"""Calls whose rules are about other arguments than these, or about symbolic sizes."""


def is_wrapped(value: Raw) -> bool:
    """Is it a leaf that stands for a tensor that consists of others?"""
    return isinstance(value, TensorLeaf) and value.record.wrapping is not None


@final
@attrs.frozen(eq=False)
class _Whole:
    """An argument that takes part in autograd, of which graph inputs are made.

    Attributes:
        how: takes it apart, and puts it together in the graph.
        path: where it is found.
    """

    how: Assembling
    path: AccessPath


@final
class Wrappers:
    """The state of one capture.

    Attributes:
        used: a leaf of this kind was met.
        wholes: by the identity of a graph input that is made of one: it, and the number of the piece.
    """

    def __init__(self, domain: CallDomain) -> None:
        self.domain = domain
        self.used = False
        self.wholes: dict[int, tuple[_Whole, int]] = {}
        self._made: dict[int, TensorLeaf] = {}
        self._marks: dict[int, int] = {}

    # ---- arguments

    def input(self, obj: torch.Tensor, path: AccessPath, capture: CaptureContext) -> InputLeaf | OpaqueLeaf:
        """The leaf of a tensor of a wrapper subclass. What it consists of is guarded where a call of the graph uses it."""
        location, cls = capture.location(), type(obj)
        try:
            if dispatches(cls) and not see_subclass(capture):
                raise GraphBreak(breaks.UNSUPPORTED_TENSOR, "a subclass under DisableTorchFunctionSubclass", location)
            record = described(obj, self._record_of_part)
        except Exception:  # the class is the program's: eager PyTorch has the last word
            capture.guard(IdIs(path.type_of(), cls, location))
            return OpaqueLeaf(obj, path, breaks.UNSUPPORTED_TENSOR)
        r: Any = record
        capture.guard(
            TensorMatches(
                path, cls, r.dtype, r.device, r.requires_grad, r.sizes, r.strides, None, key_set_of(obj), r.is_leaf, location
            )
        )  # fmt: skip
        self.used = True
        return InputLeaf(record, obj, path, static=False)

    def _record_of_part(self, t: torch.Tensor) -> TensorRecord:
        kind = kind_of(t, key_set_of(t))
        if kind[0]:
            if t.requires_grad or any(kind[1:]) or type(t) is not torch.Tensor:
                raise GraphBreak(breaks.UNSUPPORTED_TENSOR, "a part that is no plain tensor")
            return self.domain.fakes.records.get(
                t.dtype, t.device, tuple(t.shape), t.stride(), 0, (False, True, False, False, False)
            )
        return described(t, self._record_of_part)

    def put_together(self, leaf: InputLeaf, capture: CaptureContext) -> TensorLeaf:
        """The step that makes an argument of the tensors that it consists of.

        Raises:
            GraphBreak: the program stored attributes on it.
        """
        if capture.has_stores(leaf):
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"{leaf.path}, which has new attributes", capture.location())
        known = self._made.get(id(leaf))
        if known is not None:
            return known
        record, recorder = leaf.record, self.domain.recorder
        wrapping = record.wrapping
        text = f"the parts of {leaf.path}: {wrapping.names}"  # type: ignore[union-attr]
        capture.guard(Predicate(leaf.path, lambda t: is_same_wrapping(t, wrapping), text, capture.location()))  # type: ignore[arg-type]
        how = Assembling(record)
        plain = self._parts(leaf.real, record, leaf.path, capture)
        if record.requires_grad:
            plain = self._with_history(leaf, how, capture)
        made: TensorLeaf = recorder.record(how, tuple(plain), capture)
        self._made[id(leaf)] = made
        return made

    def _parts(self, t: Any, record: TensorRecord, path: AccessPath, capture: CaptureContext) -> list[Raw]:
        """The leaves of the plain tensors that a tensor consists of, guarded."""
        if record.wrapping is None:
            return [self.domain.fixed_input(t, path, capture)]
        found: list[Raw] = []
        for name, part in zip(record.wrapping.names, record.wrapping.parts, strict=True):
            if isinstance(part, TensorRecord):
                found += self._parts(getattr(t, name), part, path.attr(name), capture)
        return found

    def _with_history(self, leaf: InputLeaf, how: Assembling, capture: CaptureContext) -> list[Raw]:
        """Graph inputs that are made of an argument, so that a backward of the graph gets to it."""
        whole = _Whole(how, leaf.path)
        found: list[Raw] = []
        for k, piece in enumerate(how.taken_apart(leaf.real)):
            flags = (piece.requires_grad, piece.is_leaf, False, False, False)
            record = self.domain.fakes.records.get(
                piece.dtype, piece.device, tuple(piece.shape), piece.stride(), 0, flags
            )
            part = InputLeaf(record, piece, leaf.path, static=False)
            part.cls = torch.Tensor
            self.domain.memory.add(part, capture)
            self.wholes[id(part)] = whole, k
            found.append(part)
        return found

    # ---- calls

    def among(self, args: RawArgs, kwargs: RawKwargs) -> bool:
        """Is one of these values such a leaf?"""
        return any(map(is_wrapped, leaves_in((args, kwargs))))

    def call(self, fn: Function, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> Raw:
        """Do a call that is given such a leaf.

        Raises:
            GraphBreak: it cannot be in a graph.
        """
        rule = rule_of_call(fn)
        if fn in _MAY_SEE_WRAPPERS or rule is evaluate:
            return NotImplemented
        location = capture.location()
        name = getattr(fn, "__name__", None) or str(fn)
        if fn in INTRINSICS or (rule is not None and fn not in _RECORDED_ALL_THE_SAME) or may_write(fn, kwargs):
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"{name} of a tensor that consists of others", location)
        if self._is_elsewhere(capture):
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"{name} of a tensor that consists of others, here", location)
        function = (
            Below(fn) if any(dispatches(leaf.cls) for leaf in leaves_in((args, kwargs)) if is_wrapped(leaf)) else fn
        )
        in_graph = functools.partial(self._in_graph, capture=capture)
        result = self.domain.recorder.call(function, map_raw(args, in_graph), map_raw(kwargs, in_graph), capture)
        self.note(result, capture)
        return result

    def call_whole(self, call: Call) -> Raw:
        """A call with constants of the program among its arguments.

        Raises:
            GraphBreak: it cannot be in a graph.
        """
        function, args, kwargs = call.args
        capture, found = call.capture, leaves_in((args, kwargs))
        if not all(isinstance(leaf, TensorLeaf) for leaf in found) or any(map(_is_opaque, (*args, *kwargs.values()))):
            raise GraphBreak(breaks.UNSUPPORTED_ARGUMENT, function.__qualname__, capture.location())
        if self._is_elsewhere(capture):
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"{function.__qualname__} here", capture.location())

        def place(tensors: Iterator[torch.Tensor]) -> tuple[Any, dict[str, Any]]:
            return map_raw(args, lambda _: next(tensors)), map_raw(kwargs, lambda _: next(tensors))

        if not isinstance(function, type):
            never_stored(DISTRIBUTED, function.__qualname__)
        given = [self._in_graph(leaf, capture) for leaf in found]
        result = self.domain.recorder.record(WholeCall(function, place), tuple(given), capture)
        self.note(result, capture)
        return result

    def _in_graph(self, leaf: Raw, capture: CaptureContext) -> Raw:
        return self.put_together(leaf, capture) if type(leaf) is InputLeaf and is_wrapped(leaf) else leaf

    def _is_elsewhere(self, capture: CaptureContext) -> bool:
        """Is the program where tensors are not what the region's graph computes with, or where errors are caught?"""
        recorder = self.domain.recorder
        inner = recorder.scope is not None or recorder.checkpointed
        return inner or self.domain.modes.inference or capture.may_catch(True)

    def note(self, result: Raw, capture: CaptureContext) -> None:
        """A step has made these."""
        for leaf in filter(is_wrapped, leaves_in(result)):
            self.used = True
            if leaf.record.requires_grad:
                self._marks.setdefault(id(leaf), capture.mark())

    def attribute(self, leaf: TensorLeaf, name: str, capture: CaptureContext) -> Raw:
        """An attribute that the class's own code has put on a tensor that the region made.

        Raises:
            GraphBreak: it is none of the tensors that it consists of, and no plain value, which follows from the context.
        """
        if name in leaf.record.wrapping.names:  # type: ignore[union-attr]
            return self.call(part_of, (leaf, name), {}, capture)
        value = getattr(self.domain.metas.fake(leaf), "__dict__", {}).get(name, leaf)
        items = value if type(value) in (tuple, list) else (value,)
        if not all(type(item) in _PLAIN_VALUES or isinstance(item, enum.Enum) for item in items):
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE, name, capture.location())
        return list(items) if type(value) is list else value

    # ---- the region's end

    def taken_apart(self, asked: Sequence[Raw], capture: CaptureContext) -> tuple[list[Raw], list[Any]]:
        """What the graph gives in the place of these results, and how they are made of it: for each, None or how many, and by what."""
        flat: list[Raw] = []
        plan: list[Any] = []
        for leaf in asked:
            if not is_wrapped(leaf):
                flat.append(leaf)
                plan.append(None)
                continue
            how = Pieces(leaf.record, self._tangent(leaf, capture))
            found = self.domain.recorder.record(how, (leaf,), capture)
            flat += found
            plan.append((len(found), how))
        return flat, plan

    def _tangent(self, leaf: TensorLeaf, capture: CaptureContext) -> TensorRecord:
        """The record of the gradient that a result is given.

        Only classes that can make a gradient like another one are given gradients: others raise where eager PyTorch would not.
        """
        record = leaf.record
        if not record.requires_grad:
            return record
        if not hasattr(leaf.cls, "__coerce_same_metadata_as_tangent__"):
            why = GraphBreak(breaks.WRAPPER_TANGENT, leaf.cls.__name__, capture.location())
            capture.break_at_mark(self._marks[id(leaf)], why)
        fake: Any = self.domain.metas.fake(leaf)
        coerce = getattr(fake, "__coerce_tangent_metadata__", None)
        if coerce is None:
            return record
        with self.domain.mode, torch.no_grad():
            return self.domain.fakes.describe(coerce().detach())

    def around(
        self, target: Function, inputs: tuple[Sequence[InputLeaf], Sequence[SymLeaf]], plan: Sequence[Any]
    ) -> Function:
        """`target`, given its arguments whole, and giving its results so."""
        tensors, numbers = inputs
        places = [
            (len(numbers) + i, *self.wholes[id(leaf)]) for i, leaf in enumerate(tensors) if id(leaf) in self.wholes
        ]
        apart = any(step is not None for step in plan)
        if not places and not apart:
            return target

        def run(*given: Raw) -> Raw:
            if places:
                values = list(given)
                taken: dict[int, list[torch.Tensor]] = {}
                for place, whole, k in places:
                    if id(whole) not in taken:
                        taken[id(whole)] = whole.how.taken_apart(given[place])
                    values[place] = taken[id(whole)][k]
                given = tuple(values)
            results = target(*given)
            return _together(results, plan) if apart else results

        return run


@call_rule(call_whole)
def _call_whole(call: Call) -> Raw:
    return call.domain.of(Wrappers).call_whole(call)


def _is_opaque(value: Raw) -> bool:
    items = value if type(value) in (tuple, list) else (value,)
    return any(isinstance(item, OpaqueLeaf) for item in items)


def _together(results: Sequence[Any], plan: Sequence[Any]) -> list[Any]:
    pieces = iter(results)
    made = []
    for step in plan:
        if step is None:
            made.append(next(pieces))
        else:
            count, how = step
            made.append(how.together([next(pieces) for _ in range(count)]))
    return made
