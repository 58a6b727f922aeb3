"""Recording: a call on leaves becomes a step with result leaves."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, cast, final

import attrs
import torch
from torch._ops import OpOverload

from torchjit_core.reasons import GraphBreak
from torchjit_core.storing import relied_on
from torchjit_fx import breaks
from torchjit_fx.answers import answers_from_metadata, has_answer
from torchjit_fx.assigned_data import AssignedData, with_gradient_for
from torchjit_fx.eager_rules.functions import function_rule
from torchjit_fx.eager_rules.symbolic_outcomes import SymbolicCall, SymbolicOutcome, outcome_by_rule
from torchjit_fx.eager_rules.unrecorded_views import check_views
from torchjit_fx.flatten import Arguments, UnwritableArgument, leaves_in, without_enums
from torchjit_fx.inference import Place
from torchjit_fx.input_memory import InputMemory
from torchjit_fx.large_captures import LargeCaptureNotice
from torchjit_fx.leaves import (
    Checkpoint,
    Function,
    InputLeaf,
    OpaqueLeaf,
    Raw,
    RawArgs,
    RawKwargs,
    Step,
    StepScope,
    Storage,
    SymLeaf,
    Target,
    TensorLeaf,
)
from torchjit_fx.metas import MetaCache, MetaService
from torchjit_fx.modes import TorchModes
from torchjit_fx.numpy.facts import NUMPY_SCALARS, plain_numbers
from torchjit_fx.operator_code import rely_on_code
from torchjit_fx.outcomes import Constant, Made, Outcome, parts
from torchjit_fx.ownership import graph_target
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.records import TensorRecord
from torchjit_fx.region import live_steps
from torchjit_fx.selections import Selections
from torchjit_fx.step_results import NOT_RUN, ResultBuilder
from torchjit_fx.transcripts import TranscriptCache, can_be_shared, noted
from torchjit_fx.write_checks import WriteChecks
from torchjit_torch.operators import is_custom_operator

__all__ = ["Recorder", "escaped", "may_write"]

_WRITING_OPERATORS = frozenset(
    getattr(operator, name)
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift", "setitem")
)  # fmt: skip


def _plain_arguments(refused: Raw, fn: Function, args: RawArgs, kwargs: RawKwargs) -> tuple[Any, Any] | None:
    """What a graph can hold in the place of arguments of which one was refused; None if there is nothing."""
    if isinstance(refused, type) and refused in _DTYPES:
        return tuple([_dtype_of(a) for a in args]), {k: _dtype_of(v) for k, v in kwargs.items()}
    if isinstance(refused, enum.Enum):
        return without_enums(args, kwargs)
    return plain_numbers(fn, args, kwargs) if isinstance(refused, NUMPY_SCALARS) else None


@final
@attrs.frozen(eq=False)
class _Call:
    """A call that is being recorded.

    Attributes:
        op, target, args, kwargs: of its step.
        found: the leaves in the arguments.
        capture: the interpreter.
        key: what its outcome is kept under, where that is cacheable.
    """

    op: str
    target: Target
    args: RawArgs
    kwargs: RawKwargs
    found: Arguments
    capture: CaptureContext
    key: tuple[Any, ...]


@final
@attrs.define(eq=False)
class Recorder:
    """The steps of one region.

    Args:
        metas: what calls return.
        modes: ambient state.
        shared: outcomes without symbols, for the whole process.
        transcripts: outcomes with symbols, likewise.
        inputs: which inputs share memory.
        notice: says when the region has become large.
    """

    metas: MetaService
    modes: TorchModes
    _shared: MetaCache
    _transcripts: TranscriptCache
    _inputs: InputMemory
    notice: LargeCaptureNotice
    steps: list[Step] = attrs.field(factory=list, init=False)
    writes: list[Storage] = attrs.field(factory=list, init=False)  # in order, of all scopes
    _own: MetaCache = attrs.field(factory=MetaCache, init=False)
    scope: StepScope | None = attrs.field(default=None, init=False)
    place: Place = attrs.field(default=attrs.Factory(lambda self: Place(self.modes), takes_self=True), init=False)
    data: AssignedData = attrs.field(factory=AssignedData, init=False)
    _checkpoints: list[Checkpoint] = attrs.field(factory=list, init=False)
    _checkpoint_count: int = attrs.field(default=0, init=False)
    _remembered: list[tuple[list[Step], tuple[int, GraphBreak] | None]] = attrs.field(factory=list, init=False)
    selections: Selections = attrs.field(factory=Selections, init=False)
    # Memory that eager may refuse to write, see `transforms`, and where to break then.
    several_views: dict[int, int] = attrs.field(factory=dict, init=False)
    _write_checks: WriteChecks = attrs.field(
        default=attrs.Factory(
            lambda self: WriteChecks(self.metas.numbers, self.modes, self._inputs, self.selections, self.place),
            takes_self=True,
        ),
        init=False,
    )

    def call(self, fn: Function, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> Raw:
        """Record one call and give its raw result.

        Raises:
            GraphBreak: it cannot be in a graph; nothing was recorded.
        """
        if self.data.values:
            seen = self.data.seen(fn, args, kwargs, self._follower(fn, kwargs, capture), capture)
            if seen is not None:
                return self.data.given_back(self.call(fn, *seen, capture), args)
        try:
            found = Arguments(args, kwargs)
        except UnwritableArgument as error:
            plain = _plain_arguments(error.args[0], fn, args, kwargs)
            if plain is not None:
                return self.call(fn, *plain, capture)
            raise _refuse_argument(error.args[0], fn, capture) from None
        self._check_reach(found, capture)
        op, target = graph_target(fn)
        _rely_on_users_code(target)
        if function_rule(target).beyond:
            found.cacheable = False
        call = _Call(op, target, args, kwargs, found, capture, (fn, self.modes.token, *found.key))
        outcome = self._cache(found).get(call.key) if found.cacheable else None
        if outcome is not None and (not outcome.written or all(found.leaves[i].is_alone() for i in outcome.written)):
            return self._apply(call, outcome, NOT_RUN)
        return self._call_new(call)

    def record(self, target: Target, args: RawArgs, capture: CaptureContext) -> Raw:
        """Record a call of a callable that belongs to this capture alone.

        Raises:
            GraphBreak: it cannot be in a graph.
        """
        found = Arguments(args, {})
        found.cacheable = False
        self._check_reach(found, capture)
        if any(id(leaf) in self.data.values for leaf in found.leaves):
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE_SET, "data or requires_grad", capture.location())
        for leaf in found.leaves:
            self._materialise_neighbours(leaf)
        return self._call_new(_Call("call_function", target, args, {}, found, capture, ()))

    def _cache(self, found: Arguments) -> MetaCache:
        return self._own if found.symbolic else self._shared

    def _follower(self, fn: Function, kwargs: RawKwargs, capture: CaptureContext) -> Raw:
        """Makes what calls of `fn` are given for a tensor whose data was assigned; None where autograd does not record."""
        if not self.modes.graph_grad:
            return None

        def follow(leaf: TensorLeaf, memory: TensorLeaf) -> TensorLeaf:
            if self.scope is not None or self.checkpointed or may_write(graph_target(fn)[1], kwargs):
                raise GraphBreak(breaks.TENSOR_ATTRIBUTE_SET, "data of a tensor with gradients", capture.location())
            made: TensorLeaf = self.call(with_gradient_for, (leaf, memory), {}, capture)
            return made

        return follow

    def _check_reach(self, found: Arguments, capture: CaptureContext) -> None:
        leaves: list[TensorLeaf | SymLeaf] = [*found.leaves, *found.sym]
        for leaf in leaves:
            made_in = None if leaf.step is None else leaf.step.scope
            if made_in is None or made_in is self.scope or not made_in.closed:
                continue
            if self.scope is None or not self.scope.may_use(leaf):
                escaped(leaf, capture)

    def _new_step(self, op: str, target: Target, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> Step:
        if not self.modes.inference:
            self.place.must_be_outside(capture)
        return self._new_step_anywhere(op, target, args, kwargs, capture)

    def _new_step_anywhere(
        self, op: str, target: Target, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext
    ) -> Step:
        if len(self.steps) >= self.notice.look_at:
            self.notice.look(self.steps)
        stack = capture.stack()
        step = Step(op, target, args, kwargs, self.modes.token, stack[-1] if stack else capture.location(), stack)
        step.scope = self.scope
        step.modules = capture.receivers()
        step.kept = cast("int | None", capture.state("kept_call"))
        if self._checkpoints:
            step.checkpoint = self._checkpoints[0]
        return step

    def assign_data(self, leaf: InputLeaf, value: object, capture: CaptureContext) -> None:
        """`leaf.data = value`.

        Raises:
            GraphBreak: it cannot be followed. What autograd remembers of the tensor would have other values in a backward pass.
        """
        names = self.data.names(leaf)
        try:
            self.data.assign(leaf, value, self.scope is not None or self.checkpointed, capture)
        except GraphBreak:
            self.changes_at_break(leaf)
            raise
        remembering = [step for step in self.steps if _remembers(step, names)]
        if remembering:
            why = GraphBreak(breaks.TENSOR_ATTRIBUTE_SET, "data of a tensor used with gradients", capture.location())
            self._remembered.append((remembering, (self.data.marks[id(leaf)], why)))

    def changes_at_break(self, leaf: TensorLeaf) -> None:
        """The break that follows gives a tensor other memory or another history, without autograd's knowing."""
        names = self.data.names(leaf)
        self._remembered.append(([step for step in self.steps if _remembers(step, names)], None))

    def remembered(self, asked: Sequence[Raw]) -> tuple[bool, tuple[int, GraphBreak] | None]:
        """Would a backward pass after the region read what autograd remembers of a tensor that was since given other memory?

        Returns:
            Whether it would. Of the tensor itself eager PyTorch reads the new memory and of views the old; a compiled graph remembers
            others of them. And where, in that case, the capture has to break before the assignment.
        """
        results = [leaf for leaf in asked if isinstance(leaf, TensorLeaf) and leaf.record.requires_grad]
        if not self._remembered or not results:
            return False, None
        live = set(map(id, live_steps(self.steps, results, self.modes.graph_initial)))
        found = [where for steps, where in self._remembered if any(id(step) in live for step in steps)]
        return bool(found), next((where for where in found if where is not None), None)

    @property
    def checkpointed(self) -> bool:
        """Is a checkpointed region being recorded?"""
        return bool(self._checkpoints)

    def enter_checkpoint(self, policy: Callable[..., Any] | None = None) -> None:
        """A checkpointed region begins; of nested ones the outermost counts. `policy`: what a selective one keeps."""
        self._checkpoint_count += 1
        self._checkpoints.append(Checkpoint(self._checkpoint_count, policy))

    def leave_checkpoint(self) -> None:
        """It ends."""
        self._checkpoints.pop()

    def _call_new(self, call: _Call) -> Raw:
        found, capture, rule = call.found, call.capture, function_rule(call.target)
        writes = may_write(call.target, call.kwargs) or rule.beyond
        for leaf in found.leaves if writes else ():
            self._materialise_neighbours(leaf)
        try:
            outcome, result = self._outcome(call, rule.outcome, writes)
            if found.leaves and has_answer(outcome.result) and not answers_from_metadata(call.target, call.args):
                raise GraphBreak(breaks.DATA_DEPENDENT, f"a Python value from {_name_of(call.target)}")
            self._write_checks.check(outcome, call.found, call.target, capture)
            seen = self._neighbours_after(outcome, found)
        except GraphBreak as stop:
            self._abandon(stop, found, writes, capture)
            raise
        if self._repeats(outcome, found):
            self._cache(found).put(call.key, outcome)
        _refuse_joined(outcome, found, capture)
        raw = self._apply(call, outcome, result, found.symbolic and not writes)
        for leaf, record in seen:
            leaf.record = record
        return raw

    def _outcome(self, call: _Call, rule: SymbolicOutcome | None, writes: bool) -> tuple[Outcome, Any]:
        """What the call does, and its result over fakes if it ran on those of this capture.

        Unless its rule knows, it is tried; not if another capture did, and what it asked about sizes has the same answers in this one.
        """
        found, metas = call.found, self.metas
        if found.symbolic and rule is not None:
            asked = SymbolicCall(call.args, call.kwargs, found, self.modes, metas.fakes.records)
            ruled = outcome_by_rule(rule, asked)
            if ruled is not None:
                return ruled, NOT_RUN
        context, where = metas.numbers.context, call.capture.location()
        if not (found.symbolic and can_be_shared(found, context, writes)):
            return metas.run(call.target, call.args, call.kwargs, found, writes, where=where)
        known = self._transcripts.find(call.key, context.sizes, where)
        if known is not None:
            return known, NOT_RUN
        with noted(context) as transcript:
            outcome, result = metas.run(call.target, call.args, call.kwargs, found, writes, own_fakes=True, where=where)
        if outcome.written and not writes:
            return outcome, result  # its name did not say so: it ran once more, on the fakes of this capture
        self._transcripts.put(call.key, transcript, outcome)
        return outcome, NOT_RUN if outcome.written else result

    def _abandon(self, stop: GraphBreak, found: Arguments, writes: bool, capture: CaptureContext) -> None:
        """A call was refused. Raises GraphBreak, with the place, if `stop` has none."""
        self._forget_fakes(found)
        for leaf in found.leaves if writes else ():
            if id(leaf.storage) in self.several_views:
                capture.break_at_mark(self.several_views[id(leaf.storage)], stop)
        if stop.location is None:
            raise GraphBreak(stop.reason, stop.detail, capture.location()) from stop

    def _repeats(self, outcome: Outcome, found: Arguments) -> bool:
        """Does the outcome follow from the key, for later calls?"""
        lonely = all(found.leaves[i].is_alone() for i in outcome.written)
        repeats = found.cacheable and lonely and not (outcome.fresh or outcome.constant)
        if any(type(part) is Made and part.record.wrapping is not None for part in parts(outcome.result)):
            return False  # the record holds what is the program's
        shares = any(type(part) is Made and part.shares is not None for part in parts(outcome.result))
        return repeats and not (outcome.written and shares)

    def _neighbours_after(self, outcome: Outcome, found: Arguments) -> list[tuple[TensorLeaf, TensorRecord]]:
        """What a write did to the metadata of everything on the same memory.

        Raises:
            GraphBreak: a view became unusable for autograd.
        """
        storages = {id(s): s for i in outcome.written if (s := found.leaves[i].storage) is not None}
        leaves = [leaf for storage in storages.values() if len(storage.leaves) > 1 for leaf in storage.leaves]
        try:
            return [(leaf, self.metas.fakes.describe_again(self.metas.fake(leaf), leaf.record)) for leaf in leaves]
        except (
            RuntimeError,
            ValueError,
        ) as error:  # torch makes the history of a view anew, which cannot be viewed so any more
            raise GraphBreak(breaks.META_FAILED, f"a write below a view: {error}") from error

    def _forget_fakes(self, found: Arguments) -> None:
        """After a refused call its arguments' fakes may be half written."""
        for leaf in found.leaves:
            for neighbour in leaf.storage.leaves if leaf.storage is not None else [leaf]:
                neighbour.fake = neighbour.stand_in = None

    def _materialise_neighbours(self, leaf: TensorLeaf) -> None:
        """Before a write: views made earlier need fakes that share the memory, to see what the write does to them."""
        for neighbour in leaf.storage.leaves if leaf.storage is not None else ():
            self.metas.fake(neighbour)

    def _apply(self, call: _Call, outcome: Outcome, result: Raw, loose: bool = False) -> Raw:
        leaves, capture = call.found.leaves, call.capture
        if outcome.written and result is NOT_RUN:
            self._write_checks.check(outcome, call.found, call.target, capture)
        if outcome.makes and not self.modes.graph_grad:
            check_views(outcome.result, leaves, capture)
        none_for_effect = type(outcome.result) is Constant and outcome.result.value is None and bool(leaves)
        if not (outcome.makes or outcome.written or outcome.random or none_for_effect):
            return ResultBuilder(None, leaves, NOT_RUN, capture, self.metas.fakes).build(outcome.result)
        step = self._new_step(call.op, call.target, call.args, call.kwargs, capture)
        step.random = outcome.random
        step.effect = outcome.random or (none_for_effect and not outcome.written)
        raw = ResultBuilder(step, leaves, result, capture, self.metas.fakes, loose).build(outcome.result)
        if outcome.written:
            self._write(outcome, step, leaves, result is not NOT_RUN or not outcome.changed)
        self.steps.append(step)
        return raw

    def _write(self, outcome: Outcome, step: Step, leaves: list[TensorLeaf], keep_fakes: bool) -> None:
        written: dict[int, Storage] = {}
        for i in outcome.written:
            storage = leaves[i].memory()
            if self.scope is not None:
                self.scope.note_write(storage)
            storage.written = True
            self.writes.append(storage)
            written[id(storage)] = storage
        step.written = tuple(written.values())
        for i, record in outcome.changed:
            leaves[i].record = record
            if not keep_fakes:
                leaves[i].fake = None

    def add_size(self, leaf: TensorLeaf, dim: int, value: Raw, expr: Any, capture: CaptureContext) -> SymLeaf:
        """Record the reading of a size that is not a plain symbol."""
        step = self._new_step("call_method", "size", (leaf, dim), {}, capture)
        self.steps.append(step)
        return SymLeaf(value, expr, step)

    def add_test(self, fn: Function, args: RawArgs, capture: CaptureContext) -> None:
        """Record an operation without results, which stays."""
        self.add_number(fn, args, capture).effect = True

    def add_number(self, fn: Function, args: RawArgs, capture: CaptureContext) -> Step:
        """Record Python arithmetic on numbers."""
        self._check_reach(Arguments(args, {}), capture)
        stack = capture.stack()
        step = Step("call_function", fn, args, {}, self.modes.token, stack[-1] if stack else None, stack)
        step.scope = self.scope
        self.steps.append(step)
        return step

    def add_effect(self, op: str, target: Target, args: RawArgs, capture: CaptureContext) -> None:
        """Record a call that does something to autograd, and gives no tensor that counts."""
        step = self._new_step(op, target, args, {}, capture)
        step.effect = True
        self.steps.append(step)

    def add_mode_change(self, fn: Function, args: RawArgs, mode: tuple[Any, Any], capture: CaptureContext) -> None:
        """Record a call that sets ambient state."""
        step = self._new_step_anywhere("call_function", fn, args, {}, capture)
        step.effect = True
        step.mode = mode
        self.steps.append(step)


def _rely_on_users_code(target: object) -> None:
    """Note what the program defines of a target and torch runs while the graph is made: it leaves no guards."""
    if type(target) is FunctionType:
        if not str(target.__module__).startswith(("torch", "numpy")):
            relied_on(target)
    elif is_custom_operator(target):
        rely_on_code(cast("OpOverload[..., Any]", target))


# Python's number types stand for dtypes where torch wants one; a graph holds the dtype.
_DTYPES: dict[type, torch.dtype] = {int: torch.int64, float: torch.float64, bool: torch.bool, complex: torch.complex128}


def _dtype_of(arg: Raw) -> Raw:
    return _DTYPES.get(arg, arg) if isinstance(arg, type) else arg


def escaped(leaf: Raw, capture: CaptureContext) -> None:
    """A tensor made in a scope is used outside of it: the capture breaks where the scope began."""
    capture.break_at_mark(leaf.step.scope.mark, GraphBreak(breaks.ESCAPED_TENSOR, "", capture.location()))


def _remembers(step: Step, names: list[TensorLeaf]) -> bool:
    """Is the step given one of these where autograd records?"""
    if step.target is with_gradient_for or not any(made.record.requires_grad for made in step.results):
        return False
    return any(leaf is name for leaf in leaves_in((step.args, step.kwargs)) for name in names)


def may_write(target: Target, kwargs: RawKwargs) -> bool:
    """May a call of this name write to its arguments?"""
    if target in _WRITING_OPERATORS or "out" in kwargs or "inplace" in kwargs:
        return True
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i") or name == "__setitem__"


def _refuse_joined(outcome: Outcome, found: Arguments, capture: CaptureContext) -> None:
    """Raise GraphBreak for a result that consists of several tensors, one of them on memory that was written."""
    joins = any(type(part) is Made and part.also for part in parts(outcome.result))
    if joins and any(leaf.storage is not None and leaf.storage.written for leaf in found.leaves):
        raise GraphBreak(breaks.UNSUPPORTED_TENSOR, "a tensor on memory that was written", capture.location())


def _name_of(target: Target) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", None) or repr(target)


def _refuse_argument(arg: Raw, fn: Function, capture: CaptureContext) -> GraphBreak:
    name = getattr(fn, "__name__", None) or repr(fn)
    if type(arg) is InputLeaf:  # which consists of others
        return GraphBreak(breaks.UNSUPPORTED_TENSOR, f"{name} of {arg.path}: {arg.cls.__name__}", capture.location())
    if type(arg) is OpaqueLeaf:
        return GraphBreak(arg.reason, f"{name} of {arg.path}: {type(arg.real).__name__}", capture.location())
    return GraphBreak(breaks.UNSUPPORTED_ARGUMENT, f"{name} is given a {type(arg).__qualname__}", capture.location())
